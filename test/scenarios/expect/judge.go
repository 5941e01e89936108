// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/reference"
	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
)

// Judge tells how a question has to end. The error is an [Unsure].
func (s *State) Judge(q fixture.Question) (Wanted, error) {
	if err := s.understood(); err != nil {
		return Wanted{}, err
	}
	c, err := s.client(q)
	if err != nil {
		return Wanted{}, err
	}
	all, err := s.frontends(q)
	if err != nil {
		return Wanted{}, err
	}
	var w Wanted
	if len(all) == 0 {
		w, err = s.unserved(q, c)
	} else if err = contested(all); err == nil {
		w, err = s.served(all[0], q, c)
	}
	if err == nil && w.Fate != fixture.Answered && c.node && q.Protocol != service.TCP {
		// The kernel tells the sender that its packet was discarded, whatever the
		// reason.
		return w, unsuref("a datagram of the node that is not let through")
	}
	return w, err
}

// contested reports whether who has a frontend decides everything.
func contested(all []frontend) error {
	for _, other := range all[1:] {
		if (other.kind == nodePort) != (all[0].kind == nodePort) {
			return unsuref("a node port and an address that is the same")
		}
	}
	return nil
}

// served is how a question to a Service ends.
func (s *State) served(f frontend, q fixture.Question, c client) (Wanted, error) {
	set, err := s.selection(f.of, f.port, q.Family)
	if err != nil {
		return Wanted{}, err
	}
	if f.kind == balancer && !allowed(f.of, q.Family, c.address) && (set.Any || s.options.Mode == "nftables") {
		return Wanted{Fate: fixture.Silent}, nil
	}
	if f.kind != clusterIP && contains(denied(f.of, q.Family), c.address) {
		return Wanted{Fate: fixture.Silent}, nil
	}
	r := set.Route(s.traffic(f, c))
	if r.Fate != reference.Delivered {
		return s.withoutEndpoint(f, r.Fate, q, c)
	}
	w := Wanted{Sources: make(map[string]fixture.Source), Sticky: f.of.Spec.SessionAffinity == corev1.ServiceAffinityClientIP}
	for _, e := range r.To {
		name := fixture.WhoIs(e.At)
		if name == "" || name == fixture.Beyond {
			return w, unsuref("nothing is known to be at %v", e.At)
		}
		if w.Sources[name], err = seen(e, q, c, r.Masqueraded); err != nil {
			return w, err
		}
	}
	return w, nil
}

// withoutEndpoint is how a question ends that no endpoint may get.
func (s *State) withoutEndpoint(f frontend, fate reference.Fate, q fixture.Question, c client) (Wanted, error) {
	switch f.of.Annotations["sluice.dev/no-endpoints"] {
	case "reject":
		fate = reference.Refused
	case "drop":
		fate = reference.Dropped
	case "pass":
		if f.kind == clusterIP && !own(q.To.Addr()) {
			return beyond(c), nil
		}
		if f.kind == nodePort {
			return Wanted{}, unsuref("a program may listen at %v", q.To)
		}
		return s.unserved(q, c)
	}
	if fate == reference.Refused {
		return Wanted{Fate: fixture.Refused}, nil
	}
	return Wanted{Fate: fixture.Silent}, nil
}

// traffic describes a client's connections to a frontend.
func (s *State) traffic(f frontend, c client) reference.Traffic {
	t := reference.Traffic{
		Internal: f.kind == clusterIP, PolicyLocal: local(f.of), Detect: c.detect, Pod: c.pod, Node: c.node,
		MasqueradeAll: s.flag("masquerade-all", "false") == "true",
	}
	if t.Internal {
		policy := f.of.Spec.InternalTrafficPolicy
		t.PolicyLocal = policy != nil && *policy == corev1.ServiceInternalTrafficPolicyLocal
	}
	return t
}

// seen tells whom an endpoint takes for the client.
func seen(e reference.Endpoint, q fixture.Question, c client, masked bool) (fixture.Source, error) {
	onNode := own(e.At.Addr())
	switch {
	case c.node:
		return fixture.AsNode, nil
	case onNode && masked:
		return "", nil // what stays on the node does not pass where addresses are replaced
	case masked:
		return fixture.AsNode, nil
	case c.far && !contains(farPods(q.Family), e.At.Addr()):
		return fixture.AsClient, nil
	case c.far:
		return "", unsuref("the answer takes a way around the node")
	case e.At.Addr() == c.address && !e.Local:
		return "", unsuref("a pod of this node that its slice does not place here is sent to itself")
	case e.At.Addr() == c.address:
		return fixture.AsNode, nil
	default:
		return fixture.AsClient, nil
	}
}

// farPods is the range of the pods of the other node.
func farPods(family service.Family) []netip.Prefix {
	return []netip.Prefix{fixture.MustPrefix(family, "pods2")}
}

// ranges returns the source ranges of a Service in a family, nil if every source is
// allowed.
func ranges(of *corev1.Service, family service.Family) []netip.Prefix {
	all := prefixes(of.Spec.LoadBalancerSourceRanges, family)
	for _, r := range all {
		if r.Bits() == 0 {
			return nil
		}
	}
	return all
}

func allowed(of *corev1.Service, family service.Family, a netip.Addr) bool {
	all := ranges(of, family)
	return len(all) == 0 || contains(all, a)
}

// denied returns the sources that a Service denies in a family.
func denied(of *corev1.Service, family service.Family) []netip.Prefix {
	texts := strings.Split(of.Annotations["sluice.dev/deny-source-ranges"], ",")
	for i, text := range texts {
		if single, err := netip.ParseAddr(text); err == nil {
			texts[i] = netip.PrefixFrom(single, single.BitLen()).String()
		}
	}
	return prefixes(texts, family)
}

// unserved is how a question ends that is to no Service.
func (s *State) unserved(q fixture.Question, c client) (Wanted, error) {
	to := q.To.Addr()
	if own(to) {
		if q.To.Port() != fixture.ServicePort && q.To.Port() < 30000 {
			return Wanted{}, unsuref("a program may listen at %v", q.To)
		}
		return Wanted{Fate: fixture.Refused}, nil
	}
	if s.options.Mode == "nftables" {
		for _, of := range s.services {
			if clusterAddress(of, q.Family) == to {
				return Wanted{Fate: fixture.Refused}, nil
			}
		}
		if s.isClusterAddress(q.Family, to) {
			return Wanted{Fate: fixture.Silent}, nil
		}
	}
	if fixture.WhoIs(q.To) != fixture.Beyond {
		return Wanted{}, unsuref("nothing is known to be at %v", q.To)
	}
	return beyond(c), nil
}

// beyond is how a question ends that leaves the node as it came.
func beyond(c client) Wanted {
	if c.node {
		return Wanted{Sources: map[string]fixture.Source{fixture.Beyond: fixture.AsNode}}
	}
	return Wanted{Sources: map[string]fixture.Source{fixture.Beyond: fixture.AsClient}}
}

// isClusterAddress tells whether an address is inside a ServiceCIDR.
func (s *State) isClusterAddress(family service.Family, a netip.Addr) bool {
	for _, texts := range s.cidrs {
		if contains(prefixes(texts, family), a) {
			return true
		}
	}
	return false
}

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
			return c, unsuref("%s uses the address %v, which is not its own", q.From, c.address)
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

// isPod reports whether local pods can be told, and whether a client is one.
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

// flag returns the value of a flag; one that is not given is "".
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
