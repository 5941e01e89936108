// SPDX-License-Identifier: Apache-2.0

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

// model is a kernel of plain objects. Its writer rejects bodies that contain "poison", and other
// outcomes can be set.
type model struct {
	mu      sync.Mutex
	objects map[dataplane.ID]string
	writes  int
	reads   int
	// unread is how many of the next reads fail.
	unread int
	took   time.Duration
	// fail has the outcomes of the next writes.
	fail []failure
	// rejects, when set, replaces the test for poison; until the next read if untilRead is set.
	rejects   func(*dataplane.Change) bool
	untilRead bool
	// receipts says how a rejection is told; rejected counts them.
	receipts receipts
	rejected int
	// after, when set, looks at the objects after each write.
	after func(map[dataplane.ID]string)
}

// failure is an outcome other than landed. Everything may have landed all the same.
type failure struct {
	outcome dataplane.Outcome
	lands   bool
}

// receipts are those of a kind of writer.
type receipts int

const (
	// whole batches land or not, and no Service is named.
	whole receipts = iota
	// wholeAllNamed and wholeFirstNamed name all culprits, or the first.
	wholeAllNamed
	wholeFirstNamed
	// byObject takes object by object, and proves which Services were rejected.
	byObject
)

// rejectsChange reports whether a change is rejected for itself.
func (m *model) rejectsChange(c *dataplane.Change) bool {
	if m.rejects != nil {
		return m.rejects(c)
	}
	return c.After != nil && strings.Contains(c.After.Body, "poison")
}

// culprits returns the owners of what a batch has that is rejected for itself.
func (m *model) culprits(b *dataplane.Batch) (keys []service.Key) {
	for i := range b.Changes {
		if m.rejectsChange(&b.Changes[i]) && !slices.Contains(keys, b.Changes[i].Owner) {
			keys = append(keys, b.Changes[i].Owner)
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
	all := func(*dataplane.Change) bool { return true }
	if len(m.fail) > 0 {
		next := m.fail[0]
		m.fail = m.fail[1:]
		if next.lands {
			m.land(b, all)
		}
		return m.failed(b, next.outcome, next.outcome.String())
	}
	culprits := m.culprits(b)
	if len(culprits) == 0 {
		m.land(b, all)
		return dataplane.Receipt{Written: dataplane.Written{Objects: len(b.Changes)}}
	}
	m.rejected++
	if m.receipts == byObject {
		m.land(b, func(c *dataplane.Change) bool { return !m.rejectsChange(c) })
	}
	r := m.failed(b, dataplane.Rejected, "Invalid argument")
	switch m.receipts {
	case wholeAllNamed:
		r.Suspects = culprits
	case wholeFirstNamed:
		r.Suspects = culprits[:1]
	case byObject:
		r.Suspects, r.Proven = culprits, true
	}
	return r
}

// land carries out some changes of a batch.
func (m *model) land(b *dataplane.Batch, which func(*dataplane.Change) bool) {
	for i := range b.Changes {
		switch c := &b.Changes[i]; {
		case !which(c):
		case c.After == nil:
			delete(m.objects, c.ID)
		default:
			m.objects[c.ID] = c.After.Body
		}
	}
}

// failed returns the receipt of a write that did not land, with what is certain.
func (m *model) failed(b *dataplane.Batch, outcome dataplane.Outcome, words string) dataplane.Receipt {
	r := dataplane.Receipt{Outcome: outcome, Err: errors.New(words)}
	if outcome == dataplane.Unknown {
		return r
	}
	r.Certain = map[dataplane.ID]*dataplane.Object{}
	for _, c := range b.Changes {
		r.Certain[c.ID] = nil
		if body, ok := m.objects[c.ID]; ok {
			r.Certain[c.ID] = &dataplane.Object{ID: c.ID, Body: body}
		}
	}
	return r
}

func (m *model) Read(context.Context) ([]dataplane.Object, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads++
	if m.untilRead {
		m.rejects, m.untilRead = nil, false
	}
	if m.unread > 0 {
		m.unread--
		return nil, errors.New("interrupted")
	}
	var objects []dataplane.Object
	for id, body := range m.objects {
		objects = append(objects, dataplane.Object{ID: id, Body: body})
	}
	return objects, nil
}

func (m *model) written() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.writes
}

func (m *model) text() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var lines []string
	for id, body := range m.objects {
		if body != "" {
			body = "=" + body
		}
		lines = append(lines, id.Name+body)
	}
	slices.Sort(lines)
	return strings.Join(lines, " ")
}

type fixture struct {
	*Aggregator
	*model
	stop  func()
	clock func() time.Time
	mu    sync.Mutex // guards the lines
	lines []line
}

func open(t *testing.T, m *model, config Config) *fixture {
	t.Helper()
	return openWriter(t, m, contract(m), config)
}

// contract returns a writer with the functions that all writers of these tests have.
func contract(w interface {
	Write(context.Context, *dataplane.Batch) dataplane.Receipt
	Read(context.Context) ([]dataplane.Object, error)
}) dataplane.Writer {
	return dataplane.Writer{Write: w.Write, Read: w.Read}
}

// openWriter opens a fixture whose writer is another face of the model.
func openWriter(t *testing.T, m *model, w dataplane.Writer, config Config) *fixture {
	t.Helper()
	if m.objects == nil {
		m.objects = map[dataplane.ID]string{}
	}
	h := &fixture{model: m, clock: time.Now}
	config.Domain, config.Writer = "model", w
	config.Acks, config.Listen = h.ack, h.event
	a, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	a.machine.jitter = func() float64 { return 0 }
	h.Aggregator = a
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); a.Run(ctx) }()
	h.stop = func() { cancel(); <-done }
	t.Cleanup(h.stop)
	return h
}

func (h *fixture) submit(name string, incarnation, sequence uint64, bodies ...string) {
	f := fragment(name, bodies)
	f.Revision = service.Revision{Incarnation: incarnation, Sequence: sequence}
	h.Submit(f)
}

func scaffold() *dataplane.Fragment {
	f := fragment("node", []string{"base"})
	f.Revision = service.Revision{Incarnation: 1, Sequence: 1}
	return f
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
