package supervisor

import (
	"sync"
	"sync/atomic"
	"time"
)

// Lease is what a running child holds: its incarnation, and the bracket around
// each message by which the supervisor sees that it is alive.
type Lease struct {
	incarnation uint64
	fenced      atomic.Bool
	// settled is won once, by the goroutine that returns or by the supervisor
	// that abandons it: the winner stops waiting for it.
	settled atomic.Bool
	watch   *watch
}

// Incarnation is unique over all children and restarts of this process, and
// grows: a later incarnation of the same child is a larger number.
func (l *Lease) Incarnation() uint64 { return l.incarnation }

// Fenced tells that the child has been given up: nothing it says counts any
// more, and it should return.
func (l *Lease) Fenced() bool { return l.fenced.Load() }

// Begin opens the bracket around one message; from now on the child has the
// supervisor's message deadline to call End.
func (l *Lease) Begin() { l.watch.begin(l) }

// End closes the bracket.
func (l *Lease) End() { l.watch.end(l) }

// watch knows the leases that are inside a bracket, and only those: an idle
// child costs nothing to watch.
type watch struct {
	now func() time.Time

	mu   sync.Mutex
	busy map[*Lease]time.Time
}

func (w *watch) begin(l *Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy[l] = w.now()
}

func (w *watch) end(l *Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.busy, l)
}

// overdue removes and returns the leases that have been inside a bracket for
// longer than the deadline, with the time they have spent there.
func (w *watch) overdue(deadline time.Duration) map[*Lease]time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	var late map[*Lease]time.Duration
	now := w.now()
	for l, since := range w.busy {
		if spent := now.Sub(since); spent > deadline {
			if late == nil {
				late = map[*Lease]time.Duration{}
			}
			late[l] = spent
			delete(w.busy, l)
		}
	}
	return late
}
