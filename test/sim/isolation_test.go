// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/service"
)

// A Service that the kernel rejects is no concern of others, and health knows of it.

// neighbours are Services that are well; the first rejected one has the number firstChanged.
const neighbours = 12

// ear hears what aggregators do.
type ear struct {
	mu     sync.Mutex
	events []aggregator.Event
}

func (e *ear) hear(event aggregator.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.events = append(e.events, event)
}

// count counts events.
func (e *ear) count(is func(aggregator.Event) bool) (count int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, event := range e.events {
		if is(event) {
			count++
		}
	}
	return count
}

func isQuarantined(e aggregator.Event) bool { _, is := e.(aggregator.Quarantined); return is }

// withNeighbours returns a world with Services, and a function that makes events happen.
func withNeighbours(t *testing.T, seed uint64) (*world, func(...event)) {
	t.Helper()
	w, err := newWorld(seed, nil)
	if err != nil {
		t.Fatal(err)
	}
	happen := func(events ...event) {
		t.Helper()
		for _, e := range events {
			if err := w.happen(e); err != nil {
				t.Fatalf("%v: %v", e, err)
			}
		}
	}
	for n := range neighbours {
		happen(event{setService, n, 0, storyVariant + uint64(n)}, event{setSlice, n, 0, storyVariant + uint64(n)})
	}
	return w, happen
}

// besideNeighbours plays a story beside Services that are settled, on a kernel that blames
// nobody. The ear hears what happens in the story.
func besideNeighbours(t *testing.T, tell func(w *world, heard *ear, happen func(...event))) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w, happen := withNeighbours(t, seedFor(t, blameNothing, false))
		happen(event{settle, 0, 0, 0})
		heard := &ear{}
		w.monitor.setEar(heard.hear)
		tell(w, heard, happen)
		w.monitor.setEar(nil)
		happen(event{settle, 0, 0, 0})
		if err := w.close(); err != nil {
			t.Error(err)
		}
	})
}

// TestIsolation_LongSearch: while the proxy searches for many culprits in a slow kernel, a change of another Service
// takes as long as the current attempt and its own write. Health always reports pending changes.
func TestIsolation_LongSearch(t *testing.T) {
	besideNeighbours(t, func(w *world, heard *ear, happen func(...event)) {
		const slow, culprits = time.Second, 8
		s := w.stacks[service.IPv4]
		s.faults.add(requestFault{times: 1 << 30, delay: slow, until: time.Now().Add(time.Minute)})
		for i := range culprits {
			happen(event{rejectService, firstChanged + i, 1 + i, storyVariant})
		}
		quarantined := func() int {
			return heard.count(func(e aggregator.Event) bool {
				q, is := e.(aggregator.Quarantined)
				return is && q.Domain == s.family.String()
			})
		}
		for range 5 {
			time.Sleep(slow)
			synctest.Wait()
			if status := w.proxy.Status()[s.family]; status.OldestPending.IsZero() {
				t.Errorf("%d of %d culprits are found, and health says that nothing waits", quarantined(), culprits)
			}
		}
		const neighbour = 3
		applied := func() int {
			return heard.count(func(e aggregator.Event) bool {
				a, is := e.(aggregator.Applied)
				return is && a.Domain == s.family.String() && a.Key == keyOf(neighbour)
			})
		}
		before := applied()
		happen(event{setSlice, neighbour, 1, storyVariant})
		time.Sleep(3 * slow)
		synctest.Wait()
		if quarantined() == culprits {
			t.Fatal("the bisection is over: that proves nothing")
		}
		if applied() == before {
			t.Errorf("a neighbour waits for a bisection that has found %d of %d culprits", quarantined(), culprits)
		}
		time.Sleep(2 * time.Minute)
	})
}

// TestIsolation_RestartBesideRejected: a new process writes nothing for unchanged Services, even if it has to write for
// one that the kernel rejects.
func TestIsolation_RestartBesideRejected(t *testing.T) {
	besideNeighbours(t, func(w *world, heard *ear, happen func(...event)) {
		happen(event{rejectService, firstChanged, 1, storyVariant}, event{settle, 0, 0, 0}, event{restart, 0, 0, 0},
			event{settle, 0, 0, 0})
		rejected := 0
		heard.count(func(e aggregator.Event) bool {
			written, is := e.(aggregator.BatchWritten)
			if !is {
				return false
			}
			for _, c := range written.Batch.Contributions {
				if rejected++; c.Key != keyOf(firstChanged) {
					t.Errorf("%s: %v, for which nothing has changed, was in a batch: %v", written.Domain, c.Key, written.Receipt)
				}
			}
			return true
		})
		if rejected == 0 {
			t.Error("nothing was written: that proves nothing")
		}
	})
}

// TestIsolation_NodeRejectsEverything: if the kernel rejects everything, the node is at fault, and no Service is
// quarantined.
func TestIsolation_NodeRejectsEverything(t *testing.T) {
	besideNeighbours(t, func(w *world, heard *ear, happen func(...event)) {
		s := w.stacks[service.IPv4]
		s.faults.add(requestFault{times: 1 << 30, rejected: &wire.Rejection{Errno: unix.EINVAL}, until: time.Now().Add(time.Minute)})
		for n := range 5 {
			happen(event{setSlice, n, 1, storyVariant})
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if count := heard.count(isQuarantined); count > 0 {
			t.Errorf("%d Services were quarantined", count)
		}
		if status := w.proxy.Status()[s.family]; !status.NodeAtFault {
			t.Errorf("the node is not at fault: %+v", status)
		}
		time.Sleep(time.Minute)
	})
}

// TestIsolation_ServiceDoesNotLand: if every transaction with a certain Service fails without a rejection, only this
// Service is quarantined, and then changes of other Services wait for no retry.
func TestIsolation_ServiceDoesNotLand(t *testing.T) {
	for name, defect := range map[string]int{"no memory": 2, "the answer is lost": 3} {
		t.Run(name, func(t *testing.T) {
			besideNeighbours(t, func(w *world, heard *ear, happen func(...event)) {
				s := w.stacks[service.IPv4]
				applied := func(n int) int {
					return heard.count(func(e aggregator.Event) bool {
						a, is := e.(aggregator.Applied)
						return is && a.Domain == s.family.String() && a.Key == keyOf(n)
					})
				}
				happen(event{stallService, firstChanged, defect, storyVariant})
				time.Sleep(time.Second)
				happen(event{setSlice, 3, 1, storyVariant})
				time.Sleep(5 * time.Second)
				synctest.Wait()
				status := w.proxy.Status()[s.family]
				if len(status.Quarantined) != 1 || status.Quarantined[0].Key != keyOf(firstChanged) || status.Quarantined[0].Cause != aggregator.DoesNotLand {
					t.Errorf("in quarantine: %+v", status.Quarantined)
				}
				if applied(3) == 0 {
					t.Error("a neighbour waits")
				}
				before := applied(3)
				happen(event{setSlice, 3, 2, storyVariant}, event{stallService, firstChanged, defect + 2, storyVariant})
				time.Sleep(100 * time.Millisecond)
				synctest.Wait()
				if applied(3) == before {
					t.Error("a neighbour waits although the culprit is in quarantine")
				}
				time.Sleep(time.Minute)
			})
		})
	}
}
