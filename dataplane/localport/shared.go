package localport

import (
	"context"
	"errors"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// shared is what all listeners of a writer share.
type shared struct {
	*sockets
	tasks *tasks
	stats Stats
	// connections and sessions are the budgets of all listeners together, the others what each
	// listener may have of them.
	connections, sessions                       *budget
	connectionsPerListener, sessionsPerListener int
	unreplied, replied                          time.Duration
}

func newShared(c Config) *shared {
	s := &shared{
		sockets:                &sockets{inside: c.Inside, dialTimeout: c.DialTimeout},
		connections:            newBudget(c.Connections, nil),
		sessions:               newBudget(c.Sessions, nil),
		connectionsPerListener: c.ConnectionsPerListener,
		sessionsPerListener:    c.SessionsPerListener,
		unreplied:              c.Unreplied, replied: c.Replied,
	}
	s.tasks = newTasks(func(f Failure) {
		s.stats.Failures.Add(1)
		c.Report(f)
	})
	return s
}

// tasks are the goroutines of a writer. close waits for each of them, and a panic ends only the one
// in which it happened.
//
// The lock guards ending and the start of a wait, never a call.
type tasks struct {
	// ctx ends with close.
	ctx     context.Context
	cancel  context.CancelFunc
	report  func(Failure)
	running sync.WaitGroup

	mu     sync.Mutex
	ending bool
}

func newTasks(report func(Failure)) *tasks {
	ctx, cancel := context.WithCancel(context.Background())
	return &tasks{ctx: ctx, cancel: cancel, report: report}
}

// run does work for a listener in a goroutine, reports its error if it has one, and calls ended
// with it. After close it does nothing and reports false.
func (t *tasks) run(listener string, work func() error, ended func(error)) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ending {
		return false
	}
	t.running.Go(func() {
		err := guarded(work)
		if err != nil {
			t.report(Failure{Listener: listener, Err: err})
		}
		ended(err)
	})
	return true
}

// guarded turns a panic into an error.
func guarded(work func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &PanicError{Value: value, Stack: debug.Stack()}
		}
	}()
	return work()
}

var errClosed = errors.New("the writer of localhost node ports is closed")

// close ends all goroutines and waits for their end.
func (t *tasks) close() {
	t.mu.Lock()
	t.ending = true
	t.mu.Unlock()
	t.cancel()
	t.running.Wait()
}

// atEnd calls f in a goroutine of its own when the context ends. release, which is called once,
// prevents that or waits until f has returned.
func atEnd(ctx context.Context, f func()) (release func()) {
	returned := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(returned)
		f()
	})
	return func() {
		if !stop() {
			<-returned
		}
	}
}

// budget bounds a number. Any goroutine may use it.
//
// Invariant: 0 ≤ used ≤ most, and whatever is taken here is taken from the budget above, too.
type budget struct {
	most  int64
	used  atomic.Int64
	above *budget
}

// newBudget returns a budget that is part of the one above, which may be nil.
func newBudget(most int, above *budget) *budget { return &budget{most: int64(most), above: above} }

// take takes one, and reports false if that would be one too many here or above.
func (b *budget) take() bool {
	for {
		used := b.used.Load()
		if used >= b.most {
			return false
		}
		if b.used.CompareAndSwap(used, used+1) {
			break
		}
	}
	if b.above == nil || b.above.take() {
		return true
	}
	b.used.Add(-1)
	return false
}

// give returns one to the pool.
func (b *budget) give() {
	b.used.Add(-1)
	if b.above != nil {
		b.above.give()
	}
}

// Stats are the numbers of a writer. Any goroutine may read them.
type Stats struct {
	// Listeners, Connections (TCP) and Sessions (UDP) are open now.
	Listeners, Connections, Sessions atomic.Int64

	// The others count from the writer's start.

	// ConnectionsAccepted counts all, ConnectionsRefused those that were reset because of a
	// bound, ConnectionsUnreachable those that were reset because the target did not accept.
	ConnectionsAccepted, ConnectionsRefused, ConnectionsUnreachable atomic.Uint64
	// SessionsOpened counts all, SessionsEvicted those that were replaced at a bound,
	// SessionsRefused those that the target or the network refused (ICMP).
	SessionsOpened, SessionsEvicted, SessionsRefused atomic.Uint64
	// DatagramsDropped could not be passed on.
	DatagramsDropped atomic.Uint64
	// BytesToTargets and BytesToClients are payload. A TCP connection counts when a direction
	// ends.
	BytesToTargets, BytesToClients atomic.Uint64
	// Failures were reported.
	Failures atomic.Uint64
}
