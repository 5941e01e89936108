package reference

import (
	"net/netip"
	"strings"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
)

// client is who asks, as the node sees it.
type client struct {
	address netip.Addr
	// node is set for a process of the node.
	node bool
	// detect is set if the proxy knows how to tell local pods, and pod if the
	// client is one of them by that.
	detect, pod bool
	// far is set for a client that the other node has a shorter way back to.
	far bool
}

func (s *State) client(q fixture.Question) (client, error) {
	c := client{node: q.From == "node", far: q.From == "p2" || q.From == "n2"}
	switch {
	case q.Source.Addr().IsValid():
		c.address = q.Source.Addr()
		if own(c.address) != c.node || (!c.node && c.address != fixture.MustAddress(q.Family, q.From)) {
			return c, unsuref("%s uses the address %v of somebody else", q.From, c.address)
		}
	case c.node && own(q.To.Addr()):
		c.address = q.To.Addr()
	case c.node:
		// The way to everything that is a Service's is the default route.
		c.address = fixture.MustAddress(q.Family, "second")
	default:
		c.address = fixture.MustAddress(q.Family, q.From)
	}
	var err error
	c.detect, c.pod, err = s.isPod(q, c)
	return c, err
}

// isPod tells whether local pods can be told, and whether a client is one.
func (s *State) isPod(q fixture.Question, c client) (detect, pod bool, err error) {
	port := map[string]string{"p1": s.options.PodPort, "a": "veth-a", "a2": "veth-a2", "x": "eth-x", "y": "eth-y", "p2": "eth0", "n2": "eth0"}[q.From]
	switch mode := s.flag("detect-local-mode", "ClusterCIDR"); mode {
	case "", "ClusterCIDR":
		detect, pod = within(strings.Split(s.flag("cluster-cidr", fixture.Both("cluster-cidr")), ","), q.Family, c.address)
	case "NodeCIDR":
		detect, pod = within(s.node.Spec.PodCIDRs, q.Family, c.address)
	case "BridgeInterface":
		detect, pod = true, port == s.flag("pod-bridge-interface", "")
	case "InterfaceNamePrefix":
		detect, pod = true, port != "" && strings.HasPrefix(port, s.flag("pod-interface-name-prefix", ""))
	default:
		err = unsuref("detect-local-mode %s", mode)
	}
	return detect, pod, err
}

// within asks the first range of a family.
func within(texts []string, family service.Family, a netip.Addr) (known, inside bool) {
	ranges := prefixes(texts, family)
	return len(ranges) > 0, len(ranges) > 0 && ranges[0].Contains(a)
}

// flag gives the value of a flag; one that is not given is "".
func (s *State) flag(name, otherwise string) string {
	value, given := s.options.Flags[name]
	switch {
	case !given:
		return otherwise
	case value == fixture.Unset:
		return ""
	default:
		return value
	}
}

// void are the flags that the reference does not understand.
var void = []string{"config", "feature-gates", "iptables-localhost-nodeports", "bind-address", "hostname-override", "proxy-mode"}

func (s *State) understood() error {
	for _, name := range void {
		if _, given := s.options.Flags[name]; given {
			return unsuref("flag %s", name)
		}
	}
	return nil
}
