// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/dataplane/iptables/rules"
	"github.com/sluice-proxy/sluice/service"
)

// place is what a rule counts for: a frontend, an endpoint, or a chain that it jumps to.
type place struct {
	frontend service.Frontend
	endpoint netip.AddrPort
	chain    string
}

// counter is a rule with its counter. Its place has everything that the rule names: the frontend that it
// matches, and the endpoint or the chain that is its target.
type counter struct {
	place
	packets uint64
}

// at returns the place for which a rule of a chain counts connections or refusals; false if it counts neither.
func (c *counter) at(chain dataplane.ID) (at place, counts bool) {
	what, nodePorts := render.CountedIn(chain)
	switch what {
	case render.CountsConnections:
		if !c.endpoint.IsValid() && !render.IsEndpoint(c.chain) {
			return place{}, false // it marks or admits packets
		}
		return place{endpoint: c.endpoint, chain: c.chain}, true
	case render.CountsNoEndpoints, render.CountsOutOfRange:
		at := place{frontend: c.frontend}
		if render.PortOf(c.chain) != "" {
			at.chain, c.chain = c.chain, "" // the chain for denied sources
		}
		if nodePorts {
			c.frontend.Addr, at.frontend.Addr = netip.Addr{}, netip.Addr{}
		}
		return at, c.chain == "" && c.frontend.Port != 0 && c.frontend.Addr.IsValid() != nodePorts
	}
	return place{}, false
}

// dispatches returns the frontend and the service port of a rule that sends a frontend to a service port.
func (c *counter) dispatches(chain dataplane.ID) (port string, f service.Frontend, ok bool) {
	what, nodePorts := render.CountedIn(chain)
	if f = c.frontend; nodePorts {
		f.Addr = netip.Addr{}
	}
	port = render.PortOf(c.chain)
	return port, f, what == render.CountsDispatch && port != "" && f.Port != 0 && f.Addr.IsValid() != nodePorts
}

// printedCounter reads a rule as "iptables-save -c" prints it, "[packets:bytes] -A CHAIN rule", or "iptables -v -S":
// "-A CHAIN match -c packets bytes target".
func printedCounter(line string) (chain string, c counter, ok bool) {
	counts, rest, ok := strings.Cut(line, "-A ")
	if counts != "" {
		packets, _, _ := strings.Cut(strings.TrimPrefix(counts, "["), ":")
		var err error
		c.packets, err = strconv.ParseUint(packets, 10, 64)
		ok = ok && err == nil
	}
	chain, text, _ := strings.Cut(rest, " ")
	if ok && strings.HasPrefix(chain, "KUBE-") {
		c.read(rules.Parse(text))
	}
	return chain, c, ok
}

// read fills the counter from a rule.
func (c *counter) read(r rules.Rule) {
	for _, m := range r.Matches {
		for _, o := range m.Options {
			switch {
			case o.Not:
			case o.Name == "-d":
				if p, err := o.Prefix(); err == nil && p.IsSingleIP() {
					c.frontend.Addr = p.Addr()
				}
			case o.Name == "-p":
				c.frontend.Protocol, _ = service.ParseProtocol(o.Arg(0))
			case o.Name == "--dport":
				if low, high, err := o.Ports(); err == nil && low == high {
					c.frontend.Port = low
				}
			case o.Name == "-c":
				c.packets, _ = strconv.ParseUint(o.Arg(0), 10, 64)
			}
		}
	}
	switch {
	case r.Target.Name == "DNAT":
		c.endpoint, _ = r.Target.DNAT()
	case strings.HasPrefix(r.Target.Name, "KUBE-"):
		c.chain = r.Target.Name
	}
}
