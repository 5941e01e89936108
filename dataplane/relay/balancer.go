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
	// Targets returns where to connect a client, in the order to try. Without any, a connection
	// is reset and a datagram dropped.
	Targets(client netip.AddrPort) []netip.AddrPort
	// Keeps reports whether a client's UDP session stays with its target.
	Keeps(client netip.Addr, target netip.AddrPort) bool
	// Preface returns what a target is sent before the client's first byte; nil for nothing. The
	// client has connected to the address at. TCP only.
	Preface(client, at netip.AddrPort) []byte
	// Connected is told of a connection or session. Ended is called once it has ended.
	Connected(c *Connection) (ended func())
	// Failed is told that a target has refused a client, has not answered, or must not be dialed
	// (*DeniedError). Again says that another one is tried.
	Failed(target netip.AddrPort, err error, again bool)
	// Refused is told that a client of a listener at an address was not served, or that its session was replaced.
	Refused(client, at netip.AddrPort, why Refusal)
}

// Fixed is a balancer with one target. Open connections keep a former one.
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
	// own is the listener's part of a pool of the relay.
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
