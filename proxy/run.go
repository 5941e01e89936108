// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/internal/sleep"
	"github.com/sluice-proxy/sluice/service"
)

// Run serves until the context ends, or until a part fails that the proxy cannot
// do without. The rules stay in the kernel; the writers' own resources are
// released.
func (p *Proxy) Run(ctx context.Context) error {
	err := p.serve(ctx)
	for _, domain := range p.config.Domains {
		if domain.Writer.Close != nil {
			err = errors.Join(err, domain.Writer.Close())
		}
	}
	return err
}

func (p *Proxy) serve(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return p.supervisor.Run(ctx) })
	for i, a := range p.aggregators {
		group.Go(func() error { return a.Run(ctx) })
		if d := &p.config.Domains[i]; d.Writer.Watch != nil {
			group.Go(func() error { p.watch(ctx, d, a.AuditSoon); return nil })
		}
	}
	if follow := p.config.HostAddresses; follow != nil {
		group.Go(func() error { return stopped(ctx, follow(ctx, p.hostAddresses)) })
	}
	if follow := p.config.ServerAddresses; follow != nil {
		group.Go(func() error { return stopped(ctx, follow(ctx, p.serverAddresses)) })
	}
	group.Go(func() error {
		if p.awaitInputs(ctx) {
			p.start()
		}
		return nil
	})
	if !p.config.KeepMemory {
		group.Go(func() error { p.freeMemory(ctx); return nil })
	}
	group.Go(func() error {
		if err := stopped(ctx, p.config.Source(ctx, p.cache)); err != nil {
			return fmt.Errorf("source: %w", err)
		}
		return nil
	})
	return group.Wait()
}

// awaitInputs waits until everything is known that rules depend on: the complete
// cache, the host's addresses, and for a while the Node. It reports false if the context ended first.
func (p *Proxy) awaitInputs(ctx context.Context) bool {
	for _, known := range []<-chan struct{}{p.primed, p.hostsKnown} {
		select {
		case <-known:
		case <-ctx.Done():
			return false
		}
	}
	if p.config.NodeWait == 0 {
		return true
	}
	select {
	case <-p.nodeKnown:
	case <-time.After(p.config.NodeWait):
	case <-ctx.Done():
		return false
	}
	return true
}

// start starts the actors of exactly the Services that the cache has now, and tells
// the aggregators to wait for each of these keys before the first write. So the
// first comparison with the kernel covers every Service.
func (p *Proxy) start() {
	p.open.Store(true) // what the cache gets from now on is posted, and not in keys
	keys := append(p.cache.Keys(), service.Node)
	for _, a := range p.aggregators {
		a.Prime(keys)
	}
	p.directory.Start(keys)
}

// firstAcks is longer than all actors need to process the acks of the first write.
const firstAcks = 3 * time.Second

// spareEvery is how often the proxy checks whether an audit or a list left unused memory. The runtime keeps memory for
// long after it was last needed.
const spareEvery = time.Minute

// freeMemory returns unused memory to the system: first what only the first write needed, which is more than a third of
// the process with many Services, and later what peaks left.
func (p *Proxy) freeMemory(ctx context.Context) {
	select {
	case <-p.allSynced:
	case <-ctx.Done():
		return
	}
	for pause := firstAcks; sleep.For(ctx, pause); pause = spareEvery {
		if pause == firstAcks || spareMemory() {
			debug.FreeOSMemory()
		}
	}
}

// spareMemory reports whether more than 4 MiB, and a sixteenth of what is in use, is
// neither needed nor returned. Returning it costs a collection.
func spareMemory() bool {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/free:bytes"}, {Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64() > max(4<<20, sample[1].Value.Uint64()/16)
}

// watch keeps watching for changes that other programs make to a domain. A failure,
// such as no descriptor left for the socket, only delays their detection, so it does not end the proxy: until the watch
// works again, each retry comes with an audit.
func (p *Proxy) watch(ctx context.Context, domain *Domain, changed func(by dataplane.ForeignProcess)) {
	again := false
	sleep.Retry(ctx, func() {
		if again {
			changed(dataplane.ForeignProcess{})
		}
		again = true
		err := domain.Writer.Watch(ctx, changed)
		if ctx.Err() == nil && p.config.WatchFailed != nil {
			p.config.WatchFailed(domain.Name, err)
		}
	})
}

// stopped ignores an error that follows from the end of the context.
func stopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
