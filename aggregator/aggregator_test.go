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

// poisoned gives the owners of what a batch has that is refused for itself.
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

type hall struct {
	*Aggregator
	*model
	mu       sync.Mutex // guards what the listeners collect
	verdicts []dataplane.Verdict
	events   []Event
}

func open(t *testing.T, m *model, config Config) *hall {
	t.Helper()
	return openWriter(t, m, m, config)
}

// openWriter opens a hall whose writer is another face of the model.
func openWriter(t *testing.T, m *model, w dataplane.Writer, config Config) *hall {
	t.Helper()
	if m.objects == nil {
		m.objects = map[dataplane.ID]string{}
	}
	h := &hall{model: m}
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

func (h *hall) submit(name string, incarnation, sequence uint64, bodies ...string) {
	var objects []dataplane.Object
	for i, body := range bodies {
		objects = append(objects, dataplane.Object{ID: dataplane.ID{Name: fmt.Sprintf("%s%d", name, i)}, Body: body})
	}
	f := dataplane.NewFragment(service.Key{Namespace: "ns", Name: name}, epoch, objects)
	f.Revision = service.Revision{Incarnation: incarnation, Sequence: sequence}
	f.Gone = len(bodies) == 0
	h.Submit(f)
}

func (h *hall) verdictsFor(name string) (text []string) {
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

func TestNothingIsWrittenBeforeEveryNamedKeyHasSubmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &model{objects: map[dataplane.ID]string{{Name: "a0"}: "1", {Name: "b0"}: "1", {Name: "left-over"}: "1"}}
		h := open(t, m, Config{GateWait: time.Minute})
		h.submit("a", 1, 1, "1")
		time.Sleep(time.Hour) // the source takes its time; the kernel stays as it is
		is(t, "kernel", h.text(), "a0=1 b0=1 left-over=1")
		h.Prime([]service.Key{{Namespace: "ns", Name: "a"}, {Namespace: "ns", Name: "b"}})
		time.Sleep(time.Second)
		is(t, "writes", h.written(), 0)
		h.submit("b", 1, 1, "1")
		synctest.Wait()
		is(t, "kernel", h.text(), "a0=1 b0=1") // adopted what was right, swept the rest
		is(t, "writes", h.written(), 1)
		is(t, "verdicts", h.verdictsFor("b"), []string{"applied 1.1"})
	})
}

func TestTheGateOpensAfterItsWaitOrWhenTheMissingAreExcused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		missing := service.Key{Namespace: "ns", Name: "missing"}
		h := open(t, &model{}, Config{GateWait: time.Minute})
		h.Prime([]service.Key{missing})
		h.submit("a", 1, 1, "1")
		time.Sleep(59 * time.Second)
		is(t, "kernel", h.text(), "")
		time.Sleep(2 * time.Second)
		is(t, "kernel", h.text(), "a0=1")

		h = open(t, &model{}, Config{GateWait: time.Minute})
		h.Prime([]service.Key{missing})
		h.submit("a", 1, 1, "1")
		h.Skip(missing)
		synctest.Wait()
		is(t, "kernel", h.text(), "a0=1")
	})
}

// ready gives a hall whose gate is open and whose first audit is done.
func ready(t *testing.T, m *model, config Config) *hall {
	h := open(t, m, config)
	h.Prime(nil)
	synctest.Wait()
	return h
}

func TestFragmentsCoalesceWhileABatchIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := ready(t, &model{took: 100 * ms}, Config{})
		h.submit("a", 1, 1, "1")
		time.Sleep(10 * ms)
		for i := range 50 {
			h.submit("a", 1, uint64(i+2), fmt.Sprint(i))
			h.submit("b", 1, uint64(i+1), fmt.Sprint(i))
		}
		time.Sleep(time.Second)
		is(t, "writes", h.written(), 2)
		is(t, "kernel", h.text(), "a0=49 b0=49")
		is(t, "verdicts", h.verdictsFor("a"), []string{"applied 1.1", "applied 1.51"})
	})
}

func TestABusyKernelIsTriedAgainAndNothingIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &model{}
		failures := 3
		m.next = func() dataplane.Outcome {
			if failures--; failures >= 0 {
				return dataplane.Busy
			}
			return dataplane.Landed
		}
		h := ready(t, m, Config{})
		h.submit("a", 1, 1, "1")
		synctest.Wait()
		if s := h.Status(); s.Failures != 1 || s.OldestPending.IsZero() || s.LastError == "" {
			t.Fatalf("status %+v", s)
		}
		time.Sleep(10 * time.Second)
		is(t, "kernel", h.text(), "a0=1")
		is(t, "verdicts", h.verdictsFor("a"), []string{"applied 1.1"})
		if s := h.Status(); s.Failures != 0 || !s.OldestPending.IsZero() || s.LastError != "" {
			t.Fatalf("status %+v", s)
		}
	})
}

func TestAnUnknownOutcomeLeadsToAnAuditAndAnotherTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &model{}
		h := ready(t, m, Config{})
		_, reads := m.counts()
		outcomes := []dataplane.Outcome{dataplane.Unknown, dataplane.Landed}
		m.next = func() dataplane.Outcome { o := outcomes[0]; outcomes = outcomes[1:]; return o }
		h.submit("a", 1, 1, "1")
		time.Sleep(time.Second)
		is(t, "kernel", h.text(), "a0=1")
		_, now := m.counts()
		is(t, "reads", now, reads+1)
	})
}

func TestOnePoisonedServiceIsQuarantinedAndItsNeighboursAreServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := ready(t, &model{}, Config{})
		h.submit("bad", 1, 1, "good at first")
		synctest.Wait()
		h.submit("bad", 1, 2, "poison")
		for i := range 30 {
			h.submit(fmt.Sprintf("n%02d-", i), 1, 1, "1")
		}
		time.Sleep(100 * ms)
		is(t, "verdicts of the bad one", h.verdictsFor("bad"), []string{"applied 1.1", "quarantined 1.2"})
		is(t, "verdicts of a neighbour", h.verdictsFor("n07-"), []string{"applied 1.1"})
		if !strings.Contains(h.text(), "bad0=good at first") || strings.Count(h.text(), "n") != 30 {
			t.Fatalf("kernel: %s", h.text())
		}
		if s := h.Status(); len(s.Quarantined) != 1 || s.Quarantined[0].Reason != "Invalid argument" || s.NodeAtFault {
			t.Fatalf("status %+v", s)
		}
		// It keeps changing and stays bad: at most a try per second, and its
		// neighbours never wait for it.
		before := h.written()
		for i := range 100 {
			h.submit("bad", 1, uint64(3+i), "poison", fmt.Sprint(i))
			time.Sleep(100 * ms)
		}
		if tries := h.written() - before; tries > 12 {
			t.Fatalf("%d writes for a quarantined Service in ten seconds", tries)
		}
		// It mends its ways.
		h.submit("bad", 1, 200, "better")
		time.Sleep(3 * time.Second)
		if !strings.Contains(h.text(), "bad0=better") || len(h.Status().Quarantined) != 0 {
			t.Fatalf("kernel: %s; status %+v", h.text(), h.Status())
		}
	})
}

func TestQuarantineIsTriedAgainAfterAudits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &model{}
		h := ready(t, m, Config{})
		h.submit("bad", 1, 1, "poison")
		synctest.Wait()
		is(t, "kernel", h.text(), "")
		m.mu.Lock()
		m.refuse = func(*dataplane.Batch) bool { return false } // the module was loaded, say
		m.mu.Unlock()
		time.Sleep(time.Minute)
		is(t, "kernel", h.text(), "bad0=poison")
		is(t, "verdicts", h.verdictsFor("bad"), []string{"quarantined 1.1", "applied 1.1"})
	})
}

func TestARefusedScaffoldIsTheNodesFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &model{refuse: func(*dataplane.Batch) bool { return true }}
		h := ready(t, m, Config{})
		scaffold := dataplane.NewFragment(service.Node, time.Time{}, []dataplane.Object{{ID: dataplane.ID{Name: "base"}}})
		scaffold.Revision = service.Revision{Incarnation: 1, Sequence: 1}
		h.Submit(scaffold)
		h.submit("a", 1, 1, "1")
		time.Sleep(time.Second)
		if s := h.Status(); !s.NodeAtFault || len(s.Quarantined) != 0 {
			t.Fatalf("status %+v", s)
		}
		m.mu.Lock()
		m.refuse = nil
		m.mu.Unlock()
		time.Sleep(time.Minute)
		is(t, "kernel", h.text(), "a0=1 base=")
		if s := h.Status(); s.NodeAtFault || s.Failures != 0 {
			t.Fatalf("status %+v", s)
		}
	})
}

func TestDriftIsRepairedByTheAudit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &model{}
		h := ready(t, m, Config{})
		h.submit("a", 1, 1, "1", "2")
		synctest.Wait()
		want := h.text()
		meddle := func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			delete(m.objects, dataplane.ID{Name: "a0"})
			m.objects[dataplane.ID{Name: "a1"}] = "scribbled on"
			m.objects[dataplane.ID{Name: "stray"}] = ""
		}
		meddle()
		time.Sleep(31 * time.Second)
		is(t, "after the audit", h.text(), want)
		meddle()
		h.AuditSoon(dataplane.Stranger{})
		synctest.Wait()
		is(t, "after a notification", h.text(), want)
	})
}

func TestLateFragmentsOfAFormerIncarnationAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := ready(t, &model{}, Config{})
		h.submit("a", 7, 1, "new")
		synctest.Wait()
		h.submit("a", 3, 99, "late")
		synctest.Wait()
		is(t, "kernel", h.text(), "a0=new")
		late := 0
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, e := range h.events {
			if _, ok := e.(LateRefused); ok {
				late++
			}
		}
		is(t, "late fragments seen", late, 1)
	})
}

func TestAnEqualFragmentIsSettledWithoutAWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := ready(t, &model{}, Config{})
		h.submit("a", 1, 1, "1")
		synctest.Wait()
		writes := h.written()
		h.submit("a", 2, 1, "1") // a restarted actor repeats itself
		synctest.Wait()
		is(t, "writes", h.written(), writes)
		is(t, "verdicts", h.verdictsFor("a"), []string{"applied 1.1", "applied 2.1"})
	})
}

func TestTombstonesLeaveNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := ready(t, &model{}, Config{})
		h.submit("a", 1, 1, "1", "2")
		synctest.Wait()
		h.submit("a", 1, 2)
		synctest.Wait()
		is(t, "kernel", h.text(), "")
		is(t, "keys", h.Status().Ledger.Keys, 0)
		is(t, "objects", h.Status().Ledger.Objects, 0)
	})
}
