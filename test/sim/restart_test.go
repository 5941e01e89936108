// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// TestRestart_WritesOnlyChanges: a new process writes only what changed since the last one, and otherwise nothing.
func TestRestart_WritesOnlyChanges(t *testing.T) {
	settledWorld(t, func(w *world) {
		before := w.commits()
		restarted := func() error {
			if err := w.happen(event{do: restart}); err != nil {
				return err
			}
			return w.settle()
		}
		if err := restarted(); err != nil {
			t.Fatal(err)
		}
		if got := w.commits() - before; got != 0 {
			t.Errorf("%d transactions were sent although nothing has changed", got)
		}
		for n := range w.cluster.specs {
			w.feed.stall(ofSpecs, time.Hour, true) // the source never learns of it
			w.say(newsOf(event{do: removeService, n: n}, &w.cluster.picture))
			break
		}
		if err := restarted(); err != nil {
			t.Error(fmt.Errorf("after a Service has gone unseen: %w", err))
		}
		if w.commits() == before {
			t.Error("a Service has gone unseen, and nothing was written")
		}
	})
}

// TestRestart_StuckActorOutputTooLate: if an actor is stuck while it renders, its successor serves later changes, and
// the late output of the stuck actor is ignored.
func TestRestart_StuckActorOutputTooLate(t *testing.T) {
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
		happen(event{setService, 3, 0, 1}, event{setSlice, 3, 0, 1}, event{setService, 4, 0, 1}, event{settle, 0, 0, 0})
		hang.Store(true)
		happen(event{setService, 3, 0, 2})
		synctest.Wait()
		if hang.Load() {
			t.Fatal("no actor got stuck")
		}
		w.actorDisturbed(3) // until its actor is replaced, nothing is known of the change
		// A neighbour is served meanwhile, and so is the Service itself once its
		// actor has been given up.
		happen(event{setService, 4, 0, 2}, event{setService, 3, 0, 3}, event{settle, 0, 0, 0})
		before, seen := w.commits(), w.monitor.tally()
		if got := seen["supervisor.Stuck"]; got != 1 {
			t.Errorf("%d actors were given up, want 1", got)
		}
		close(release)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		now := w.monitor.tally()
		if got := now["supervisor.Returned"]; got != 1 {
			t.Errorf("%d given up actors came back, want 1", got)
		}
		const ack = "aggregator.Applied"
		if w.commits() != before || now[ack] != seen[ack] {
			t.Errorf("what came late was heard: %d writes, %d acks", w.commits()-before, now[ack]-seen[ack])
		}
		if err := w.settle(); err != nil {
			t.Error(err)
		}
		if err := w.close(); err != nil {
			t.Error(err)
		}
	})
}

// rejectedCounts are the numbers of rejected Services beside which everything else has to
// go on.
var rejectedCounts = []int{1, 3, 100}

// The Services of this story: those that are well, those that the kernel has served before
// it rejects them, and those that it rejects from the beginning.
const (
	wellServices     = 12
	firstChanged     = 20
	firstNew         = 40
	changedMax       = 10
	firstDefect      = 1
	storyVariant     = 0x5a00
	restartsOfAStory = 2
)

// seedFor returns a seed whose settings have a kind of blame, and batches that are divided
// or not.
func seedFor(t *testing.T, blame blame, divided bool) uint64 {
	t.Helper()
	for seed := uint64(1); seed < 1000; seed++ {
		if s := settingsOf(seed); s.blame == blame && (s.writer.TransactionBytes > 0) == divided {
			return seed
		}
	}
	t.Fatalf("no seed has blame %d", blame)
	return 0
}

// rejectedStory adds rejected Services beside others, and restarts the process.
func rejectedStory(rejected int) (events []event) {
	add := func(do verb, n, m int) {
		events = append(events, event{do, n, m, storyVariant + uint64(n)})
	}
	add(setNode, 0, 0)
	changed := min(rejected, changedMax)
	for n := range firstChanged + changed {
		if n < wellServices || n >= firstChanged {
			add(setService, n, 0)
			add(setSlice, n, 0)
			add(setSlice, n, 1)
		}
	}
	add(settle, 0, 0)
	defect := firstDefect
	for i := range rejected {
		n := firstNew + i
		if i < changed {
			n = firstChanged + i
		} else {
			add(setSlice, n, 0)
		}
		add(rejectService, n, defect)
		defect++
	}
	add(settle, 0, 0)
	for i := range restartsOfAStory {
		add(restart, 0, 0)
		add(setSlice, 2+i, 1) // a neighbour changes while the first audit runs
		add(settle, 0, 0)
	}
	add(failRequests, 0, 2)
	add(restart, 0, 0)
	add(settle, 0, 0)
	add(repairServices, 0, 0)
	add(settle, 0, 0)
	return events
}

// TestRestart_NoLossBesideRejected: with one or three rejected Services, whether or not the kernel identifies them, no
// Service is worse off after a restart, and changes of other Services land. Otherwise the guard reports it.
func TestRestart_NoLossBesideRejected(t *testing.T) {
	for _, c := range []struct {
		name    string
		blame   blame
		divided bool
	}{
		{"element", blameElement, false}, {"message", blameMessage, false}, {"nothing", blameNothing, false},
		{"nothing, divided", blameNothing, true},
	} {
		for _, rejected := range rejectedCounts[:2] { // TestReceipts_NoServiceLosesAnything has a hundred
			t.Run(fmt.Sprintf("rejected=%d/blamed=%s", rejected, c.name), func(t *testing.T) {
				t.Parallel()
				if _, err := run(t, scenario{seedFor(t, c.blame, c.divided), rejectedStory(rejected)}, nil); err != nil {
					t.Error(beginning(err))
				}
			})
		}
	}
}
