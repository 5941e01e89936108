package localport

import (
	"context"
	"errors"
	"runtime/debug"
	"sync"
)

// crew keeps all goroutines of a writer: each is waited for in close, and a
// panic ends only the one that it happened in.
//
// The lock guards ending and the start of a wait, never a call.
type crew struct {
	// ctx ends with the crew.
	ctx     context.Context
	cancel  context.CancelFunc
	report  func(Failure)
	running sync.WaitGroup

	mu     sync.Mutex
	ending bool
}

func newCrew(report func(Failure)) *crew {
	ctx, cancel := context.WithCancel(context.Background())
	return &crew{ctx: ctx, cancel: cancel, report: report}
}

// run does work for a listener in a goroutine, reports its error if it has one,
// and calls ended with it. It reports false, and does nothing, once the crew has
// been closed.
func (c *crew) run(listener string, work func() error, ended func(error)) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ending {
		return false
	}
	c.running.Go(func() {
		err := guarded(work)
		if err != nil {
			c.report(Failure{Listener: listener, Err: err})
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

// errClosed says that a writer is used after its end.
var errClosed = errors.New("the writer of localhost node ports has been closed")

// close ends everything, and waits until it has ended.
func (c *crew) close() {
	c.mu.Lock()
	c.ending = true
	c.mu.Unlock()
	c.cancel()
	c.running.Wait()
}

// atEnd calls f in a goroutine of its own when the context ends. Release, which
// is called once, keeps it from being called, or waits until it has returned.
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
