package aggregator

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

func scaffold() *dataplane.Fragment {
	f := dataplane.NewFragment(service.Node, time.Time{}, []dataplane.Object{{ID: dataplane.ID{Name: "base"}}})
	f.Revision = service.Revision{Incarnation: 1, Sequence: 1}
	return f
}

// While a failed write backs off, a quarantined key whose try is due waits as
// well: the loop used to ask again at once, and so kept a core busy.
func TestATrialWaitsForTheBackoffWithoutSpinning(t *testing.T) {
	a, err := New(Config{Domain: "model", Writer: &model{}})
	if err != nil {
		t.Fatal(err)
	}
	a.gate.prime(epoch, nil)
	a.adopted = true
	a.pacer.Audited(at(5000), 0, true)
	bad := service.Key{Namespace: "ns", Name: "bad"}
	a.quarantine.put(epoch, bad, service.Revision{}, "refused")
	a.quarantine.ask(bad)
	a.pacer.Wrote(at(5000), 0, false, 0)
	is(t, "next look", a.act(at(5000)), 100*ms)
}

// When what had failed is not wanted any more, nothing is left to retry: the
// failure used to be shown, and tries were put off, until some other Service
// changed.
func TestAFailureOfWhatIsNotWantedAnyMoreIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &model{}
		h := ready(t, m, Config{})
		m.next = func() dataplane.Outcome { return dataplane.Busy }
		h.submit("a", 1, 1, "1")
		synctest.Wait()
		h.submit("a", 1, 2)
		time.Sleep(time.Minute)
		is(t, "writes", h.written(), 1)
		is(t, "verdicts", h.verdictsFor("a"), []string{"applied 1.2"})
		if s := h.Status(); s.Failures != 0 || s.LastError != "" {
			t.Errorf("status %+v", s)
		}
	})
}

// A writer may report a refusal after everything has landed. Who was tried then
// used to be quarantined all the same; a Service that was gone stayed in quarantine
// for ever, and its tries kept a core busy.
func TestARefusalThatHasLandedQuarantinesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &model{}
		h := ready(t, m, Config{})
		h.submit("a", 1, 1, "good")
		synctest.Wait()
		h.submit("a", 1, 2, "poison")
		synctest.Wait()
		is(t, "verdicts", h.verdictsFor("a"), []string{"applied 1.1", "quarantined 1.2"})
		m.mu.Lock()
		m.next = func() dataplane.Outcome {
			clear(m.objects)
			return dataplane.Rejected
		}
		m.mu.Unlock()
		h.submit("a", 1, 3)
		time.Sleep(time.Minute)
		is(t, "verdicts", h.verdictsFor("a"), []string{"applied 1.1", "quarantined 1.2", "applied 1.3"})
		if s := h.Status(); len(s.Quarantined) != 0 || s.Failures != 0 || s.Ledger.Keys != 0 {
			t.Errorf("status %+v", s)
		}
	})
}

// Rules may lead to a chain that somebody has removed: then every plan is
// refused, the scaffold's too, until the kernel is read.
func TestANodeAtFaultIsReadBeforeTheNextTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &model{}
		h := ready(t, m, Config{Pace: Pace{Audit: time.Hour}})
		_, before := m.counts()
		m.mu.Lock()
		m.refuse = func(*dataplane.Batch) bool { return m.reads == before }
		m.mu.Unlock()
		h.Submit(scaffold())
		h.submit("a", 1, 1, "1")
		time.Sleep(time.Second)
		is(t, "kernel", h.text(), "a0=1 base=")
		if s := h.Status(); s.NodeAtFault || s.Failures != 0 {
			t.Errorf("status %+v", s)
		}
	})
}

// A kernel, or a tool, that begins to refuse everything refuses the scaffold as
// well, which is in place all the while. That used to count as landed: the first
// Service that changed was quarantined, and the node stayed healthy.
func TestANodeThatBeginsToRefuseEverythingQuarantinesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &model{}
		h := ready(t, m, Config{})
		h.Submit(scaffold())
		h.submit("a", 1, 1, "1")
		time.Sleep(time.Minute)
		is(t, "kernel", h.text(), "a0=1 base=")
		m.mu.Lock()
		m.refuse = func(*dataplane.Batch) bool { return true }
		m.mu.Unlock()
		h.submit("a", 1, 2, "2")
		time.Sleep(time.Minute)
		if s := h.Status(); !s.NodeAtFault || s.Failures == 0 || len(s.Quarantined) != 0 {
			t.Errorf("status %+v", s)
		}
		m.mu.Lock()
		m.refuse = nil
		m.mu.Unlock()
		time.Sleep(time.Minute)
		is(t, "kernel", h.text(), "a0=2 base=")
		is(t, "verdicts", h.verdictsFor("a"), []string{"applied 1.1", "applied 1.2"})
		if s := h.Status(); s.NodeAtFault || s.Failures != 0 {
			t.Errorf("status %+v", s)
		}
	})
}

// The pause between the tries of a node that refuses everything grows: it used
// to stay at its minimum, since each search began with a clean slate.
func TestANodeAtFaultIsTriedLessAndLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &model{refuse: func(*dataplane.Batch) bool { return true }}
		h := ready(t, m, Config{})
		h.submit("a", 1, 1, "1")
		h.Submit(scaffold())
		time.Sleep(10 * time.Minute)
		if got := h.written(); got > 100 {
			t.Errorf("%d writes to a node that refused all of them for ten minutes", got)
		}
	})
}

// A Service that is refused because a neighbour's chain was removed is innocent:
// it is not to wait for the next regular audit.
func TestAVictimOfDriftIsFreedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &model{}
		h := ready(t, m, Config{Pace: Pace{Audit: time.Hour}})
		_, before := m.counts()
		m.mu.Lock()
		m.refuse = func(b *dataplane.Batch) bool { return m.reads == before && b.Changes[0].ID.Name == "a0" }
		m.mu.Unlock()
		h.submit("a", 1, 1, "1")
		time.Sleep(3 * time.Second)
		is(t, "verdicts", h.verdictsFor("a"), []string{"quarantined 1.1", "applied 1.1"})
		_, reads := m.counts()
		is(t, "audits", reads-before, 1)
	})
}
