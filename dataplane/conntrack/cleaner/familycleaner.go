// SPDX-License-Identifier: Apache-2.0

package cleaner

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/conntrack"
	"github.com/sluice-proxy/sluice/internal/sleep"
	"github.com/sluice-proxy/sluice/service"
)

// familyCleaner deletes the stale flows of one family. Its goroutine owns all state except the table, which actors
// change.
type familyCleaner struct {
	family service.Family
	config Config
	open   func() kernel
	table  *table
	// wake contains a value when there is something to do. repaired is set after a repair.
	wake     chan struct{}
	repaired atomic.Bool
	pace     pace
	doubts   doubts
	again    again
	// astray contains the destinations at which sweeps found flows of clients that met no rule, since the last complete
	// sweep, each with its Service.
	astray map[destination]service.Key
}

func newFamilyCleaner(family service.Family, config Config) *familyCleaner {
	return &familyCleaner{
		family: family, config: config,
		open:   func() kernel { return node{&conntrack.Kernel{Family: family, Inside: config.Inside}} },
		table:  newTable(),
		wake:   make(chan struct{}, 1),
		pace:   pace{gather: config.Gather},
		again:  again{},
		astray: map[destination]service.Key{},
	}
}

// put stores a view of a Service. The kernel's rules may match it from now on. If it is applied, they match it.
func (k *familyCleaner) put(key service.Key, p *picture, applied bool) {
	if k.table.put(key, p, applied, time.Now()); applied {
		k.call()
	}
}

// call wakes the goroutine.
func (k *familyCleaner) call() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// run works until the context ends. The table discards later views.
func (k *familyCleaner) run(ctx context.Context) {
	defer k.table.close()
	alarm := time.NewTimer(0)
	defer alarm.Stop()
	for {
		alarm.Reset(k.act(ctx))
		select {
		case <-ctx.Done():
			return
		case <-k.wake:
			if k.repaired.Swap(false) {
				k.doubts.repaired(time.Now())
				k.doubt()
			}
		case <-alarm.C:
		}
	}
}

// doubt makes the next sweep judge the flows of all frontends, and start without a pause.
func (k *familyCleaner) doubt() {
	k.table.doubt()
	k.pace.hurry()
}

// act sweeps if it is time, and returns the duration until the next call.
func (k *familyCleaner) act(ctx context.Context) time.Duration {
	now := time.Now()
	if k.doubts.due(now) {
		k.doubt()
	}
	if waits, fresh := k.remind(now); fresh {
		k.pace.waiting(now)
	} else if waits {
		k.pace.waiting(now.Add(-k.config.Gather))
	}
	if at := k.pace.next(); !at.IsZero() && !now.Before(at) {
		k.sweep(ctx)
	}
	wait := time.Duration(math.MaxInt64)
	for _, at := range [...]time.Time{k.pace.next(), k.doubts.at, k.again.next(), k.table.next()} {
		if !at.IsZero() {
			wait = min(wait, max(0, time.Until(at)))
		}
	}
	return wait
}

// remind adds the work that is due. It reports whether any work is pending, and whether any of it is fresh.
func (k *familyCleaner) remind(now time.Time) (waits, fresh bool) {
	t := k.table
	t.mu.Lock()
	defer t.mu.Unlock()
	t.todo.fresh = t.todo.fresh && t.todo.waits()
	for _, d := range k.again.due(now) {
		t.recheck(d, k.again[d].by)
	}
	t.due(now)
	return t.todo.waits(), t.todo.fresh
}

// sweep makes one attempt at the pending work, and reports it.
func (k *familyCleaner) sweep(ctx context.Context) {
	result, fresh, err := k.attempt(ctx)
	if ctx.Err() != nil {
		return // the end of the context is no failure
	}
	end := time.Now()
	if err == nil {
		k.pace.swept(end, result.Took)
		k.doubts.swept(end, result.Deleted)
		k.again.swept(end, k.astray)
	} else {
		k.pace.failed(end, result.Took, rand.Float64())
	}
	if result.Err, result.Failures = err, k.pace.failures; err != nil || result.Deleted > 0 || fresh {
		k.config.Listen(result)
	}
}

func (k *familyCleaner) attempt(ctx context.Context) (result Swept, fresh bool, err error) {
	kernel := k.open()
	defer func() { err = errors.Join(err, kernel.Close()) }()
	s := newSweep(k.table, kernel, k.family, k.config.NodePorts(k.family), k.astray)
	if owner := k.config.Owner; owner != nil {
		s.owned = func(d destination) bool {
			f, ok := conntrack.Tuple{Protocol: d.Protocol, To: netip.AddrPortFrom(d.Addr, d.Port)}.Frontend()
			whose, owned := owner(k.family, f)
			f.Addr = netip.Addr{}
			nodePort, taken := owner(k.family, f)
			return ok && owned && (!taken || whose != nodePort)
		}
	}
	err = s.run(ctx)
	return s.result, s.todo.fresh, errors.Join(err, s.press(ctx))
}

// pace decides when to sweep. It is pure: its owner passes in events and the time.
//
// Changes within a short time share one sweep. Sweeps take a bounded share of the time, regardless of the number of
// flows. The pause after failed sweeps grows.
type pace struct {
	// gather is the time for which a change waits for further changes.
	gather time.Duration
	// waitingSince is the arrival time of the oldest pending change; zero means none.
	waitingSince time.Time
	// notBefore is the earliest start of the next sweep.
	notBefore time.Time
	// failures counts the sweeps that failed since the last success.
	failures int
}

const (
	// restShare is the ratio of the pause after a sweep to its duration. So sweeps take at most a quarter of the time.
	restShare = 3
	// backoffMin and backoffMax bound the pause after a failed sweep, which doubles with each failure.
	backoffMin = 100 * time.Millisecond
	backoffMax = 10 * time.Second
)

// waiting records a pending change.
func (p *pace) waiting(now time.Time) {
	if p.waitingSince.IsZero() {
		p.waitingSince = now
	}
}

// hurry lets the next sweep start without the pause after the last one. After a repair, clients of every Service may
// have untranslated flows.
func (p *pace) hurry() {
	if p.failures == 0 {
		p.notBefore = time.Time{}
	}
}

// swept records a sweep that completed all pending changes.
func (p *pace) swept(end time.Time, took time.Duration) {
	p.waitingSince, p.failures = time.Time{}, 0
	p.notBefore = end.Add(restShare * took)
}

// failed records an incomplete sweep. Jitter in [0, 1) separates the retries of the families and of the nodes of a
// cluster.
func (p *pace) failed(end time.Time, took time.Duration, jitter float64) {
	p.failures++
	pause := sleep.Backoff(float64(p.failures), backoffMin, backoffMax)
	p.notBefore = end.Add(max(pause+time.Duration(jitter*float64(pause)/2), restShare*took))
}

// next returns the time of the next sweep; zero means that no change is pending.
func (p *pace) next() time.Time {
	if p.waitingSince.IsZero() {
		return time.Time{}
	}
	at := p.waitingSince.Add(p.gather)
	if p.notBefore.After(at) {
		at = p.notBefore
	}
	return at
}
