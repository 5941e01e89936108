package sim

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// An actor gets stuck while it renders. Its successor serves what has changed
// since; when the stuck one comes back, nobody listens to what it has to say.
func TestTheOutputOfAStuckActorComesTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, err := newWorld(1, nil)
		if err != nil {
			t.Fatal(err)
		}
		var hang atomic.Bool
		release := make(chan struct{})
		w.before = func(view *service.View) {
			if view.Key == keyOf(3) && hang.Swap(false) {
				<-release
			}
		}
		happen := func(events ...event) {
			t.Helper()
			for _, e := range events {
				if err := w.happen(e); err != nil {
					t.Fatalf("%v: %v", e, err)
				}
			}
		}
		happen(event{setService, 3, 0, 1}, event{setSlice, 3, 0, 1}, event{setService, 4, 0, 1}, event{quiet, 0, 0, 0})
		hang.Store(true)
		happen(event{setService, 3, 0, 2})
		synctest.Wait()
		if hang.Load() {
			t.Fatal("nobody got stuck")
		}
		w.strike(3) // nobody knows yet what the Service wants
		// A neighbour is served meanwhile, and so is the Service itself once its
		// actor has been given up.
		happen(event{setService, 4, 0, 2}, event{setService, 3, 0, 3}, event{quiet, 0, 0, 0})
		before, seen := w.efforts(), w.witness.tally()
		if got := seen["supervisor.Stuck"]; got != 1 {
			t.Errorf("%d actors were given up, want 1", got)
		}
		close(release)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		now := w.witness.tally()
		if got := now["supervisor.Returned"]; got != 1 {
			t.Errorf("%d given up actors came back, want 1", got)
		}
		const verdict = "aggregator.Applied"
		if w.efforts() != before || now[verdict] != seen[verdict] {
			t.Errorf("what came late was heard: %d writes, %d verdicts", w.efforts()-before, now[verdict]-seen[verdict])
		}
		if err := w.settle(); err != nil {
			t.Error(err)
		}
		if err := w.close(); err != nil {
			t.Error(err)
		}
	})
}
