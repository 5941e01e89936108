package aggregator

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

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

func TestTheGateOpensAfterItsWaitOrWhenTheMissingAreSkipped(t *testing.T) {
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

func TestStatusTellsWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &model{took: time.Minute}
		h := open(t, m, Config{})
		h.Prime(nil)
		synctest.Wait()
		if s := h.Status(); s.Waiting != 0 || !s.Submitted.IsZero() {
			t.Errorf("before anything is submitted: %d wait, the newest since %v", s.Waiting, s.Submitted)
		}
		h.submit("a", 1, 1, "x")
		time.Sleep(time.Second) // a is being written now
		h.submit("b", 1, 1, "x")
		time.Sleep(time.Second)
		h.submit("b", 1, 2, "y") // takes the seat of the one before
		now := time.Now()
		synctest.Wait()
		if s := h.Status(); s.Waiting != 1 || !s.Submitted.Equal(now) {
			t.Errorf("%d wait, the newest since %v; want 1 since %v", s.Waiting, s.Submitted, now)
		}
		time.Sleep(5 * time.Minute)
		if s := h.Status(); s.Waiting != 0 || !s.OldestPending.IsZero() || !s.Submitted.Equal(now) {
			t.Errorf("all written: %d wait, pending since %v, the newest submitted at %v", s.Waiting, s.OldestPending, s.Submitted)
		}
	})
}
