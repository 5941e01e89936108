// SPDX-License-Identifier: Apache-2.0

// Package book remembers what happened to Services and to domains. A [Book] listens to the events of the core and
// follows the applied views. It has one record per Service that has an actor, and one history per domain. Metrics,
// health, readiness and the inspection read the book and keep no such records themselves.
//
// The domains own the quarantines: the book reads these from the newest snapshots.
//
// No listener method blocks its caller. A lock is held for one record, or while one shard is copied. The time that an
// event takes does not depend on the number of Services.
package book

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-proxy/sluice/actors"
	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/observe/state"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/supervisor"
)

// Config configures a Book.
type Config struct {
	// Domains are those of the proxy. Changes of Services in other domains are ignored.
	Domains []Domain
	// Status returns the newest snapshot of each domain; nil means none. It must not block.
	Status func() []aggregator.Status
}

// Domain describes one domain of the proxy.
type Domain struct {
	// Name is the domain's name in events.
	Name   string
	Family service.Family
	// Auxiliary domains have state other than the kernel's rules, for example listening sockets.
	Auxiliary bool
	// Leaving returns each Service's number of draining endpoints; nil if its writer counts none.
	Leaving func() map[service.Key]int
}

// Book has the records of one proxy. It implements observe.Listener, and must receive all events from the start.
//
// Concurrency: all methods are safe for concurrent use.
type Book struct {
	Config
	// began is the time at which the book was made. The book does not measure latencies from earlier causes.
	began time.Time
	seed  maphash.Seed
	// shards have the records of the Services. Each has its own lock, so that a reader delays writers for the length of
	// one shard at most.
	shards [shardCount]shard
	// changes and lag have the durations of the last 15 minutes, and repaired the last repair.
	changes, lag recent
	repaired     atomic.Pointer[state.Repair]

	mu      sync.Mutex
	domains map[string]History
	// shadows has the Services that request frontends of other Services.
	shadows map[shadow]shaded
	// stuck has the abandoned incarnations whose goroutines did not return, even after their Services were removed.
	stuck map[incarnation]state.Affected
}

// incarnation is one life of a Service's actor.
type incarnation struct {
	key    service.Key
	number uint64
}

// New makes an empty book.
func New(config Config) *Book {
	if config.Status == nil {
		config.Status = func() []aggregator.Status { return nil }
	}
	b := &Book{
		Config: config, began: time.Now(), seed: maphash.MakeSeed(),
		domains: map[string]History{}, shadows: map[shadow]shaded{}, stuck: map[incarnation]state.Affected{},
	}
	for i := range b.shards {
		b.shards[i] = shard{records: map[service.Key]*record{}, rare: map[service.Key]*rare{}}
	}
	return b
}

// Failures are the kinds of failure of an actor.
var Failures = []string{failPanic, failError, failStuck}

const (
	failPanic = "panic"
	failError = "error"
	failStuck = "stuck"
)

// Failure returns the kind of a failure and its description; both are empty for other events.
func Failure(what supervisor.Change) (kind, text string) {
	switch e := what.(type) {
	case supervisor.Failed:
		if _, panicked := errors.AsType[*supervisor.PanicError](e.Err); panicked {
			return failPanic, e.Err.Error()
		}
		return failError, e.Err.Error()
	case supervisor.Stuck:
		return failStuck, "stuck with one message for " + e.For.Round(time.Millisecond).String()
	}
	return "", ""
}

// Supervisor records what happens to actors. A Service has a record from the first start of its actor until its end:
// no other event makes or removes one.
func (b *Book) Supervisor(event supervisor.Event[service.Key]) {
	now, key, life := time.Now(), event.Child, incarnation{event.Child, event.Incarnation}
	if kind, text := Failure(event.What); kind != "" {
		b.updateRare(key, func(r *record, x *rare) {
			r.running = false
			x.failed(now, kind, text)
		})
	}
	switch e := event.What.(type) {
	case supervisor.Started:
		b.start(key)
	case supervisor.Parked:
		a := state.Affected{Since: now}
		if e.Err != nil {
			a.Reason = state.OneLine(e.Err.Error())
		}
		b.updateRare(key, func(_ *record, x *rare) { x.parked, x.parkedUntil = a, e.Until })
	case supervisor.Unparked:
		b.updateRare(key, func(_ *record, x *rare) { x.parked, x.parkedUntil = state.Affected{}, time.Time{} })
	case supervisor.Stuck:
		b.mu.Lock()
		defer b.mu.Unlock()
		b.stuck[life] = state.Affected{Since: now,
			Reason: fmt.Sprintf("incarnation %d spent %v on one message", event.Incarnation, e.For.Round(time.Millisecond))}
	case supervisor.Returned:
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.stuck, life)
	case supervisor.Ended:
		b.end(key)
	}
}

// Aggregator records changes of Services, writes, audits and repairs.
func (b *Book) Aggregator(event aggregator.Event) {
	switch e := event.(type) {
	case aggregator.Applied:
		b.applied(&e)
	case aggregator.Quarantined:
		if d := b.indexOf(e.Domain); d >= 0 {
			b.update(e.Key, func(r *record) { r.note(rejectedStep(d, &e)) })
		}
	case aggregator.BatchWritten:
		b.wrote(time.Now(), &e)
	case aggregator.AuditDone:
		b.audited(time.Now(), &e)
	case aggregator.RepairBegan:
		b.repaired.Store(&state.Repair{At: time.Now().UTC(), Domain: e.Domain, By: e.By.String(), Objects: e.Undone.Count(),
			Services: e.Undone.Services, Examples: e.Examples})
	}
}

// indexOf returns the position of a domain; -1 for one that is not in Domains.
func (b *Book) indexOf(name string) int {
	return slices.IndexFunc(b.Domains, func(d Domain) bool { return d.Name == name })
}

// applied records that the kernel has a revision of a Service.
func (b *Book) applied(e *aggregator.Applied) {
	d := b.indexOf(e.Domain)
	if d < 0 {
		return
	}
	triggered, received := b.Took(e)
	change := appliedStep(d, e, triggered >= 0)
	rules := !b.Domains[d].Auxiliary
	if rules && e.Key == service.Node {
		return
	}
	if rules {
		b.countRecent(e, triggered, received)
	}
	b.update(e.Key, func(r *record) {
		if rules {
			r.applied(e.At, e.Revision, triggered, received)
		}
		r.note(change)
	})
}

// Took returns how long a change took from its cause in the cluster, by the clock of the cluster, and from its receipt.
// An unknown duration is negative. As in kube-proxy, triggered is unknown if the cause is older than the process.
func (b *Book) Took(e *aggregator.Applied) (triggered, received time.Duration) {
	if triggered = since(e.Trigger, e.At); e.Trigger.Before(b.began) {
		triggered = unknown
	}
	return triggered, since(e.Received, e.At)
}

// unknown stands for a duration that is not known.
const unknown = time.Duration(-1)

// since returns the time between two moments, or unknown. A trigger comes from another clock: if it
// seems to be after the end, since returns 0.
func since(start, end time.Time) time.Duration {
	if start.IsZero() {
		return unknown
	}
	return max(0, end.Sub(start))
}

// Actors records Services that are too large.
func (b *Book) Actors(event actors.Event) {
	now := time.Now()
	switch e := event.(type) {
	case actors.TooLarge:
		b.updateRare(e.Key, func(_ *record, x *rare) { x.large = state.Affected{Since: now, Reason: e.Excess.String()} })
	case actors.Fits:
		b.updateRare(e.Key, func(_ *record, x *rare) { x.large = state.Affected{} })
	}
}

// Source records frontends that several Services request.
func (b *Book) Source(e source.Shadowed) {
	at, change := shadow{e.Key, e.By}, len(e.Frontends)
	b.mu.Lock()
	defer b.mu.Unlock()
	known, found := b.shadows[at]
	switch {
	case e.Over:
		change = -change
	case !found && len(b.shadows) >= shadowsMax:
		return
	case !found:
		known.since = time.Now()
	}
	if known.frontends += change; known.frontends <= 0 {
		delete(b.shadows, at)
		return
	}
	b.shadows[at] = known
}

// shadowsMax bounds the shadows that the book remembers: one Service can request the addresses of all others.
const shadowsMax = 1000

// shadow is a Service and another one that owns frontends which both request.
type shadow struct{ key, by service.Key }

// shaded is the number of frontends of a shadow, and the time of the first one.
type shaded struct {
	frontends int
	since     time.Time
}

// Programmed records how a Service is served in one family. It is for a proxy.ApplyObserver.
func (b *Book) Programmed(_ context.Context, family service.Family, view service.View) {
	endpoints, lacking := countEndpoints(view.Ports[family])
	b.update(view.Key, func(r *record) {
		r.families[family], r.unserved[family], r.balancing = endpoints, lacking, view.Balancing
	})
}

// FlowsDeleted records how many stale conntrack entries of Services were deleted.
func (b *Book) FlowsDeleted(services map[service.Key]int) {
	for key, deleted := range services {
		b.update(key, func(r *record) { r.flowsDeleted += uint32(deleted) })
	}
}
