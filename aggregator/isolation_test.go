package aggregator

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// guard checks the invariant after every write of a model: what served a neighbour
// right before it serves it after, unless the API asked for something else, and the
// tests that use it never do.
type guard struct {
	t      *testing.T
	before map[dataplane.ID]string
	// spared are objects that the API has asked to change or to remove.
	spared func(dataplane.ID) bool
	writes int
}

// watch lets the guard look at every write of a model.
func watch(t *testing.T, m *model, spared func(dataplane.ID) bool) *guard {
	g := &guard{t: t, spared: spared, before: map[dataplane.ID]string{}}
	for id, body := range m.objects {
		g.before[id] = body
	}
	m.after = g.look
	return g
}

func (g *guard) look(objects map[dataplane.ID]string) {
	g.writes++
	lost := 0
	for id := range g.before {
		if _, there := objects[id]; !there && !g.spared(id) {
			lost++
		}
	}
	if lost > 0 {
		g.t.Errorf("write %d took away %d of %d objects that nobody asked to remove", g.writes, lost, len(g.before))
	}
	clear(g.before)
	for id, body := range objects {
		g.before[id] = body
	}
}

func nothing(dataplane.ID) bool { return false }

// served is a kernel in which a former process has left one object for each Service.
func served(count int) map[dataplane.ID]string {
	objects := map[dataplane.ID]string{{Name: "base"}: ""}
	for i := range count {
		objects[dataplane.ID{Name: fmt.Sprintf("n%04d-0", i)}] = "1"
	}
	return objects
}

// restart starts a process over what is in the kernel. Every Service submits what is
// there, but for the bad one.
func restart(t *testing.T, m *model, count int, bad ...string) *fixture {
	h := open(t, m, Config{})
	h.Submit(scaffold())
	for i := range count {
		h.submit(fmt.Sprintf("n%04d-", i), 1, 1, "1")
	}
	h.submit("bad", 1, 1, bad...)
	h.Prime(nil)
	return h
}

// Users saw a node lose every Service for 18 s at a restart beside one Service in
// quarantine: nothing was known as applied then, so that the search took out all.
func TestARestartBesideARefusedServiceTakesNothingAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const count = 1000
		m := &model{objects: served(count), took: time.Second}
		m.objects[dataplane.ID{Name: "bad0"}] = "good, by the former process"
		watch(t, m, nothing)
		h := restart(t, m, count, "poison", "more of it")
		synctest.Wait()
		// The neighbours have their verdicts after the first audit, before any write.
		is(t, "verdicts of a neighbour", h.verdictsFor("n0007-"), []string{"applied 1.1"})
		is(t, "writes until then", h.written(), 0)
		time.Sleep(time.Minute)
		is(t, "first verdict of the bad one", h.verdictsFor("bad")[0], "quarantined 1.1")
		if got := m.objects[dataplane.ID{Name: "bad0"}]; got != "good, by the former process" {
			t.Errorf("the refused Service's object of the former process is %q", got)
		}
		// What was in the kernel stays for as long as the quarantine lasts, and goes with it.
		time.Sleep(time.Hour)
		h.submit("bad", 1, 2, "mended")
		time.Sleep(time.Minute)
		if text := h.text(); !strings.Contains(text, "bad0=mended") || len(m.objects) != count+2 {
			t.Errorf("%d objects, bad0 mended %t", len(m.objects), strings.Contains(text, "bad0=mended"))
		}
	})
}

// namingModel says whose an object is: names have a digit at the end.
type namingModel struct{ *model }

func (namingModel) Owner(o *dataplane.Object) (service.Key, bool) {
	return service.Key{Namespace: "ns", Name: strings.TrimRight(o.ID.Name, "0123456789")}, o.ID.Name != "base"
}
func (namingModel) Refs(o *dataplane.Object) []dataplane.ID { return o.Refs() }

// A Service whose actor is stuck when the process starts keeps what it has, until it
// speaks. It used to be swept with the first write.
func TestAServiceThatHasNotSubmittedKeepsWhatItHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := service.Key{Namespace: "ns", Name: "late"}
		m := &model{objects: map[dataplane.ID]string{
			{Name: "base"}: "", {Name: "late0"}: "1", {Name: "late1"}: "1", {Name: "gone0"}: "1"}}
		g := watch(t, m, func(id dataplane.ID) bool { return id.Name == "gone0" })
		h := openWriter(t, m, namingModel{m}, Config{GateWait: time.Minute})
		h.Submit(scaffold())
		h.Prime([]service.Key{service.Node, late})
		h.Skip(late)
		synctest.Wait()
		is(t, "kernel", h.text(), "base= late0=1 late1=1")
		g.spared = func(id dataplane.ID) bool { return strings.HasPrefix(id.Name, "late") }
		h.submit("late", 1, 1, "2")
		synctest.Wait()
		is(t, "kernel", h.text(), "base= late0=2")
		h.submit("late", 1, 2)
		synctest.Wait()
		is(t, "kernel", h.text(), "base=")
	})
}

// More Services than there is room for used to make the first write wait for the
// whole of the gate's patience.
func TestSkippedKeysKeepNobodyWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, &model{}, Config{GateWait: time.Hour})
		h.Skip(service.Key{Namespace: "ns", Name: "no room"}) // before the source is primed, even
		h.Prime([]service.Key{{Namespace: "ns", Name: "no room"}, {Namespace: "ns", Name: "a"}})
		h.submit("a", 1, 1, "1")
		synctest.Wait()
		is(t, "kernel", h.text(), "a0=1")
	})
}

// Status used to say that nothing was pending while a search held everything back.
func TestWhoIsHeldBackCountsAsPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &model{took: time.Second}
		h := ready(t, m, Config{})
		h.Submit(scaffold())
		time.Sleep(time.Minute)
		began := time.Now()
		h.submit("bad", 1, 1, "poison")
		for i := range 100 {
			h.submit(fmt.Sprintf("n%02d-", i), 1, 1, "1")
		}
		for {
			time.Sleep(time.Second)
			synctest.Wait()
			s := h.Status()
			if strings.Count(h.text(), "n") == 100 && len(s.Quarantined) == 1 {
				break
			}
			if !s.OldestPending.Equal(began) {
				t.Fatalf("%v after they were submitted, %d of 100 are in the kernel, %d quarantined, and the oldest waits since %v",
					time.Since(began), strings.Count(h.text(), "n"), len(s.Quarantined), s.OldestPending)
			}
		}
		// A quarantined key is a finding of its own.
		if s := h.Status(); !s.OldestPending.IsZero() {
			t.Errorf("all are in force but the quarantined, and the oldest waits since %v", s.OldestPending)
		}
	})
}

// What a stranger has removed is missing until it is written again.
func TestWhatAnAuditMissesCountsAsPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &model{}
		h := ready(t, m, Config{})
		h.submit("a", 1, 1, "1")
		time.Sleep(time.Second)
		m.mu.Lock()
		delete(m.objects, dataplane.ID{Name: "a0"})
		m.next = func() dataplane.Outcome { return dataplane.Busy }
		m.mu.Unlock()
		h.AuditSoon(dataplane.Stranger{})
		synctest.Wait()
		if h.Status().OldestPending.IsZero() {
			t.Error("nothing is said to be pending while an object is missing")
		}
		m.mu.Lock()
		m.next = nil
		m.mu.Unlock()
		time.Sleep(time.Minute)
		is(t, "kernel", h.text(), "a0=1")
		if !h.Status().OldestPending.IsZero() {
			t.Error("something is said to be pending while all is in force")
		}
	})
}

// A repair that the kernel refuses is its Service's trouble alone. It used to be taken
// for the node's, and kept everybody's changes from the kernel.
func TestARefusedRepairHoldsUpNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &model{}
		h := ready(t, m, Config{})
		h.Submit(scaffold())
		h.submit("a", 1, 1, "1", "2")
		h.submit("b", 1, 1, "1")
		time.Sleep(time.Second)
		m.mu.Lock()
		delete(m.objects, dataplane.ID{Name: "a0"})
		m.refuse = func(b *dataplane.Batch) bool { // the module is gone that a0 needs
			return slices.ContainsFunc(b.Changes, func(c dataplane.Change) bool { return c.ID.Name == "a0" && c.After != nil })
		}
		m.mu.Unlock()
		h.AuditSoon(dataplane.Stranger{})
		time.Sleep(time.Second)
		h.submit("b", 1, 2, "2")
		time.Sleep(5 * time.Second)
		is(t, "kernel", h.text(), "a1=2 b0=2 base=")
		if s := h.Status(); s.NodeAtFault || len(s.Quarantined) != 1 || s.Quarantined[0].Key.String() != "ns/a" {
			t.Errorf("status %+v", s)
		}
		m.mu.Lock()
		m.refuse = nil
		m.mu.Unlock()
		time.Sleep(time.Minute)
		is(t, "kernel", h.text(), "a0=1 a1=2 b0=2 base=")
		is(t, "quarantined", len(h.Status().Quarantined), 0)
	})
}

// Where a kernel takes object by object, neighbours used to wait for their verdicts
// until nothing at all was missing.
func TestNeighboursHaveTheirVerdictsWhileOneIsSearchedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &model{took: time.Second, receipts: byObject}
		h := ready(t, m, Config{})
		h.submit("first", 1, 1, "1")
		time.Sleep(100 * ms) // the others share the next batch
		h.submit("bad", 1, 1, "poison")
		h.submit("a", 1, 1, "1")
		time.Sleep(2 * time.Second)
		is(t, "verdicts after one write", h.verdictsFor("a"), []string{"applied 1.1"})
		is(t, "verdicts of the bad one", h.verdictsFor("bad"), []string(nil))
	})
}

// Others change while a search goes on, and do not wait for its end.
func TestASearchInterleavesWithTheChangesOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &model{took: 100 * ms}
		h := ready(t, m, Config{})
		h.Submit(scaffold())
		h.submit("busy", 1, 1, "0")
		time.Sleep(time.Second)
		for i := range 300 {
			h.submit(fmt.Sprintf("n%03d-", i), 1, 1, []string{"1", "poison"}[i%2])
		}
		time.Sleep(time.Second) // now the search is under way
		worst := time.Duration(0)
		for i := range 100 {
			h.submit("busy", 1, uint64(i+2), fmt.Sprint(i+1))
			began := time.Now()
			for !strings.Contains(h.text(), fmt.Sprintf("busy0=%d ", i+1)) {
				time.Sleep(10 * ms)
			}
			worst = max(worst, time.Since(began))
		}
		if worst > 450*ms { // its own write, the one in flight, and at the beginning the control
			t.Errorf("a neighbour's change took %v beside a search, with writes of 100 ms", worst)
		}
		if s := h.Status(); len(s.Quarantined) == 0 || len(s.Quarantined) == 150 {
			t.Errorf("%d quarantined: the search was not under way", len(s.Quarantined))
		}
	})
}

// The price of a search: Services of which some are refused, for the receipts of each
// kind of writer. No innocent Service is quarantined, and the refused writes are bounded by
// the logarithm of a group for each culprit.
func TestTheSearchAmongTenThousandServices(t *testing.T) {
	const count = 10_000
	t.Logf("%-28s %6s | %7s %7s | %22s", "receipts", "bad", "refused", "writes", "all innocent in force")
	for _, kind := range []struct {
		name string
		receipts
		perCulprit int
	}{
		{"whole batch, no blame", whole, bits.Len(groupMax) + 1},
		{"whole batch, all blamed", wholeBlamed, 2},
		{"whole batch, one blamed", wholeOneBlamed, bits.Len(groupMax) + 1},
		{"by object, proven", byObject, 1},
	} {
		for _, bad := range []int{0, 1, 3, 5, 100, 1000} {
			synctest.Test(t, func(t *testing.T) {
				m := &model{receipts: kind.receipts, took: 10 * ms}
				h := ready(t, m, Config{})
				h.Submit(scaffold())
				time.Sleep(time.Second)
				innocentAt := 0
				m.mu.Lock()
				before, refused := m.writes, m.refused
				m.after = func(objects map[dataplane.ID]string) {
					if innocentAt == 0 && len(objects) == 1+count-bad {
						innocentAt = m.writes
					}
				}
				m.mu.Unlock()
				for i := range count {
					body := "1"
					if i%(count/max(bad, 1)) == 7 && bad > 0 {
						body = "poison"
					}
					h.submit(fmt.Sprintf("n%04d-", i), 1, 1, body)
				}
				for range 10_000 {
					time.Sleep(time.Second)
					if s := h.Status(); s.OldestPending.IsZero() && s.Ledger.Pending == 0 {
						break
					}
				}
				m.mu.Lock()
				defer m.mu.Unlock()
				writes := m.writes - before
				refused = m.refused - refused
				t.Logf("%-28s %6d | %7d %7d | after %d writes", kind.name, bad, refused, writes, innocentAt-before)
				s := h.Status()
				is(t, "quarantined", len(s.Quarantined), bad)
				for _, q := range s.Quarantined {
					name := strings.TrimPrefix(q.Key.String(), "ns/") + "0"
					if _, there := m.objects[dataplane.ID{Name: name}]; there {
						t.Errorf("%s is innocent", q.Key)
					}
				}
				is(t, "objects", len(m.objects), 1+count-bad)
				// Besides the search, four are tried again after the audit that follows it.
				if most := bad*kind.perCulprit + 8; refused > most {
					t.Errorf("%d refused writes for %d culprits, want at most %d", refused, bad, most)
				}
			})
		}
	}
}
