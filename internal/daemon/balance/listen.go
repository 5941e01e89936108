package balance

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/conntrack"
	"github.com/sluice-proxy/sluice/service"
)

// heardMax bounds the announcements that wait for the worker. Then the kernel's buffer fills, and counts what it drops.
const heardMax = 8192

const (
	// readingShare is the largest share of time that readings of the connection table take.
	readingShare = 0.02
	// backlogMax bounds the announcements that wait for the end of a reading.
	backlogMax = 1 << 17
)

// announced is what the kernel announced of a connection to a Service that adapts.
type announced struct {
	key   service.Key
	event conntrack.TableEvent
	at    time.Time
	// lost says that announcements were lost instead.
	lost bool
}

// listener is the goroutine that hears announcements.
type listener struct {
	heard chan announced
	ended chan error
	stop  context.CancelFunc
	done  chan struct{}
}

// attend begins to listen if connections matter, and ends some time after they do not: Services that change their mind
// cost no more than others.
func (w *worker) attend(ctx context.Context, now time.Time) {
	switch {
	case w.observing == 0 && w.listener != nil && w.idle.IsZero():
		w.idle = now
	case w.observing == 0 && (w.listener == nil || now.Sub(w.idle) >= linger):
		w.deafen()
		w.recovered()
	case w.observing == 0 || w.listener == nil && now.Before(w.retry):
	default:
		w.idle = time.Time{}
		if err := w.observe(ctx, now); err != nil {
			w.fail(err)
		}
	}
}

// observe listens, and counts what is open.
func (w *worker) observe(ctx context.Context, now time.Time) error {
	if w.listener == nil {
		w.recovered()
		if err := w.listen(ctx); err != nil {
			return err
		}
	}
	if w.counting == 0 || !w.stale || now.Before(w.rest) {
		return nil
	}
	return w.count(ctx)
}

// recovered notes that nothing is left to retry.
func (w *worker) recovered() {
	if w.retry = (time.Time{}); w.failed {
		w.failed = false
		w.config.Failed(nil)
	}
}

// listen begins to hear announcements.
func (w *worker) listen(ctx context.Context) error {
	if err := conntrack.CheckEvents(); err != nil {
		return err
	}
	events, err := conntrack.ListenToEvents()
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	l := &listener{heard: make(chan announced, heardMax), ended: make(chan error, 1), stop: stop, done: make(chan struct{})}
	w.listener = l
	hub := w.Watcher
	go func() {
		defer close(l.done)
		send := func(a announced) {
			select {
			case l.heard <- a:
			case <-ctx.Done():
			}
		}
		err := events.Run(ctx, func(e *conntrack.TableEvent) {
			if key, ok := hub.concerns(e); ok {
				send(announced{key: key, event: e.Kept(), at: time.Now()})
			}
		}, func() { send(announced{lost: true}) })
		err = errors.Join(err, events.Close())
		if ctx.Err() == nil {
			l.ended <- err
		}
	}()
	return nil
}

// count counts the open connections of Services that began before they were heard of. Readings of the table take at most
// 2 % of the time.
func (w *worker) count(ctx context.Context) error {
	list := w.config.list
	if list == nil {
		list = conntrack.Translated
	}
	var backlog []announced
	began := time.Now()
	for _, family := range service.Families {
		err := list(ctx, family, func(c conntrack.Connection) {
			w.found(family, &c)
			for len(backlog) < backlogMax && len(w.listener.heard) > 0 { // or announcements are lost because of the reading
				backlog = append(backlog, <-w.listener.heard)
			}
		})
		if err != nil {
			return err
		}
	}
	w.rest = time.Now().Add(time.Duration(float64(time.Since(began)) * (1/readingShare - 1)))
	for _, t := range w.services {
		t.complete = t.least
	}
	w.stale = false
	for i := range backlog {
		if w.hear(&backlog[i]); w.listener == nil {
			break // some were lost
		}
	}
	return nil
}

// concerns reports whether an event matters, and to which Service. It runs in the goroutine of the events.
func (w *Watcher) concerns(e *conntrack.TableEvent) (service.Key, bool) {
	if e.Kind == conntrack.Changed && e.State != "SYN_RECV" && e.State != "TIME_WAIT" && e.State != "CLOSE" {
		return service.Key{}, false
	}
	key, ok := w.owner(e.Family, e.Tuple())
	if !ok {
		return key, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return key, w.adapting[key]
}

// owner returns the Service that a connection asks for.
func (w *Watcher) owner(family service.Family, of conntrack.Tuple) (service.Key, bool) {
	f, ok := of.Frontend()
	if !ok {
		return service.Key{}, false
	}
	return w.config.Owner(family, f)
}

// hear takes an announcement. After a loss, what is known of connections may be wrong: the next attempt counts again.
func (w *worker) hear(a *announced) {
	if !a.lost {
		w.handle(a)
		return
	}
	w.deafen()
	w.retry = time.Now().Add(lostPause)
}

// deafen ends to listen, and forgets all connections: nothing would say what becomes of them.
func (w *worker) deafen() {
	if w.listener == nil {
		return
	}
	w.listener.stop()
	<-w.listener.done
	w.listener, w.idle = nil, time.Time{}
	w.forget()
}

// fail lets suspects go: nothing would say when they answer again.
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
