package kube

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

// stoppableClock is the real clock, except that everyone who waits with After is
// woken when ctx ends, or when the server has become ready. A reflector sleeps out
// its backoff without looking at its context (client-go v0.36, Reflector.watchList),
// and would keep a stopping process from ending.
type stoppableClock struct {
	clock.RealClock
	ctx  context.Context
	line *line
}

var _ clock.WithTicker = stoppableClock{}

// After implements clock.PassiveClock's waiting companion.
func (c stoppableClock) After(d time.Duration) <-chan time.Time {
	woken := make(chan time.Time, 1)
	wake := c.line.wake()
	go func() {
		c.line.sleep(c.ctx, d, wake)
		woken <- time.Now()
	}()
	return woken
}
