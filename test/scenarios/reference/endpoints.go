package reference

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
)

// endpoint is an address and port that a Service may send to.
type endpoint struct {
	at                          netip.AddrPort
	ready, serving, terminating bool
	local                       bool
	zones, nodes                []string
}

// fallback tells whether it is used where nobody is ready.
func (e endpoint) fallback() bool { return !e.ready && e.serving && e.terminating }

// endpoints gives what the slices of a Service say about one of its ports.
func (s *State) endpoints(of *corev1.Service, port corev1.ServicePort, family service.Family) ([]endpoint, error) {
	found := make(map[netip.AddrPort][]endpoint)
	for _, name := range slices.Sorted(maps.Keys(s.slices)) {
		slice := s.slices[name]
		if slice.Namespace != of.Namespace || slice.Labels[discoveryv1.LabelServiceName] != of.Name ||
			slice.AddressType != addressTypes[family] {
			continue
		}
		for _, p := range slice.Ports {
			if p.Name == nil || p.Port == nil || *p.Port == 0 || *p.Name != port.Name || protocolOf(p.Protocol) != protocolOf(&port.Protocol) {
				continue
			}
			for _, e := range slice.Endpoints {
				if one, ok := read(e, uint16(*p.Port)); ok {
					found[one.at] = append(found[one.at], one)
				}
			}
		}
	}
	var all []endpoint
	for _, same := range found {
		one, err := merge(same)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b endpoint) int { return cmp.Compare(a.at.String(), b.at.String()) })
	return all, nil
}

var addressTypes = [...]discoveryv1.AddressType{service.IPv4: discoveryv1.AddressTypeIPv4, service.IPv6: discoveryv1.AddressTypeIPv6}

// protocolOf gives a protocol, which is TCP where none is said.
func protocolOf(p *corev1.Protocol) corev1.Protocol {
	if p == nil || *p == "" {
		return corev1.ProtocolTCP
	}
	return *p
}

func read(e discoveryv1.Endpoint, port uint16) (endpoint, bool) {
	if len(e.Addresses) == 0 {
		return endpoint{}, false
	}
	a, ok := address(e.Addresses[0])
	one := endpoint{
		at:    netip.AddrPortFrom(a, port),
		ready: is(e.Conditions.Ready, true), serving: is(e.Conditions.Serving, true), terminating: is(e.Conditions.Terminating, false),
		local: e.NodeName != nil && *e.NodeName == fixture.NodeName,
	}
	if e.Hints != nil {
		for _, zone := range e.Hints.ForZones {
			one.zones = append(one.zones, zone.Name)
		}
		for _, node := range e.Hints.ForNodes {
			one.nodes = append(one.nodes, node.Name)
		}
	}
	return one, ok
}

func is(condition *bool, missing bool) bool {
	if condition == nil {
		return missing
	}
	return *condition
}

// merge makes one endpoint of several with the same address and port. One that is
// ready wins, or else one that serves to its end, so that nothing unusable hides
// something usable; and of those that are ready, one that runs over one that ends.
// For anything else there is no rule.
func merge(same []endpoint) (endpoint, error) {
	for _, better := range []func(endpoint) bool{
		func(e endpoint) bool { return e.ready || e.fallback() },
		func(e endpoint) bool { return e.ready },
		func(e endpoint) bool { return !e.terminating },
	} {
		if slices.ContainsFunc(same, better) {
			same = keep(same, better)
		}
	}
	for _, other := range same[1:] {
		if !equal(same[0], other) {
			return endpoint{}, unsuref("slices say different things about %v", other.at)
		}
	}
	return same[0], nil
}

func equal(a, b endpoint) bool {
	return a.ready == b.ready && a.fallback() == b.fallback() && a.local == b.local && slices.Equal(a.zones, b.zones) && slices.Equal(a.nodes, b.nodes)
}
