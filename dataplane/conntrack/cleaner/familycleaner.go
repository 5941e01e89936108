// SPDX-License-Identifier: Apache-2.0

package cleaner

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/conntrack"
	"github.com/sluice-proxy/sluice/mailbox"
	"github.com/sluice-proxy/sluice/service"
)

// familyCleaner keeps the flows of one family clean. Its goroutine owns the table and the pace.
// Only the inbox and what is expected are shared.
type familyCleaner struct {
	family service.Family
	config Config
	open   func() kernel
	// inbox holds at most one picture per Service. It needs no separate capacity: the
	// number of actors bounds the number of Services.
	inbox    *mailbox.Mailbox[service.Key, flowPicture]
	expected *expectations
	table    *table
	pace     pace
	doubts   doubts
	again    again
	// quiet is set while nothing waits but another look, which is not worth a report if it finds nothing.
	quiet bool
}

func newFamilyCleaner(family service.Family, config Config) *familyCleaner {
	return &familyCleaner{
		family: family, config: config,
		open:     func() kernel { return node{&conntrack.Kernel{Family: family, Inside: config.Inside}} },
		inbox:    mailbox.New[service.Key](math.MaxInt, newer),
		expected: newExpectations(),
		table:    newTable(),
		pace:     pace{gather: config.Gather},
		again:    again{of: map[destination]*revisit{}},
	}
}

// run works until the context ends.
func (k *familyCleaner) run(ctx context.Context) {
	defer k.inbox.Close()
	alarm := time.NewTimer(0)
	defer alarm.Stop()
	for {
		alarm.Reset(k.act(ctx))
		select {
		case <-ctx.Done():
			return
		case <-k.inbox.Wake():
			k.note(time.Now())
		case <-alarm.C:
		}
	}
}

// note takes the waiting pictures.
func (k *familyCleaner) note(now time.Time) {
	k.quiet = false
	entries, _ := k.inbox.Take()
	for _, e := range entries {
		if e.Message.repaired {
			k.doubt()
			k.doubts.repaired(now)
		}
		k.table.put(e.Key, e.Message)
		k.table.drains.put(e.Key, e.Message.drain, now)
	}
}

// doubt makes the next sweep judge the flows of all frontends, without a pause before it.
func (k *familyCleaner) doubt() {
	k.quiet = false
	k.table.doubt()
	k.pace.hurry()
}

// act sweeps if it is time, and returns the time until the next call.
func (k *familyCleaner) act(ctx context.Context) time.Duration {
	now := time.Now()
	if k.doubts.due(now) {
		k.doubt()
	}
	if due := k.again.due(now); len(due) > 0 {
		k.quiet = k.table.waiting() == 0
		for _, d := range due {
			k.table.recheck(d, k.again.of[d].by)
		}
	}
	k.table.drains.due(now)
	switch {
	case k.quiet:
		k.pace.waiting(now.Add(-k.config.Gather))
	case k.table.waiting() > 0:
		k.pace.waiting(now)
	}
	if at := k.pace.next(); !at.IsZero() && !now.Before(at) {
		k.sweep(ctx)
	}
	wait := time.Duration(math.MaxInt64)
	for _, at := range [...]time.Time{k.pace.next(), k.doubts.at, k.again.at, k.table.drains.next()} {
		if !at.IsZero() {
			wait = min(wait, max(0, time.Until(at)))
		}
	}
	return wait
}

// sweep makes one attempt to clean what is pending, and reports it.
func (k *familyCleaner) sweep(ctx context.Context) {
	result, err := k.attempt(ctx)
	if ctx.Err() != nil {
		return // stopping is not a failure
	}
	end := time.Now()
	if err == nil {
		k.pace.swept(end, result.Took)
		k.doubts.swept(end, result.Deleted)
		k.again.swept(end, k.table.astray)
	} else {
		k.pace.failed(end, result.Took, rand.Float64())
	}
	if result.Err, result.Failures = err, k.pace.failures; err != nil || result.Deleted > 0 || !k.quiet {
		k.config.Listen(result)
	}
	k.quiet = k.quiet && err != nil
}

func (k *familyCleaner) attempt(ctx context.Context) (result Swept, err error) {
	kernel := k.open()
	defer func() { err = errors.Join(err, kernel.Close()) }()
	s, err := newSweep(k.table, k.expected, kernel, k.family, k.config.NodePorts(k.family))
	if err != nil {
		return Swept{Family: k.family, Frontends: k.table.waiting()}, err
	}
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
	s.result.Took = time.Since(s.began)
	return s.result, errors.Join(err, s.press(ctx))
}

// pace decides when to sweep. It is pure: its owner passes in what happened and the time.
//
// Changes that come together share one sweep, sweeps take a bounded share of the time
// however many flows there are, and failures back off.
type pace struct {
	// gather is how long a change waits for others.
	gather time.Duration
	// waitingSince is when the oldest waiting change arrived; zero if none waits.
	waitingSince time.Time
	// notBefore is when the next sweep may start.
	notBefore time.Time
	// failures counts the sweeps that failed since the last success.
	failures int
}

const (
	// restShare makes sweeps take at most a quarter of the time.
	restShare = 3
	// backoffMin and backoffMax bound the pause after a failed sweep, which doubles each
	// time.
	backoffMin = 100 * time.Millisecond
	backoffMax = 10 * time.Second
)

// waiting records that something must be cleaned.
func (p *pace) waiting(now time.Time) {
	if p.waitingSince.IsZero() {
		p.waitingSince = now
	}
}

// hurry lets the next sweep start without the pause after the last one. After a repair the clients
// of every Service may be astray.
func (p *pace) hurry() {
	if p.failures == 0 {
		p.notBefore = time.Time{}
	}
}

// swept records that everything that waited has been cleaned.
func (p *pace) swept(end time.Time, took time.Duration) {
	p.waitingSince, p.failures = time.Time{}, 0
	p.notBefore = end.Add(restShare * took)
}

// failed records that a sweep left something. Jitter in [0, 1) spreads the two families
// and the nodes of a cluster.
func (p *pace) failed(end time.Time, took time.Duration, jitter float64) {
	pause := min(backoffMin<<min(p.failures, 20), backoffMax)
	p.failures++
	p.notBefore = end.Add(max(pause+time.Duration(jitter*float64(pause)/2), restShare*took))
}

// next returns when to sweep; zero while nothing waits.
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
