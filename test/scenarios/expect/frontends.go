// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/reference"
	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
)

// kind is what sort of address a client uses. If Services share one, the smaller kind has it.
type kind uint8

const (
	clusterIP kind = iota
	nodePort
	balancer
	externalIP
)

// frontend is a port of a Service under an address that a question goes to.
type frontend struct {
	kind kind
	of   *corev1.Service
	port corev1.ServicePort
}

// frontends returns all that claim the target of a question, the one who has it first: by kind, then
// the older Service, then the smaller name.
func (s *State) frontends(q fixture.Question) ([]frontend, error) {
	var all []frontend
	for _, of := range s.services {
		if !clusterAddress(of, q.Family).IsValid() {
			continue
		}
		for _, port := range of.Spec.Ports {
			if !strings.EqualFold(string(protocolOf(&port.Protocol)), q.Protocol.String()) {
				continue
			}
			kinds, err := s.kinds(of, port, q)
			if err != nil {
				return nil, err
			}
			for _, k := range kinds {
				all = append(all, frontend{k, of, port})
			}
		}
	}
	slices.SortFunc(all, func(a, b frontend) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), a.of.CreationTimestamp.Compare(b.of.CreationTimestamp.Time), cmp.Compare(a.of.Name, b.of.Name))
	})
	return all, nil
}

// kinds tells as what a port of a Service is at the target of a question.
func (s *State) kinds(of *corev1.Service, port corev1.ServicePort, q fixture.Question) ([]kind, error) {
	var all []kind
	if q.To.Port() == uint16(port.Port) {
		if clusterAddress(of, q.Family) == q.To.Addr() {
			all = append(all, clusterIP)
		}
		if slices.Contains(addresses(of.Spec.ExternalIPs), q.To.Addr()) &&
			(s.flag("addresses.externalIPsInServiceCIDR", "false") == "true" || !s.isClusterAddress(q.Family, q.To.Addr())) {
			all = append(all, externalIP)
		}
		if slices.Contains(balancers(of), q.To.Addr()) {
			all = append(all, balancer)
		}
	}
	if port.NodePort != 0 && q.To.Port() == uint16(port.NodePort) {
		takes, err := s.takesNodePorts(q.Family, q.To.Addr())
		if err != nil {
			return nil, err
		}
		if takes {
			all = append(all, nodePort)
		}
	}
	return all, nil
}

// clusterAddress returns the ClusterIP of a family, or none: then the family has
// nothing to do with the Service.
func clusterAddress(of *corev1.Service, family service.Family) netip.Addr {
	if of.Spec.ClusterIP == "" || of.Spec.ClusterIP == corev1.ClusterIPNone || of.Spec.Type == corev1.ServiceTypeExternalName {
		return netip.Addr{}
	}
	if len(of.Spec.IPFamilies) == 0 {
		if a, ok := address(of.Spec.ClusterIP); ok && service.FamilyOf(a) == family {
			return a
		}
		return netip.Addr{}
	}
	at := slices.Index(of.Spec.IPFamilies, [...]corev1.IPFamily{service.IPv4: corev1.IPv4Protocol, service.IPv6: corev1.IPv6Protocol}[family])
	if at < 0 || at >= len(of.Spec.ClusterIPs) {
		return netip.Addr{}
	}
	a, _ := address(of.Spec.ClusterIPs[at])
	return a
}

func addresses(texts []string) []netip.Addr {
	var all []netip.Addr
	for _, text := range texts {
		if a, ok := address(text); ok {
			all = append(all, a)
		}
	}
	return all
}

// balancers returns the addresses that a load balancer leaves to the nodes.
func balancers(of *corev1.Service) []netip.Addr {
	var texts []string
	for _, ingress := range of.Status.LoadBalancer.Ingress {
		if ingress.IPMode == nil || *ingress.IPMode == corev1.LoadBalancerIPModeVIP {
			texts = append(texts, ingress.IP)
		}
	}
	return addresses(texts)
}

// local reports whether the external policy of a Service is Local. It says nothing for
// one that its type does not open to the outside.
func local(of *corev1.Service) bool {
	if of.Spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal {
		return false
	}
	return of.Spec.Type == corev1.ServiceTypeLoadBalancer || of.Spec.Type == corev1.ServiceTypeNodePort || len(of.Spec.ExternalIPs) > 0
}

// ownAddresses are names of addresses of the node.
var ownAddresses = []string{"node", "second"}

// own reports whether an address is known to be one of the node's.
func own(a netip.Addr) bool {
	return slices.ContainsFunc(ownAddresses, func(name string) bool { return fixture.MustAddress(service.FamilyOf(a), name) == a })
}

// takesNodePorts reports whether node ports answer at an address.
func (s *State) takesNodePorts(family service.Family, a netip.Addr) (bool, error) {
	if a.IsLoopback() {
		return false, unsuref("node ports at a loopback address are another matter in each mode")
	}
	if !own(a) {
		return false, nil
	}
	text := s.flag("nodeport-addresses", fixture.Both("everything"))
	if text == "" && s.options.Mode == "nftables" {
		text = "primary"
	}
	var ranges []netip.Prefix
	for word := range strings.SplitSeq(text, ",") {
		if word == "primary" {
			for _, p := range s.primary(family) {
				ranges = append(ranges, netip.PrefixFrom(p, p.BitLen()))
			}
		} else {
			ranges = append(ranges, prefixes([]string{word}, family)...)
		}
	}
	return len(ranges) == 0 || contains(ranges, a), nil
}

// primary returns the first address of the node in a family.
func (s *State) primary(family service.Family) []netip.Addr {
	if s.node == nil {
		return nil
	}
	for _, wanted := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP} {
		for _, at := range s.node.Status.Addresses {
			if a, ok := address(at.Address); ok && at.Type == wanted && service.FamilyOf(a) == family {
				return []netip.Addr{a}
			}
		}
	}
	return nil
}

// endpoints returns what the slices of a Service say about one of its ports.
func (s *State) endpoints(of *corev1.Service, port corev1.ServicePort, family service.Family) ([]reference.Endpoint, error) {
	var listed []reference.Endpoint
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
					listed = append(listed, one)
				}
			}
		}
	}
	distinct, disputed := reference.Distinct(listed)
	if len(disputed) > 0 {
		return nil, unsuref("slices say different things about %v", disputed[0])
	}
	return distinct, nil
}

var addressTypes = [...]discoveryv1.AddressType{service.IPv4: discoveryv1.AddressTypeIPv4, service.IPv6: discoveryv1.AddressTypeIPv6}

// protocolOf returns a protocol, which is TCP where none is said.
func protocolOf(p *corev1.Protocol) corev1.Protocol {
	if p == nil || *p == "" {
		return corev1.ProtocolTCP
	}
	return *p
}

func read(e discoveryv1.Endpoint, port uint16) (reference.Endpoint, bool) {
	if len(e.Addresses) == 0 {
		return reference.Endpoint{}, false
	}
	a, ok := address(e.Addresses[0])
	one := reference.Endpoint{
		At:    netip.AddrPortFrom(a, port),
		Ready: is(e.Conditions.Ready, true), Serving: is(e.Conditions.Serving, true), Terminating: is(e.Conditions.Terminating, false),
		Local: e.NodeName != nil && *e.NodeName == fixture.NodeName,
	}
	if e.Hints != nil {
		for _, zone := range e.Hints.ForZones {
			one.ForZones = append(one.ForZones, zone.Name)
		}
		for _, node := range e.Hints.ForNodes {
			one.ForNodes = append(one.ForNodes, node.Name)
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

// selection is which endpoints of a port this node sends to.
func (s *State) selection(of *corev1.Service, port corev1.ServicePort, family service.Family) (reference.Selection, error) {
	known, err := s.endpoints(of, port, family)
	zone := ""
	if s.node != nil {
		zone = s.node.Labels[corev1.LabelTopologyZone]
	}
	return reference.Select(known, fixture.NodeName, zone, reference.Zones{}), err
}
