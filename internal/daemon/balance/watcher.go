// SPDX-License-Identifier: Apache-2.0

// Package balance observes connections, and changes the weights of the endpoints of Services that ask for it: those of
// new endpoints (slow start), of endpoints with many open connections (leastConnections), and of endpoints that do not
// answer (outliers). The observations become one more slice of the Service, so that actors, explanations and answers to
// queries all use the same data.
//
//	watcher.go       the Services that ask for it, and the loop
//	listen.go        the subscription to connection events
//	connections.go   the observed connections
//	outlier.go       failing endpoints
//	weights.go       weights of new endpoints, and by open connections
package balance

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/conntrack"
	"github.com/sluice-proxy/sluice/service"
)

const (
	// look is the pause between two ticks. weightPause is the shortest pause between two changes of the weights of a
	// Service by age or connections; it grows with the number of endpoints.
	look, weightPause = 100 * time.Millisecond, time.Second
	// weighedMax bounds the Services whose weights change in one tick.
	weighedMax = 10
	// pauseEndpoints is the number of endpoints that double weightPause.
	pauseEndpoints = 256
	// tryAgain is the pause after a failure to receive the kernel's events, and lostPause after some were lost.
	tryAgain, lostPause = time.Minute, time.Second
)

// Config is what a Watcher needs from the proxy. All functions may be called at any time and do not block.
type Config struct {
	// Snapshot returns what is known of a Service, and Facts of the node.
	Snapshot func(service.Key) service.Snapshot
	Facts    func() *service.NodeFacts
	// Feed delivers the kernel's connection events and its connection table.
	Feed *conntrack.Feed
	// Observe passes observations to the Service's actor; nil means that there are none.
	Observe func(service.Key, *service.Observed)
	// Outliers means that the watcher avoids failing endpoints, and Least that its weights follow open connections.
	// Otherwise, the kernel or the forwarders of this process do that.
	Outliers, Least bool
	// Pause is how long a suspect gets no connection at first; 0 for the default.
	Pause time.Duration
	// Delete deletes entries of the connection table.
	Delete func(context.Context, service.Family, []conntrack.Description) error
	// Listen receives what was decided. It must not block.
	Listen func(Event)
	// Partly is called with the first Service that has more connections than are observed, and again after there was none.
	Partly func(service.Key)
	// Failed is called with the reason why connections are not observed or deleted, and with nil before the next attempt.
	Failed func(error)
}

// Event reports that an endpoint became a suspect, or is no longer one.
type Event struct {
	Key      service.Key
	Endpoint netip.AddrPort
	Suspect  bool
}

// Watcher changes the weights of Services that ask for it. Without such Services, it costs nothing.
type Watcher struct {
	config Config
	wake   chan struct{}

	mu sync.Mutex
	// adapting are the Services that ask for it, and changed those that have changed since Run looked.
	adapting map[service.Key]bool
	changed  map[service.Key]*programmed
	suspects int
	ejected  uint64
	// partlyObserved counts the Services with more connections than are observed.
	partlyObserved atomic.Int64
}

// programmed contains the views of a Service that are in the kernel, of the families that changed.
type programmed struct {
	views service.PerFamily[*service.View]
}

// New makes a watcher.
func New(config Config) *Watcher {
	return &Watcher{config: config, wake: make(chan struct{}, 1), adapting: map[service.Key]bool{}, changed: map[service.Key]*programmed{}}
}

// Tally returns the number of suspects, and how many there were in all.
func (w *Watcher) Tally() (suspects int, ejected uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.suspects, w.ejected
}

// PartlyObserved returns the number of Services with more connections than are observed.
func (w *Watcher) PartlyObserved() int { return int(w.partlyObserved.Load()) }

// asks reports whether a Service asks for something that the watcher does.
func (w *Watcher) asks(view *service.View) bool {
	return view.Adaptation.SlowStart > 0 || w.config.Outliers && view.Adaptation.Outliers ||
		w.config.Least && view.Balancing == service.LeastConnections
}

// Programmed implements proxy.ApplyObserver. It costs the same however many Services there are.
func (w *Watcher) Programmed(_ context.Context, family service.Family, view service.View) {
	w.mu.Lock()
	defer w.mu.Unlock()
	asks := w.asks(&view)
	if !asks && !w.adapting[view.Key] {
		return
	}
	if asks {
		w.adapting[view.Key] = true
	} else {
		delete(w.adapting, view.Key)
	}
	p := w.changed[view.Key]
	if p == nil {
		p = &programmed{}
		w.changed[view.Key] = p
	}
	p.views[family] = &view
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// worker is the state of Run, which its goroutine owns.
type worker struct {
	*Watcher
	services map[service.Key]*tracked
	// observing counts the Services that need events, and counting those whose open connections count.
	observing, counting int
	// counted and waiting are the sums of all Services. silent contains the connections without an answer so far, in the
	// order in which they began. partial are the Services with more connections than are observed.
	counted, waiting int
	silent           []waiting
	partial          map[*tracked]bool
	// relieved is set if all Services were relieved since the last tick.
	relieved bool
	// ticked is the time of the last tick, and resumed the end of the last delay of this goroutine.
	ticked, resumed time.Time
	// heard is the subscription to connection events; nil while there is none.
	heard *conntrack.Subscription
	// retry is when to listen again after a loss or a failure, and failed is set after a failure.
	retry  time.Time
	failed bool
	// stale is set while some open connections may not have been counted.
	stale bool
	// uneasy are the Services with suspects or trials, and shifting those whose weights change with time.
	uneasy, shifting map[service.Key]*tracked
	// purge are suspects whose unanswered connections are to be deleted. The value is true once the kernel avoids them.
	purge map[purged]bool
}

// purged is a suspect of a Service.
type purged struct {
	key      service.Key
	endpoint netip.AddrPort
}

// Run watches until the context ends.
func (w *Watcher) Run(ctx context.Context) {
	k := newWorker(w)
	defer k.deafen()
	alarm := time.NewTimer(look)
	defer alarm.Stop()
	for armed := true; ; {
		if !armed && k.restless() {
			armed, k.ticked = true, time.Now()
			alarm.Reset(look)
		}
		var heard <-chan struct{}
		if k.heard != nil {
			heard = k.heard.C
		}
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
			k.takeAll(ctx, time.Now())
		case <-heard:
			k.hear(k.heard.Take())
		case now := <-alarm.C:
			armed = false
			k.tick(ctx, now)
		}
	}
}

func newWorker(w *Watcher) *worker {
	return &worker{
		Watcher: w, services: map[service.Key]*tracked{},
		uneasy: map[service.Key]*tracked{}, shifting: map[service.Key]*tracked{}, purge: map[purged]bool{},
		partial: map[*tracked]bool{},
	}
}

// restless reports whether a tick may have something to do.
func (w *worker) restless() bool {
	return len(w.silent)+len(w.uneasy)+len(w.shifting)+len(w.partial) > 0 || !w.retry.IsZero()
}

// takeAll takes the Services that have changed, and starts or stops listening.
func (w *worker) takeAll(ctx context.Context, now time.Time) {
	w.mu.Lock()
	changed := w.changed
	w.changed = map[service.Key]*programmed{}
	w.mu.Unlock()
	for key, p := range changed {
		w.take(key, now)
		w.avoided(key, p)
	}
	w.deleteUnanswered(ctx)
	w.attend(ctx, now)
}

// take updates the state of a Service from its snapshot.
func (w *worker) take(key service.Key, now time.Time) {
	known := w.config.Snapshot(key)
	t := w.services[key]
	outliers, least := false, false
	if known.Spec != nil {
		outliers = w.config.Outliers && known.Spec.Adaptation.Outliers
		least = w.config.Least && known.Spec.Balancing == service.LeastConnections
	}
	if known.Spec == nil || !outliers && !least && known.Spec.Adaptation.SlowStart == 0 {
		w.leave(t)
		return
	}
	first := t == nil
	if first {
		t = newTracked(key)
		w.services[key] = t
	}
	w.need(t, outliers, least)
	t.adaptation = known.Spec.Adaptation
	if outliers && t.outliers == nil {
		t.outliers = newOutliers(w.config.Pause)
	} else if !outliers {
		t.outliers = nil
	}
	from := slices.DeleteFunc(known.Slices, func(s *service.Slice) bool { return s.Observed != nil })
	view := service.Resolve(key, known.Spec, from, w.config.Facts())
	present := map[netip.AddrPort]bool{}
	for _, family := range service.Families {
		for i := range view.Ports[family] {
			for _, e := range view.Ports[family][i].Reachable() {
				present[e.AddrPort] = true
			}
		}
	}
	t.take(present, first, func(e netip.AddrPort) time.Time { return readySince(from, e.Addr(), now) })
	w.publish(t, now)
	if t.moving(now) {
		w.shifting[key] = t
	}
}

// need notes what a Service needs connections for. It forgets them if it needs none, or if counting starts or stops.
func (w *worker) need(t *tracked, outliers, least bool) {
	change := func(before, after bool, count *int) {
		switch {
		case after && !before:
			*count++
		case before && !after:
			*count--
		}
	}
	change(t.least, least, &w.counting)
	change(t.follows(), outliers || least, &w.observing)
	if !outliers && !least || t.least != least {
		w.abandon(t)
	}
	t.least = least
}

// readySince returns when a new endpoint became ready: the time of its slice's last change, or now if that is unknown.
func readySince(from []*service.Slice, addr netip.Addr, now time.Time) time.Time {
	for _, s := range from {
		if s.Trigger.IsZero() || s.Trigger.After(now) {
			continue
		}
		if slices.ContainsFunc(s.Endpoints, func(e service.SliceEndpoint) bool { return e.Addr == addr }) {
			return s.Trigger
		}
	}
	return now
}

// leave stops tracking a Service.
func (w *worker) leave(t *tracked) {
	if t == nil {
		return
	}
	delete(w.services, t.key)
	delete(w.uneasy, t.key)
	delete(w.shifting, t.key)
	w.need(t, false, false)
	t.endpoints, t.outliers = nil, nil
	w.publish(t, time.Now())
}

// publish sends changed observations to the actor, and reports the suspects.
func (w *worker) publish(t *tracked, now time.Time) {
	if o := t.observed(now); !o.Equal(t.published) {
		w.mark(t.key, t.published, o)
		t.published = o
		w.config.Observe(t.key, o)
	}
	w.tell(t)
}

// mark adds the new suspects to purge, and removes those that are no longer suspects.
func (w *worker) mark(key service.Key, before, after *service.Observed) {
	each := func(in, other *service.Observed, do func(purged)) {
		if in == nil {
			return
		}
		for _, e := range in.Endpoints {
			if o, _ := other.Of(e.AddrPort); e.Suspect && !o.Suspect {
				do(purged{key, e.AddrPort})
			}
		}
	}
	each(after, before, func(p purged) { w.purge[p] = false })
	each(before, after, func(p purged) { delete(w.purge, p) })
}

// tell reports which endpoints became suspects, and which are no longer suspects. An endpoint on trial is still one.
func (w *worker) tell(t *tracked) {
	var now []netip.AddrPort
	if t.outliers != nil {
		now = t.outliers.accused()
	}
	report := func(in, other []netip.AddrPort, suspect bool) {
		for _, e := range in {
			if slices.Contains(other, e) {
				continue
			}
			w.mu.Lock()
			if suspect {
				w.suspects, w.ejected = w.suspects+1, w.ejected+1
			} else {
				w.suspects--
			}
			w.mu.Unlock()
			w.config.Listen(Event{t.key, e, suspect})
		}
	}
	report(now, t.told, true)
	report(t.told, now, false)
	t.told = now
}

// judged publishes the suspects of a Service if they have changed.
func (w *worker) judged(t *tracked, changed bool, now time.Time) {
	if !changed {
		return
	}
	w.publish(t, now)
	if t.outliers.calm() {
		delete(w.uneasy, t.key)
	} else {
		w.uneasy[t.key] = t
	}
}

// avoided notes which suspects of a Service the kernel avoids now.
func (w *worker) avoided(key service.Key, p *programmed) {
	for suspect := range w.purge {
		view := p.views[service.FamilyOf(suspect.endpoint.Addr())]
		if suspect.key == key && view != nil && !reaches(view, suspect.endpoint) {
			w.purge[suspect] = true
		}
	}
}

// deleteUnanswered deletes the unanswered connections to suspects that the kernel avoids now, so that the next packets
// of their clients go to another endpoint. The connection of a trial stays until its outcome is known.
func (w *worker) deleteUnanswered(ctx context.Context) {
	for suspect, avoided := range w.purge {
		if t := w.services[suspect.key]; !avoided || t != nil && t.outliers != nil && t.outliers.tries(suspect.endpoint) {
			continue
		}
		delete(w.purge, suspect)
		t := w.services[suspect.key]
		if t == nil {
			continue
		}
		var entries []conntrack.Description
		for of, c := range t.open {
			if c.at == suspect.endpoint && !c.replied {
				entries = append(entries, c.entry)
				w.drop(t, of)
			}
		}
		family := service.FamilyOf(suspect.endpoint.Addr())
		if err := w.config.Delete(ctx, family, entries); err != nil && ctx.Err() == nil {
			w.config.Failed(fmt.Errorf("delete unanswered connections of %s to %s: %w", suspect.key, suspect.endpoint, err))
		}
	}
}

// purgeLate handles a silent connection to a suspect. It may have begun before the kernel avoided the suspect, although
// its event was received after deleteUnanswered ran. Then the suspect is purged again.
func (w *worker) purgeLate(t *tracked, e netip.AddrPort) {
	p := purged{t.key, e}
	if _, due := w.purge[p]; due {
		return
	}
	if o, _ := t.published.Of(e); o.Suspect {
		w.purge[p] = true // purged before, so the kernel avoids it
	}
}

// reaches reports whether new connections may go to an endpoint.
func reaches(view *service.View, e netip.AddrPort) bool {
	for _, family := range service.Families {
		for i := range view.Ports[family] {
			if slices.ContainsFunc(view.Ports[family][i].Reachable(), func(r service.Endpoint) bool { return r.AddrPort == e }) {
				return true
			}
		}
	}
	return false
}

// tick does the periodic work.
func (w *worker) tick(ctx context.Context, now time.Time) {
	if now.Sub(w.ticked) > 3*look {
		w.resumed = now // events with answers may not have been handled yet
	}
	w.ticked = now
	w.relieved = false
	w.silence(now)
	for key, t := range w.uneasy {
		if t.outliers == nil {
			delete(w.uneasy, key)
			continue
		}
		w.judged(t, t.outliers.tick(now), now)
		if t.outliers.calm() { // or the API has removed them
			delete(w.uneasy, key)
		}
	}
	w.deleteUnanswered(ctx)
	w.whole()
	w.weigh(now)
	if !w.retry.IsZero() || w.heard != nil {
		w.attend(ctx, now)
	}
}

// weigh changes the weights of the Services that are due, at most weighedMax, the longest overdue first.
func (w *worker) weigh(now time.Time) {
	var due []*tracked
	for key, t := range w.shifting {
		switch {
		case now.Before(t.next):
		case t.moving(now):
			due = append(due, t)
		default:
			delete(w.shifting, key)
		}
	}
	slices.SortFunc(due, func(a, b *tracked) int { return a.next.Compare(b.next) })
	for _, t := range due[:min(len(due), weighedMax)] {
		t.step()
		t.next = now.Add(weightPause * time.Duration(1+len(t.endpoints)/pauseEndpoints))
		w.publish(t, now)
	}
}
