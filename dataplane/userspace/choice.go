package userspace

import (
	"errors"
	"net/netip"
	"sync/atomic"

	"github.com/sluice-proxy/sluice/dataplane/relay"
)

// choice has the balancer of a listener. Another Service port gets another one. It implements
// relay.Balancer.
type choice struct{ atomic.Pointer[balancer] }

func (c *choice) Targets(client netip.Addr) []netip.AddrPort { return c.Load().targets(client) }
func (c *choice) Keeps(client netip.Addr, target netip.AddrPort) bool {
	return c.Load().keeps(client, target)
}
func (c *choice) Preface(client, at netip.AddrPort) []byte      { return c.Load().preface(client, at) }
func (c *choice) Connected(conn *relay.Connection) (end func()) { return c.Load().connected(conn) }
func (c *choice) Failed(target netip.AddrPort, err error, again bool) {
	b := c.Load()
	b.targetFailed(target, again)
	if denied, ok := errors.AsType[*relay.DeniedError](err); ok {
		b.registry.denied(b.port, denied)
	}
}
func (c *choice) Refused(client netip.Addr, why relay.Refusal) { c.Load().refused(client, why) }

// budget returns what the next client counts against.
func (c *choice) budget() *relay.Budget { return c.Load().budget() }
