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
	// Service returns the Service to which the client of a connection sends. Exists reports whether a Service exists.
	Service func(service.Family, conntrack.Tuple) (service.Key, bool)
	Exists  func(service.Key) bool
	// Continuous reads the table every 15 s. If the kernel counts packets and bytes, it provides their totals.
	Continuous bool
	// Changed receives each change of the level. Failed receives the error of each reading of the usage, nil for success.
	// One goroutine calls both. They must not block.
	Changed func(Pressure)
	Failed  func(error)
	// Inside runs a function on a thread in the network namespace of the table; nil means that of the process.
	Inside func(func() error) error

	// look is the pause between two readings of the usage, and share is traffic.ReadingShare. Tests change both.
	look  time.Duration
	share float64
}

const (
	// lookPause is short, because a table may fill within seconds.
	lookPause = 2 * time.Second
	// continuousPause is the pause between continuous readings, and pressedPause the pause between readings under
	// pressure.
	continuousPause, pressedPause = 15 * time.Second, 30 * time.Second
	// readingTime is the maximum time of one reading. A million connections take about two seconds.
	readingTime = 30 * time.Second
)

// Traffic watches the usage of the kernel's connection table and the traffic of connections to Services. It reads
// entries only on request, under pressure, or if readings are continuous.
//
// The goroutine of Run owns the state. Other goroutines receive immutable values.
type Traffic struct {
	config   TrafficConfig
	pressure atomic.Pointer[Pressure]
	// last is a copy of newest for other goroutines; nil unless Continuous.
	last  atomic.Pointer[traffic.Flows]
	asked chan question

	// Only Run uses the following fields.
	account *account
	now     Pressure
	newest  *traffic.Flows
	// rest is the earliest time of the next reading.
	rest time.Time
}

// question is a request for a reading that ended after the given time.
type question struct {
	after  time.Time
	answer chan<- answer // with a buffer of one
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

// Pressure returns the state of the connection table, which Traffic updates every 2 s. It does not block.
func (t *Traffic) Pressure() Pressure { return *t.pressure.Load() }

// Last returns the last continuous reading. It returns nil before the first reading, after a failed one, and unless
// Continuous. It does not block.
func (t *Traffic) Last() *traffic.Flows { return t.last.Load() }

// Flows returns the connections to Services, as of at most age ago. It reads the table if necessary. Because readings
// take at most 2 % of the time, it returns the last reading, which may be older, if the next one may not begin yet. It
// blocks for the length of a reading, and without Run until the context ends.
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
	t.rest = time.Now().Add(t.config.look) // the first reading of entries does not delay the start
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

// look reads the usage of the table, and its entries if they are due. It reports failures.
func (t *Traffic) look(ctx context.Context) {
	usage, err := conntrack.ReadUsage(ctx, t.config.Inside)
	if err == nil {
		err = t.follow(ctx, usage)
	}
	if t.config.Failed != nil && ctx.Err() == nil {
		t.config.Failed(err)
	}
}

// follow publishes the pressure before a reading of the entries and after it, because a large table takes a second.
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

// due reports whether it is time to read the table's entries.
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
