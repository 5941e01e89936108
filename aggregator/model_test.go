package aggregator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// model is a kernel of plain objects whose writer refuses bodies that contain
// "poison" and does what it is told about the next writes.
type model struct {
	mu      sync.Mutex
	objects map[dataplane.ID]string
	writes  int
	reads   int
	took    time.Duration
	// next, when set, decides the outcome of the next write.
	next func() dataplane.Outcome
	// refuse, when set, replaces the test for poison.
	refuse func(*dataplane.Batch) bool
	// receipts says how a refusal is told; refused counts them.
	receipts receipts
	refused  int
	// after, when set, looks at the objects after each write.
	after func(map[dataplane.ID]string)
}

// receipts are those of a kind of writer.
type receipts int

const (
	// whole batches land or not, and nobody is named.
	whole receipts = iota
	// wholeBlamed and wholeOneBlamed name all culprits, or the first.
	wholeBlamed
	wholeOneBlamed
	// byObject takes object by object, and proves who was refused.
	byObject
)

// poisoned returns the owners of what a batch has that is refused for itself.
func poisoned(b *dataplane.Batch) (keys []service.Key) {
	for _, c := range b.Changes {
		if c.After != nil && strings.Contains(c.After.Body, "poison") {
			keys = append(keys, c.Owner)
		}
	}
	return keys
}

func (m *model) Write(_ context.Context, b *dataplane.Batch) dataplane.Receipt {
	time.Sleep(m.took)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writes++
	if m.after != nil {
		defer func() { m.after(m.objects) }()
	}
	fail := func(o dataplane.Outcome, words string) dataplane.Receipt {
		r := dataplane.Receipt{Outcome: o, Err: errors.New(words)}
		if o != dataplane.Unknown {
			r.Certain = map[dataplane.ID]*dataplane.Object{}
			for _, c := range b.Changes {
				r.Certain[c.ID] = nil
				if body, ok := m.objects[c.ID]; ok {
					r.Certain[c.ID] = &dataplane.Object{ID: c.ID, Body: body}
				}
			}
		}
		return r
	}
	if m.next != nil {
		o := m.next()
		if o != dataplane.Landed {
			return fail(o, o.String())
		}
	}
	culprits := poisoned(b)
	if (m.refuse == nil && len(culprits) > 0) || (m.refuse != nil && m.refuse(b)) {
		m.refused++
		if m.receipts == byObject {
			return m.writeObjects(b, fail)
		}
		r := fail(dataplane.Rejected, "Invalid argument")
		switch m.receipts {
		case wholeBlamed:
			r.Suspects = culprits
		case wholeOneBlamed:
			r.Suspects = culprits[:1]
		}
		return r
	}
	for _, c := range b.Changes {
		if c.After == nil {
			delete(m.objects, c.ID)
		} else {
			m.objects[c.ID] = c.After.Body
		}
	}
	return dataplane.Receipt{Written: dataplane.Written{Objects: len(b.Changes)}}
}

// writeObjects takes what is not refused for itself.
func (m *model) writeObjects(b *dataplane.Batch, fail func(dataplane.Outcome, string) dataplane.Receipt) dataplane.Receipt {
	for _, c := range b.Changes {
		switch {
		case c.After == nil:
			delete(m.objects, c.ID)
		case !strings.Contains(c.After.Body, "poison"):
			m.objects[c.ID] = c.After.Body
		}
	}
	r := fail(dataplane.Rejected, "Invalid argument")
	r.Suspects, r.Proven = poisoned(b), true
	return r
}

func (m *model) Read(context.Context) ([]dataplane.Object, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads++
	var objects []dataplane.Object
	for id, body := range m.objects {
		objects = append(objects, dataplane.Object{ID: id, Body: body})
	}
	return objects, nil
}

func (m *model) counts() (writes, reads int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.writes, m.reads
}

func (m *model) written() int { writes, _ := m.counts(); return writes }

func (m *model) text() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var lines []string
	for id, body := range m.objects {
		lines = append(lines, id.Name+"="+body)
	}
	slices.Sort(lines)
	return strings.Join(lines, " ")
}

type fixture struct {
	*Aggregator
	*model
	mu       sync.Mutex // guards what the listeners collect
	verdicts []dataplane.Verdict
	events   []Event
}

func open(t *testing.T, m *model, config Config) *fixture {
	t.Helper()
	return openWriter(t, m, m, config)
}

// openWriter opens a fixture whose writer is another face of the model.
func openWriter(t *testing.T, m *model, w dataplane.Writer, config Config) *fixture {
	t.Helper()
	if m.objects == nil {
		m.objects = map[dataplane.ID]string{}
	}
	h := &fixture{model: m}
	config.Domain, config.Writer = "model", w
	config.Verdicts = func(v dataplane.Verdict) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.verdicts = append(h.verdicts, v)
	}
	config.Listen = func(e Event) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.events = append(h.events, e)
	}
	a, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	h.Aggregator = a
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); a.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return h
}

func (h *fixture) submit(name string, incarnation, sequence uint64, bodies ...string) {
	var objects []dataplane.Object
	for i, body := range bodies {
		objects = append(objects, dataplane.Object{ID: dataplane.ID{Name: fmt.Sprintf("%s%d", name, i)}, Body: body})
	}
	f := dataplane.NewFragment(service.Key{Namespace: "ns", Name: name}, epoch, objects)
	f.Revision = service.Revision{Incarnation: incarnation, Sequence: sequence}
	f.Gone = len(bodies) == 0
	h.Submit(f)
}

func (h *fixture) verdictsFor(name string) (text []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, v := range h.verdicts {
		if v.Key.Name == name {
			word := "applied"
			if v.Quarantined {
				word = "quarantined"
			}
			text = append(text, word+" "+v.Revision.String())
		}
	}
	return text
}

func is(t *testing.T, what string, got, want any) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

// ready returns a fixture whose gate is open and whose first audit is done.
func ready(t *testing.T, m *model, config Config) *fixture {
	h := open(t, m, config)
	h.Prime(nil)
	synctest.Wait()
	return h
}
