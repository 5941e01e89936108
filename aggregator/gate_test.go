package aggregator

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

var gateKeys = []service.Key{{Namespace: "ns", Name: "a"}, {Namespace: "ns", Name: "b"}, {Namespace: "ns", Name: "c"}}

func TestGateOpensWhenAllHaveSubmitted(t *testing.T) {
	g := newGate(time.Second)
	if open, again := g.open(at(0)); open || !again.IsZero() {
		t.Fatal("opened, or has a time to open, before the source is primed")
	}
	g.pass(at(0), gateKeys[0]) // early
	g.prime(at(0), gateKeys)
	g.prime(at(0), append(gateKeys, service.Node)) // a second time changes nothing
	for left := 2; left > 0; left-- {
		if open, _ := g.open(at(0)); open || g.missing() != left {
			t.Fatalf("open %v with %d missing, want %d", open, g.missing(), left)
		}
		g.pass(at(0), gateKeys[left])
	}
	if open, _ := g.open(at(0)); !open || g.missing() != 0 {
		t.Errorf("open %v with %d missing", open, g.missing())
	}
	g.pass(at(1), gateKeys[0]) // open for good
	if open, _ := g.open(at(1)); !open {
		t.Error("closed again")
	}
}

// TestGateIsPatientWhileServicesSubmit: at 50,000 Services on a busy node,
// rendering takes longer than the wait.
func TestGateIsPatientWhileServicesSubmit(t *testing.T) {
	g := newGate(time.Second)
	g.prime(at(0), gateKeys)
	g.pass(at(900), gateKeys[0])
	g.pass(at(1500), gateKeys[0]) // nothing new
	if open, again := g.open(at(1800)); open || !again.Equal(at(1900)) {
		t.Errorf("open %v at 1800, to be asked again at %v; want closed until 1900", open, again)
	}
	g.pass(at(1800), gateKeys[1])
	if open, again := g.open(at(2000)); open || !again.Equal(at(2800)) {
		t.Errorf("open %v at 2000, to be asked again at %v; want closed until 2800", open, again)
	}
	if open, _ := g.open(at(2800)); !open || g.missing() != 1 {
		t.Errorf("open %v with %d missing, want open without the last", open, g.missing())
	}
}

// TestNothingIsReadBeforeThisProcessMayWrite: until then the kernel is somebody else's,
// and all the rest is done; then the first write does not wait for anything more.
func TestNothingIsReadBeforeThisProcessMayWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		may := make(chan struct{})
		h := open(t, &model{objects: map[dataplane.ID]string{{Name: "a0"}: "0"}}, Config{MayWrite: may})
		h.Prime([]service.Key{{Namespace: "ns", Name: "a"}})
		h.submit("a", 1, 1, "1")
		h.AuditSoon() // what the other one writes is announced
		time.Sleep(time.Hour)
		if writes, reads := h.counts(); writes+reads != 0 || h.Status().Open {
			t.Fatalf("%d writes, %d reads, open %v", writes, reads, h.Status().Open)
		}
		began := time.Now()
		close(may)
		synctest.Wait()
		is(t, "kernel", h.text(), "a0=1")
		is(t, "time until then", time.Since(began), time.Duration(0))
	})
}
