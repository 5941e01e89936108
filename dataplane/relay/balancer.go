// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"net/netip"
	"sync/atomic"
)

// Balancer chooses the targets of one listener. Any goroutine calls it; no method blocks.
type Balancer interface {
	// Budget returns the budget that the next client counts against; nil for the listener's own part of
	// the relay's pools.
	Budget() *Budget
	// Targets returns where to connect a client, in the order to try. If it returns none, the relay
	// resets the connection or drops the datagram.
	Targets(client netip.AddrPort) []netip.AddrPort
	// Keeps reports whether a client's UDP session stays with its target.
	Keeps(client netip.Addr, target netip.AddrPort) bool
	// Preface returns the bytes that a target gets before the client's first byte; nil for none. The
	// client connected to the address at. TCP only.
	Preface(client, at netip.AddrPort) []byte
	// Connected is called for each new connection or session. The relay calls ended when it has ended.
	Connected(c *Connection) (ended func())
	// Failed is called when a target refused a client, did not answer, or must not be dialed
	// (*DeniedError). If again is set, the relay tries another target.
	Failed(target netip.AddrPort, err error, again bool)
	// Refused is called when a client of the listener at an address was not served, or its session was replaced.
	Refused(client, at netip.AddrPort, why Refusal)
}

// Fixed is a balancer with one target. If another Fixed replaces it, open TCP connections keep the old target.
type Fixed netip.AddrPort

// Budget implements Balancer, as do the others.
func (Fixed) Budget() *Budget                                  { return nil }
func (f Fixed) Targets(netip.AddrPort) []netip.AddrPort        { return []netip.AddrPort{netip.AddrPort(f)} }
func (f Fixed) Keeps(_ netip.Addr, target netip.AddrPort) bool { return target == netip.AddrPort(f) }
func (Fixed) Preface(_, _ netip.AddrPort) []byte               { return nil }
func (Fixed) Connected(*Connection) (ended func())             { return func() {} }
func (Fixed) Failed(netip.AddrPort, error, bool)               {}
func (Fixed) Refused(_, _ netip.AddrPort, _ Refusal)           {}

// choice contains the current balancer of a listener.
type choice struct {
	now atomic.Pointer[Balancer]
	// own is the listener's budget in a pool of the relay, for a balancer without a budget.
	own *Budget
}

func newChoice(b Balancer, of *Pool) *choice {
	c := &choice{own: of.Budget()}
	c.use(b)
	return c
}

func (c *choice) use(b Balancer) { c.now.Store(&b) }

func (c *choice) balancer() Balancer { return *c.now.Load() }

// budget returns the budget that the next client counts against.
func (c *choice) budget() *Budget {
	if b := c.balancer().Budget(); b != nil {
		return b
	}
	return c.own
}
