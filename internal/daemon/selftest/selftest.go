// SPDX-License-Identifier: Apache-2.0

// Package selftest checks that packets arrive where the rules send them. The node has a frontend that no Service of the
// API has: a port on the loopback address of each family, which the rules translate to another port, on which this
// process listens. Every minute, the process connects to the frontend (docs/design/observation.md).
package selftest

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/internal/sleep"
	"github.com/sluice-proxy/sluice/observe/state"
	"github.com/sluice-proxy/sluice/service"
)

const (
	// Interval is the default of Config.Interval.
	Interval = time.Minute
	// attempts is how often a connection is attempted before the test fails, and pause the time in between: other
	// processes may delete rules, and the proxy restores them. It is at most Config.Interval.
	attempts = 3
	pause    = time.Second
	// timeout bounds an attempt. It is at most twice Config.Interval.
	timeout = 2 * time.Second
	// settleMax is the pause before the first test.
	settleMax = 5 * time.Second
)

// Config configures a Test.
type Config struct {
	// Families are those with rules.
	Families []service.Family
	// Ports are those that the rules have. Moved is called when another process holds one of them, or one of them is a
	// NodePort of a Service, with the ports that the rules need instead.
	Ports    service.SelfTest
	Moved    func(service.SelfTest)
	NodePort func(uint16) bool
	// Right reports whether the kernel has the rules of a family, as far as the proxy knows.
	Right func(service.Family) bool
	// Interval is the time between two tests.
	Interval time.Duration
	Log      *zap.Logger
}

// Result is the outcome of the last test of a family.
type Result struct {
	// At is when the test ended; zero before the first one, and without the family.
	At time.Time
	// Took is the duration of a connection that succeeded.
	Took time.Duration
	// Err is the reason of the failure; nil if there is none. Since is when the first of the failed tests ended.
	Err   error
	Since time.Time
	// Direct is the reason why a connection without rules failed, too; nil if it did not.
	Direct error
	// Right reports that the kernel had the rules when the test failed, as far as the proxy knows.
	Right bool
	// Frontend was translated to Endpoint.
	Frontend, Endpoint netip.AddrPort
}

// Test tests the rules of a node. Any goroutine may call Results.
type Test struct {
	config Config
	// word is what the listener answers. An answer of another process counts as a failure.
	word string
	// sockets, by family; only Run uses them.
	sockets service.PerFamily[*sockets]
	ports   service.SelfTest

	mu      sync.Mutex
	results service.PerFamily[Result]
}

// New makes a test; Run runs it.
func New(config Config) *Test {
	return &Test{config: config, word: rand.Text(), ports: config.Ports}
}

// Results returns the results of the last tests. A nil Test has none.
func (t *Test) Results() (none service.PerFamily[Result]) {
	if t == nil {
		return none
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.results
}

// Run tests the rules until the context ends. Call it once they are applied: then, Services have their node ports on
// localhost, and the previous process has closed its sockets.
func (t *Test) Run(ctx context.Context) {
	defer t.close()
	t.open()
	for wait := min(settleMax, t.config.Interval); sleep.For(ctx, wait); wait = t.config.Interval {
		if t.open() {
			continue // the rules follow
		}
		for _, family := range t.config.Families {
			if t.sockets[family] != nil && serves(family) {
				t.test(ctx, family)
			} else {
				t.record(family, Result{})
			}
		}
	}
}

// test tests one family and records the result.
func (t *Test) test(ctx context.Context, family service.Family) {
	r := Result{
		Frontend: netip.AddrPortFrom(service.Loopback[family], t.ports.Frontend),
		Endpoint: netip.AddrPortFrom(service.Loopback[family], t.ports.Endpoint),
	}
	for range attempts {
		began := time.Now()
		if r.Err = t.connect(ctx, r.Frontend); r.Err == nil {
			r.Took = time.Since(began)
			break
		}
		if !sleep.For(ctx, min(pause, t.config.Interval)) {
			return
		}
	}
	if r.Err != nil {
		r.Direct, r.Right = t.connect(ctx, r.Endpoint), t.config.Right(family)
	}
	if r.At = time.Now(); ctx.Err() == nil {
		t.record(family, r)
	}
}

// record replaces the result of a family; the zero Result is for a family that the node does not have any more.
func (t *Test) record(family service.Family, r Result) {
	t.mu.Lock()
	before := t.results[family]
	if r.Err != nil {
		if r.Since = before.Since; before.Err == nil {
			r.Since = r.At
		}
	}
	t.results[family] = r
	t.mu.Unlock()
	switch {
	case r.Err != nil && before.Err == nil:
		t.config.Log.Warn("self-test failed; connections through the rules do not arrive", zap.Stringer("family", family), zap.Stringer("frontend", r.Frontend),
			zap.Stringer("endpoint", r.Endpoint), zap.Error(r.Err), zap.NamedError("direct", r.Direct), zap.Bool("rulesApplied", r.Right))
	case r.Err == nil && before.Err != nil && !r.At.IsZero():
		t.config.Log.Info("self-test passed again", zap.Stringer("family", family), zap.Duration("after", r.At.Sub(before.Since)))
	}
}

// connect opens a connection and reads the word.
func (t *Test) connect(ctx context.Context, to netip.AddrPort) error {
	ctx, cancel := context.WithTimeout(ctx, min(timeout, 2*t.config.Interval))
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", to.String())
	if err != nil {
		return err
	}
	defer conn.Close() // it was only read
	deadline, _ := ctx.Deadline()
	if err := conn.SetReadDeadline(deadline); err != nil {
		return err
	}
	switch got, err := io.ReadAll(io.LimitReader(conn, int64(len(t.word))+1)); {
	case err != nil:
		return err
	case string(got) != t.word:
		return fmt.Errorf("%s: another process answered", to)
	}
	return nil
}

// Status returns the results of the families that were tested, for the inspection API.
func (t *Test) Status() (all []state.SelfTest) {
	for family, r := range t.Results() {
		if r.At.IsZero() {
			continue
		}
		made := state.SelfTest{Family: service.Family(family).String(), At: r.At.UTC(), Passed: r.Err == nil, Micros: r.Took.Microseconds()}
		if r.Err != nil {
			made.Problem = r.Problem()
		}
		all = append(all, made)
	}
	return all
}

// Problem describes a failure.
func (r *Result) Problem() string {
	if r.Direct != nil {
		return fmt.Sprintf("this node cannot connect to itself, with or without rules: %v; %s: %v", r.Err, r.Endpoint, r.Direct)
	}
	return fmt.Sprintf("packets to %s do not arrive at %s although the rules are applied: %v; run: sluice trace --from %s --to %s --for 70s",
		r.Frontend, r.Endpoint, r.Err, r.Frontend.Addr(), r.Frontend)
}
