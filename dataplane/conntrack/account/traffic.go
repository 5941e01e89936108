// SPDX-License-Identifier: Apache-2.0

package account

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/conntrack"
	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/service"
)

// TrafficConfig configures a Traffic.
type TrafficConfig struct {
	// Service returns the Service that a connection asks for, and Exists reports whether there is a Service.
	Service func(service.Family, conntrack.Tuple) (service.Key, bool)
	Exists  func(service.Key) bool
	// Continuous reads the table every 15 s, so that totals of packets and bytes are known, if the kernel accounts.
	Continuous bool
	// Changed is called with each change of the level, and Failed with the outcome of each look at the table: nil
	// if it succeeded. Both are called from one goroutine, and must not block.
	Changed func(Pressure)
	Failed  func(error)
	// Inside runs a function on a thread in the network namespace to work in; nil is for the process's own.
	Inside func(func() error) error

	// look is the pause between two looks at the number of entries, and share is traffic.ReadingShare. Tests change them.
	look  time.Duration
	share float64
}

const (
	// lookPause is short, because a table may fill within seconds.
	lookPause = 2 * time.Second
	// continuousPause is between two readings, and pressedPause the same while the table is pressed.
	continuousPause, pressedPause = 15 * time.Second, 30 * time.Second
	// readingTime bounds one reading: a million connections take about two seconds.
	readingTime = 30 * time.Second
)

// Traffic watches the kernel's connection table: how full it is, and what connections to Services carry. It
// reads the entries themselves only when asked to, while the table is pressed, or if that is to be continuous.
//
// One goroutine, that of Run, has its state. What other goroutines get are values.
type Traffic struct {
	config   TrafficConfig
	pressure atomic.Pointer[Pressure]
	// last is newest, for other goroutines; nil unless Continuous.
	last  atomic.Pointer[traffic.Flows]
	asked chan question

	// Only Run uses what follows.
	account *account
	now     Pressure
	newest  *traffic.Flows
	// rest is the earliest time of the next reading.
	rest time.Time
}

// question asks for flows that ended after a moment.
type question struct {
	after  time.Time
	answer chan<- answer // with room for one
}

type answer struct {
	flows *traffic.Flows
	err   error
}

// NewTraffic returns a Traffic. It reads nothing until Run.
func NewTraffic(config TrafficConfig) *Traffic {
	if config.look == 0 {
		config.look = lookPause
	}
	if config.share == 0 {
		config.share = traffic.ReadingShare
	}
	t := &Traffic{config: config, asked: make(chan question), account: newAccount(config)}
	t.pressure.Store(&Pressure{})
	return t
}

// Pressure returns the state of the connection table as of the last look, which is every 2 s. It does not block.
func (t *Traffic) Pressure() Pressure { return *t.pressure.Load() }

// Last returns the last continuous reading; nil before the first one, after one that failed, and unless Continuous. It
// does not block.
func (t *Traffic) Last() *traffic.Flows { return t.last.Load() }

// Flows returns the connections to Services as of at most age ago. It reads the table for that if necessary, but
// readings take at most 2 % of the time: if the next one may not begin yet, the flows are as old as the last one. It
// blocks for the length of a reading, or until the context ends, so never while Run does not run.
func (t *Traffic) Flows(ctx context.Context, age time.Duration) (*traffic.Flows, error) {
	got := make(chan answer, 1)
	select {
	case t.asked <- question{time.Now().Add(-age), got}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	select {
	case a := <-got:
		return a.flows, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Run watches until the context ends, and then returns nil.
func (t *Traffic) Run(ctx context.Context) error {
	ticker := time.NewTicker(t.config.look)
	defer ticker.Stop()
	t.rest = time.Now().Add(t.config.look) // the first entries are read when a start is over
	t.look(ctx)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			t.look(ctx)
		case q := <-t.asked:
			var err error
			if t.newest == nil || t.newest.Ended.Before(q.after) && !time.Now().Before(t.rest) {
				err = t.read(ctx)
			}
			q.answer <- answer{t.newest, err} // nil after an error
		}
	}
}

// look reads how full the table is, and its entries if they are wanted. It reports failures.
func (t *Traffic) look(ctx context.Context) {
	usage, err := conntrack.ReadUsage(ctx, t.config.Inside)
	if err == nil {
		err = t.follow(ctx, usage)
	}
	if t.config.Failed != nil && ctx.Err() == nil {
		t.config.Failed(err)
	}
}

// follow publishes the pressure, before a reading of the entries and after it: one of a large table takes a second.
func (t *Traffic) follow(ctx context.Context, usage conntrack.Usage) (err error) {
	before := t.now.Level
	t.now = t.now.next(time.Now(), usage)
	t.publish()
	if t.due(time.Now()) {
		err = t.read(ctx)
	}
	if t.now.Level != Calm {
		t.now.Holders = t.newest
		t.publish()
	}
	if t.now.Level != before && t.config.Changed != nil {
		t.config.Changed(t.now)
	}
	return err
}

func (t *Traffic) publish() {
	now := t.now
	t.pressure.Store(&now)
}

// due reports whether the table's entries are to be read.
func (t *Traffic) due(now time.Time) bool {
	switch {
	case now.Before(t.rest):
		return false
	case t.config.Continuous && (t.newest == nil || now.Sub(t.newest.Ended) >= continuousPause):
		return true
	default:
		return t.now.Level != Calm && (t.newest == nil || t.newest.Began.Before(t.now.Since) || now.Sub(t.newest.Ended) >= pressedPause)
	}
}

// read reads the table's entries.
func (t *Traffic) read(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, readingTime)
	defer cancel()
	began := time.Now()
	defer func() {
		if t.config.Continuous {
			t.last.Store(t.newest)
		}
		t.rest = traffic.RestAfter(began, t.config.share)
	}()
	r := t.account.begin(began)
	for _, family := range service.Families {
		_, err := (&conntrack.Kernel{Family: family, Inside: t.config.Inside}).Each(ctx, conntrack.Filter{}, func(e *conntrack.Entry) error {
			r.add(family, &e.Connection)
			return nil
		})
		if err != nil {
			t.newest = nil
			return fmt.Errorf("read the connection table: %w", err)
		}
	}
	t.newest = r.end(time.Now())
	return nil
}
