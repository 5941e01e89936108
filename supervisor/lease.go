// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"bytes"
	"context"
	"fmt"
	"runtime/pprof"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Lease belongs to one incarnation of a child. It carries the incarnation's
// number, wakes a child that rests, and brackets each message, so that the
// supervisor sees a child that hangs.
type Lease struct {
	incarnation uint64
	watch       *watch
	// resume starts a goroutine that calls the child's body again.
	resume func()
	fenced atomic.Bool

	mu    sync.Mutex
	phase phase
	// cancel ends the context of the goroutine; nil without one.
	cancel context.CancelFunc
}

// phase says what an incarnation does.
type phase uint8

const (
	// working: a goroutine is in the body.
	working phase = iota
	// called: the same, and the body has to be called again.
	called
	// resting: there is no goroutine until Wake.
	resting
	// over: it has returned, or the supervisor has given it up.
	over
)

// Incarnation is unique over all children and restarts of this process. A later
// incarnation of the same child has a larger number.
func (l *Lease) Incarnation() uint64 { return l.incarnation }

// Fenced reports whether the child has been given up. Its output no longer
// counts, and it should return.
func (l *Lease) Fenced() bool { return l.fenced.Load() }

// Wake has the body called once more: immediately if it rests, otherwise when it has returned. It may be called from
// anywhere and does not block.
func (l *Lease) Wake() {
	l.mu.Lock()
	rested := l.phase == resting
	switch l.phase {
	case resting:
		l.phase = working
	case working:
		l.phase = called
	}
	l.mu.Unlock()
	if rested {
		l.resume()
	}
}

// rest reports whether the goroutine of a child that has nothing to do may end. If not,
// again reports whether the body has to be called once more.
func (l *Lease) rest() (rests, again bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch l.phase {
	case working:
		l.phase, l.cancel = resting, nil
		return true, false
	case called:
		l.phase = working
		return false, true
	default:
		return false, false
	}
}

// settle ends the incarnation, and reports whether this was the first call. The
// goroutine that returns and the supervisor that gives it up both call it.
func (l *Lease) settle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := l.phase != over
	l.phase = over
	return first
}

// abandon fences the incarnation and returns what cancels its context. again reports
// whether the body would have been called once more. It returns nil if no goroutine works for it.
func (l *Lease) abandon() (cancel context.CancelFunc, again bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cancel == nil || l.phase == over {
		return nil, false
	}
	again = l.phase == called
	l.phase = over
	l.fenced.Store(true)
	return l.cancel, again
}

// employ notes what ends the context of a goroutine that begins.
func (l *Lease) employ(cancel context.CancelFunc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cancel = cancel
}

// Begin starts the message deadline. The child must call End before it passes.
func (l *Lease) Begin() {
	l.watch.mu.Lock()
	defer l.watch.mu.Unlock()
	l.watch.busy[l] = time.Now()
}

// End stops the message deadline.
func (l *Lease) End() {
	l.watch.mu.Lock()
	defer l.watch.mu.Unlock()
	delete(l.watch.busy, l)
}

// watch holds the leases between Begin and End, and only those: watching an idle
// child costs nothing.
type watch struct {
	mu   sync.Mutex
	busy map[*Lease]time.Time
}

// overdue removes and returns the leases that are past the deadline, with the
// time since Begin.
func (w *watch) overdue(deadline time.Duration) map[*Lease]time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	var late map[*Lease]time.Duration
	now := time.Now()
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

// label marks a child's goroutine in profiles. Its value is the incarnation,
// which is unique.
const label = "sluice-incarnation"

// mark labels the calling goroutine with the child's name and incarnation, so
// that stackOf finds its stack and profiles show whose time was spent.
func mark(ctx context.Context, child string, incarnation uint64) {
	labels := pprof.Labels(label, strconv.FormatUint(incarnation, 10), "sluice-child", child)
	pprof.SetGoroutineLabels(pprof.WithLabels(ctx, labels))
}

// stackOf returns the stack of the goroutine with the given incarnation. It reads
// the goroutine profile, which stops the world only briefly (runtime/pprof, Go
// 1.19 and newer).
func stackOf(incarnation uint64) string {
	var profile bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
		return fmt.Sprintf("stack not available: %v", err)
	}
	want := []byte(strconv.Quote(label) + ":" + strconv.Quote(strconv.FormatUint(incarnation, 10)))
	for _, record := range bytes.Split(profile.Bytes(), []byte("\n\n")) {
		if bytes.Contains(record, want) {
			return string(bytes.TrimSpace(record))
		}
	}
	return "stack not available: the goroutine returned"
}
