// SPDX-License-Identifier: Apache-2.0

package balance

import (
	"context"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/conntrack"
	"github.com/sluice-proxy/sluice/service"
)

// attend starts listening to connection events when a Service needs them, and stops when none does.
func (w *worker) attend(ctx context.Context, now time.Time) {
	switch {
	case w.observing == 0:
		w.deafen()
		w.recovered()
	case w.heard == nil && now.Before(w.retry):
	default:
		if err := w.observe(ctx); err != nil {
			w.fail(err)
		}
	}
}

// observe listens, and counts the open connections that began before it listened, unless that has to wait.
func (w *worker) observe(ctx context.Context) (err error) {
	if w.heard == nil {
		w.recovered()
		if w.heard, err = w.config.Feed.Subscribe(w.adapts); err != nil {
			return err
		}
	}
	if w.counting == 0 || !w.stale {
		return nil
	}
	complete, err := w.config.Feed.List(ctx, w.found)
	if !complete {
		return err
	}
	for _, t := range w.services {
		t.complete = t.least
	}
	w.stale = false
	return nil
}

// recovered notes that nothing is left to retry.
func (w *worker) recovered() {
	if w.retry = (time.Time{}); w.failed {
		w.failed = false
		w.config.Failed(nil)
	}
}

// adapts reports whether the connections of a Service matter. It runs in the goroutine of the feed.
func (w *Watcher) adapts(key service.Key) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.adapting[key]
}

// hear handles events. After a loss, the counted connections may be wrong: the next attempt counts again.
func (w *worker) hear(events []conntrack.TableEvent, lost bool, err error) {
	for i := range events {
		w.handle(&events[i])
	}
	switch {
	case err != nil:
		w.fail(err)
	case lost:
		w.deafen()
		w.retry = time.Now().Add(lostPause)
	}
}

// deafen stops listening, and forgets all connections, because no event would report their end.
func (w *worker) deafen() {
	if w.heard == nil {
		return
	}
	_ = w.heard.Close() // this part reads no counters, so that nothing can fail
	w.heard = nil
	w.forget()
}

// fail clears all suspects, because no event would report that they answer again.
func (w *worker) fail(err error) {
	w.deafen()
	now := time.Now()
	w.retry, w.failed = now.Add(tryAgain), true
	for _, t := range w.services {
		if t.outliers != nil {
			w.judged(t, t.outliers.forget(), now)
		}
	}
	w.config.Failed(err)
}
