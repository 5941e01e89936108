// SPDX-License-Identifier: Apache-2.0

package flows

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-proxy/sluice/dataplane/conntrack"
	"github.com/sluice-proxy/sluice/dataplane/nftables/sample"
	"github.com/sluice-proxy/sluice/service"
)

const (
	// seenMax bounds the packets that wait for the watcher. Further ones fill the kernel's buffer; then some are lost.
	seenMax = 8192
	// look is the pause between two looks for packets that were not served.
	look = 250 * time.Millisecond
	// portion is the number of frontends that are added at a time.
	portion = 1000
)

// watcher watches the kernel. Its goroutine owns it.
type watcher struct {
	*Hub
	sampler *sample.Sampler // nil if there is none
	// sampled are the frontends of each Service in the sampler, and holders the number of Services with each frontend.
	sampled service.PerFamily[map[service.Key][]service.Frontend]
	holders service.PerFamily[map[service.Frontend]int]
	table   table
	// generation is the generation of the subscriptions for which the sampler has the frontends.
	generation int
}

// watch makes records until no subscription needs them.
func (h *Hub) watch(ctx context.Context) (err error) {
	heard, err := h.config.Feed.Subscribe(h.wants)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, heard.Close()) }()
	w := &watcher{Hub: h, table: newTable(), generation: -1}
	for _, family := range service.Families {
		w.sampled[family], w.holders[family] = map[service.Key][]service.Frontend{}, map[service.Frontend]int{}
	}
	if w.sampler, err = sample.Open(); err != nil {
		w.sampler = nil
		h.config.Failed(errorWithout{err})
	} else {
		defer func() { err = errors.Join(err, w.sampler.Close()) }()
	}
	if err := w.begin(); err != nil {
		return err
	}
	defer w.end()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	seen := make(chan conntrack.TableEvent, seenMax)
	lost := make(chan struct{}, 1)
	group, ctx := errgroup.WithContext(ctx)
	if w.sampler != nil {
		group.Go(func() error {
			return w.sampler.Run(ctx, func(p sample.Packet) { h.see(ctx, p, seen) }, func() {
				select {
				case lost <- struct{}{}:
				default:
				}
			})
		})
	}
	group.Go(func() error {
		defer stop()
		return w.run(ctx, heard, seen, lost)
	})
	if err = group.Wait(); errors.Is(err, context.Canceled) {
		err = nil
	}
	return err
}

// errorWithout is a failure of the sampler. Connections are still recorded.
type errorWithout struct{ error }

func (e errorWithout) Error() string {
	return "refused and dropped connections are not recorded: " + e.error.Error()
}
func (e errorWithout) Unwrap() error { return e.error }

// begin fills the sampler.
func (w *watcher) begin() error {
	w.mu.Lock()
	w.watching = true
	w.mu.Unlock()
	return w.renew()
}

// renew updates the sampler for changed Services, or for all if subscriptions changed, which are then ready.
func (w *watcher) renew() error {
	w.mu.Lock()
	generation, all := w.Hub.generation, slices.Clone(w.subscriptions)
	w.mu.Unlock()
	keys := w.news()
	if generation != w.generation {
		keys = w.config.Keys()
	}
	if err := w.follow(keys); err != nil {
		return err
	}
	w.generation = generation
	for _, s := range all {
		select {
		case <-s.ready:
		default:
			close(s.ready)
		}
	}
	return nil
}

func (w *watcher) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.watching = false
	clear(w.changed)
}

// run handles events and packets while a subscription needs records.
func (w *watcher) run(ctx context.Context, heard *conntrack.Subscription, seen <-chan conntrack.TableEvent, lost <-chan struct{}) error {
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-heard.C:
			if err := w.hear(ctx, heard); err != nil {
				return err
			}
		case packet := <-seen:
			w.packet(&packet)
		case <-lost:
			w.lost(time.Now())
		case <-ticker.C:
			w.unserved(time.Now().UTC())
		case <-w.wake:
			if !w.needed() {
				return nil
			}
			if err := w.renew(); err != nil {
				return err
			}
		}
	}
}

// hear handles the kernel's events.
func (w *watcher) hear(ctx context.Context, from *conntrack.Subscription) error {
	events, lost, err := from.Take()
	for i := range events {
		if e := &events[i]; e.Kind == conntrack.Changed && e.Closed() && w.config.Accounting {
			from.Read(ctx, e)
		}
		w.handle(&events[i])
	}
	if lost {
		w.lost(time.Now())
	}
	return err
}

// news returns the Services that have changed.
func (h *Hub) news() (keys []service.Key) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key := range h.changed {
		keys = append(keys, key)
	}
	clear(h.changed)
	return keys
}

// follow updates the frontends of Services in the sampler. A Service that no subscription selects has none there.
func (w *watcher) follow(keys []service.Key) error {
	if w.sampler == nil {
		return nil
	}
	for _, family := range service.Families {
		var add, remove []service.Frontend
		for i, key := range keys {
			var now []service.Frontend
			if w.wants(key) {
				now = frontends(family, w.config.Snapshot(key).Spec)
			}
			// Count the new ones before the old ones, so that a frontend that stays is not removed and added.
			for _, f := range now {
				if w.holders[family][f]++; w.holders[family][f] == 1 {
					add = append(add, f)
				}
			}
			for _, f := range w.sampled[family][key] {
				if w.holders[family][f]--; w.holders[family][f] == 0 {
					delete(w.holders[family], f)
					remove = append(remove, f)
				}
			}
			if w.sampled[family][key] = now; now == nil {
				delete(w.sampled[family], key)
			}
			if last := i == len(keys)-1; len(add)+len(remove) >= portion || last && len(add)+len(remove) > 0 {
				if err := w.sampler.Set(family, add, remove); err != nil {
					return err
				}
				add, remove = nil, nil
			}
		}
	}
	return nil
}

// frontends returns those that a Service has in a family, each once.
func frontends(of service.Family, spec *service.Spec) (all []service.Frontend) {
	seen := map[service.Frontend]bool{}
	spec.Claims(func(family service.Family, f service.Frontend, _ service.FrontendKind) {
		if _, denied := spec.DeniedBy(family, f); family == of && !denied && !seen[f] {
			seen[f], all = true, append(all, f)
		}
	})
	return all
}

// see passes on packets to Services that a subscription selects. It runs in the goroutine of the sampler.
func (h *Hub) see(ctx context.Context, p sample.Packet, to chan<- conntrack.TableEvent) {
	e := conntrack.TableEvent{Connection: conntrack.Connection{Protocol: p.Protocol, From: p.From, To: p.To}, At: time.Now().UTC()}
	var ok bool
	if e.Key, ok = h.config.Feed.Service(service.FamilyOf(p.To.Addr()), e.Tuple()); !ok || !h.wants(e.Key) {
		return
	}
	select {
	case to <- e:
	case <-ctx.Done():
	}
}
