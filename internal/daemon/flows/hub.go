// SPDX-License-Identifier: Apache-2.0

// Package flows makes a record of each connection to a Service: for the flow log, and for observers.
//
//	hub.go       subscriptions to records
//	watch.go     the kernel's events, while there are subscriptions
//	table.go     connections that have begun, and packets that were not served
//	reason.go    why packets were not served
//	log.go       the flow log
package flows

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/conntrack"
	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/internal/sleep"
	"github.com/sluice-proxy/sluice/service"
)

const (
	// observersMax bounds the observers, and queueMax the records that wait for one of them or for the flow log.
	observersMax = 8
	queueMax     = 4096
	// tryAgain is the pause after a failure to receive the kernel's events.
	tryAgain = time.Minute
	// readyPause is the pause between two checks for a failure.
	readyPause = 50 * time.Millisecond
)

// Config is what a Hub needs from the proxy. All functions may be called at any time and do not block.
type Config struct {
	// Feed delivers the kernel's events, unless Relayed.
	Feed *conntrack.Feed
	// Snapshot returns what is known of a Service, and Facts of the node.
	Snapshot func(service.Key) service.Snapshot
	Facts    func() *service.NodeFacts
	// Keys returns all Services. It is called when subscriptions change.
	Keys func() []service.Key
	// Relayed means that this process forwards the connections, and calls Put. Otherwise, the kernel forwards them.
	Relayed bool
	// Accounting means that the kernel counts packets and bytes.
	Accounting bool
	// Failed is called with the error of an attempt to watch the kernel, and with nil before the next attempt.
	Failed func(error)
}

// Filter selects the records of a subscription. Its zero value selects all.
type Filter struct {
	Namespace, Name string
	// Client is a network or an address; the zero value selects all.
	Client netip.Prefix
	// Verdicts are the selected ones; none selects all.
	Verdicts []traffic.Verdict
	// Logged selects Services that ask for a flow log.
	Logged bool
}

func (f *Filter) selects(flow *traffic.Flow) bool {
	return (!f.Client.IsValid() || f.Client.Contains(flow.Client.Addr())) &&
		(len(f.Verdicts) == 0 || slices.Contains(f.Verdicts, flow.Verdict))
}

// Subscription receives records until it is closed.
type Subscription struct {
	C      <-chan traffic.Flow
	queue  chan traffic.Flow
	filter Filter
	hub    *Hub
	lost   atomic.Uint64
	// ready is closed once the kernel is watched for it.
	ready chan struct{}
}

// Ready waits until nothing is missed from now on. It returns an error if there can be no records.
func (s *Subscription) Ready(ctx context.Context) error {
	for {
		select {
		case <-s.ready:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(readyPause):
			if err := s.hub.Problem(); err != nil {
				return err
			}
		}
	}
}

// Lost returns how many records did not fit, or may have been missed, since the last call.
func (s *Subscription) Lost() uint64 { return s.lost.Swap(0) }

// Close ends the subscription.
func (s *Subscription) Close() { s.hub.unsubscribe(s) }

// Hub passes records to the subscriptions that select them. Without a subscription, it costs nothing.
type Hub struct {
	config Config
	// wake tells Run that subscriptions or Services have changed.
	wake chan struct{}
	lost atomic.Uint64

	mu            sync.Mutex
	subscriptions []*Subscription
	// places bounds the subscriptions.
	places int
	// logged are the Services that ask for a flow log.
	logged map[service.Key]bool
	// changed are Services that have changed since Run looked, while it watches.
	changed  map[service.Key]bool
	watching bool
	// generation changes with the subscriptions.
	generation int
	failed     error
}

// New makes a hub.
func New(config Config) *Hub {
	return &Hub{
		config: config, wake: make(chan struct{}, 1), places: observersMax,
		logged: map[service.Key]bool{}, changed: map[service.Key]bool{},
	}
}

// Subscribe begins to collect records for an observer. A slow observer does not block the hub: records without room in
// its queue are lost and counted.
func (h *Hub) Subscribe(filter Filter) (*Subscription, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case len(h.subscriptions) >= h.places:
		return nil, fmt.Errorf("%d observers are connected already", observersMax)
	case h.failed != nil:
		return nil, h.failed
	}
	return h.add(filter), nil
}

// Record is Subscribe for the flow log, which has a separate place: observers, who may be connected first, do not
// prevent it.
func (h *Hub) Record(filter Filter) *Subscription {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.places++
	return h.add(filter)
}

// add adds a subscription. The caller holds the lock.
func (h *Hub) add(filter Filter) *Subscription {
	queue := make(chan traffic.Flow, queueMax)
	s := &Subscription{C: queue, queue: queue, filter: filter, hub: h, ready: make(chan struct{})}
	if h.config.Relayed {
		close(s.ready)
	}
	h.subscriptions = append(h.subscriptions, s)
	h.generation++
	h.notify()
	return s
}

func (h *Hub) unsubscribe(s *Subscription) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.subscriptions = slices.DeleteFunc(h.subscriptions, func(other *Subscription) bool { return other == s })
	h.generation++
	h.notify()
}

func (h *Hub) notify() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// Programmed implements proxy.ApplyObserver. It costs the same however many Services there are.
func (h *Hub) Programmed(_ context.Context, _ service.Family, view service.View) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.logged[view.Key]
	if view.FlowLog {
		h.logged[view.Key] = true
	} else {
		delete(h.logged, view.Key)
	}
	if h.watching {
		h.changed[view.Key] = true
	}
	if h.watching || before != view.FlowLog {
		h.notify()
	}
}

// Lost returns how many records were lost, by all subscriptions together.
func (h *Hub) Lost() uint64 { return h.lost.Load() }

// wanted reports whether a subscription selects a Service. The caller holds the lock.
func (h *Hub) wanted(key service.Key) bool {
	return slices.ContainsFunc(h.subscriptions, func(s *Subscription) bool { return h.selects(&s.filter, key) })
}

func (h *Hub) selects(f *Filter, key service.Key) bool {
	return (f.Namespace == "" || f.Namespace == key.Namespace) && (f.Name == "" || f.Name == key.Name) && (!f.Logged || h.logged[key])
}

// wants reports whether a subscription selects a Service.
func (h *Hub) wants(key service.Key) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.wanted(key)
}

// needed reports whether a subscription may select any record.
func (h *Hub) needed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.subscriptions, func(s *Subscription) bool { return !s.filter.Logged || len(h.logged) > 0 })
}

// Put passes a record to the subscriptions that select it. It does not block.
func (h *Hub) Put(flow *traffic.Flow) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.subscriptions {
		if !h.selects(&s.filter, flow.Service()) || !s.filter.selects(flow) {
			continue
		}
		select {
		case s.queue <- *flow:
		default:
			h.lose(s, 1)
		}
	}
}

// missed counts records that all subscriptions may have missed.
func (h *Hub) missed(count uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.subscriptions {
		h.lose(s, count)
	}
}

func (h *Hub) lose(s *Subscription, count uint64) {
	s.lost.Add(count)
	h.lost.Add(count)
}

// Run watches the kernel while a subscription needs it, until the context ends.
func (h *Hub) Run(ctx context.Context) {
	for ctx.Err() == nil {
		if h.config.Relayed || !h.needed() {
			select {
			case <-ctx.Done():
			case <-h.wake:
			}
			continue
		}
		if err := h.watch(ctx); err != nil && ctx.Err() == nil {
			h.fail(err)
			sleep.For(ctx, tryAgain)
			h.fail(nil)
		}
	}
}

// fail records why there can be no records.
func (h *Hub) fail(err error) {
	h.mu.Lock()
	h.failed = err
	h.mu.Unlock()
	h.config.Failed(err)
}

// Problem returns why there are no records at present.
func (h *Hub) Problem() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failed
}
