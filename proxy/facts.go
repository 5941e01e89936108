// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sluice-proxy/sluice/service"
)

// DetectLocal names how packets from local pods are recognized (KubeProxyConfiguration, detectLocalMode).
type DetectLocal string

// The four modes; the empty string means ClusterCIDR.
const (
	DetectClusterCIDR         DetectLocal = "ClusterCIDR"
	DetectNodeCIDR            DetectLocal = "NodeCIDR"
	DetectBridgeInterface     DetectLocal = "BridgeInterface"
	DetectInterfaceNamePrefix DetectLocal = "InterfaceNamePrefix"
)

// NodeSettings are the configured facts about this node; facts combines them with
// the others.
type NodeSettings struct {
	// Name is the node's name in the API. Required.
	Name string
	// DetectLocal defaults to ClusterCIDR.
	DetectLocal DetectLocal
	// ClusterCIDRs is used in mode ClusterCIDR; a family without one has no
	// detection.
	ClusterCIDRs service.PerFamily[netip.Prefix]
	// Interface is the bridge's name in mode BridgeInterface, and the prefix
	// in mode InterfaceNamePrefix.
	Interface string
	// NodePortRanges limits node ports to the host's addresses inside these
	// ranges; a family without a range has no limit.
	NodePortRanges []netip.Prefix
	// NodePortPrimary adds the node's own addresses to NodePortRanges; a family with neither has no limit. While no
	// address of the node is known, node ports answer only inside the ranges.
	NodePortPrimary bool
	// MasqueradeAll asks for source NAT of all ClusterIP traffic.
	MasqueradeAll bool
	// LocalhostNodePorts lets IPv4 node ports answer on 127.0.0.0/8.
	LocalhostNodePorts bool
	// ExternalIPsInServiceCIDR serves external IPs inside the ranges of ClusterIPs.
	ExternalIPsInServiceCIDR bool
	// HostAddresses puts the host's addresses and the API server's into the facts, for domains that serve each of the
	// host's addresses separately and make Service addresses local. Other domains would render again for each change.
	HostAddresses bool
	// Address, when valid, overrides the node IP of its family.
	Address netip.Addr
	// SelfTest are the first ports of the self-test; zero without one. See Proxy.MoveSelfTest.
	SelfTest service.SelfTest
	// Limit bounds the objects of one Service.
	Limit service.Limit
}

func (s NodeSettings) validate() error {
	if s.Name == "" {
		return fmt.Errorf("node name: empty; set it with --hostname-override")
	}
	switch s.DetectLocal {
	case "", DetectClusterCIDR, DetectNodeCIDR:
	case DetectBridgeInterface, DetectInterfaceNamePrefix:
		if s.Interface == "" {
			return fmt.Errorf("detect-local mode %s: no interface name given", s.DetectLocal)
		}
	default:
		return fmt.Errorf("detect-local mode %q: must be ClusterCIDR, NodeCIDR, BridgeInterface or"+
			" InterfaceNamePrefix", s.DetectLocal)
	}
	return nil
}

// MasqueradesNode reports whether connections of the node itself to ClusterIPs are masqueraded,
// regardless of their source address.
func (s NodeSettings) MasqueradesNode() bool {
	return s.MasqueradeAll || s.DetectLocal != "" && s.DetectLocal != DetectClusterCIDR || s.ClusterCIDRs != service.PerFamily[netip.Prefix]{}
}

// detector returns the local detector of one family.
func (s NodeSettings) detector(family service.Family,
	node *service.NodeObject) service.LocalDetector {
	switch s.DetectLocal {
	case DetectNodeCIDR:
		if node == nil {
			return service.LocalDetector{}
		}
		return service.LocalDetector{CIDR: node.PodCIDRs[family]}
	case DetectBridgeInterface:
		return service.LocalDetector{Interface: s.Interface}
	case DetectInterfaceNamePrefix:
		return service.LocalDetector{Interface: s.Interface + "+"}
	default:
		return service.LocalDetector{CIDR: s.ClusterCIDRs[family]}
	}
}

// facts combines the settings, the Node object and the addresses of the host's
// interfaces into service.NodeFacts. The lock guards the inputs that change; readers take
// the finished value without it.
type facts struct {
	settings NodeSettings
	current  atomic.Pointer[service.NodeFacts]

	mu      sync.Mutex
	node    *service.NodeObject
	hosts   []netip.Addr
	cidrs   []netip.Prefix
	servers []netip.Addr
}

func newFacts(settings NodeSettings) *facts {
	f := &facts{settings: settings}
	f.current.Store(f.combine())
	return f
}

// update changes the inputs and reports whether current has changed, which is all
// that rules depend on. With any number of updating goroutines, readers of current
// never see older inputs after newer ones.
func (f *facts) update(change func(*facts)) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
	next := f.combine()
	if next.Equal(f.current.Load()) {
		return false
	}
	f.current.Store(next)
	return true
}

// setNode stores the Node object. A re-created Node has no addresses and no pod CIDRs until controllers set them, maybe
// one family after the other. So the last known ones of each family stay in use, and node ports that are limited to an
// address never answer on all addresses. The lock is held.
func (f *facts) setNode(node *service.NodeObject) {
	if f.node != nil && node != nil {
		merged := *node
		for _, family := range service.Families {
			other := func(a netip.Addr) bool { return service.FamilyOf(a) != family }
			if !slices.ContainsFunc(node.Addresses, func(a netip.Addr) bool { return !other(a) }) {
				merged.Addresses = slices.Concat(merged.Addresses, slices.DeleteFunc(slices.Clone(f.node.Addresses), other))
				merged.Internal[family] = f.node.Internal[family]
			}
			if !merged.PodCIDRs[family].IsValid() {
				merged.PodCIDRs[family] = f.node.PodCIDRs[family]
			}
		}
		node = &merged
	}
	f.node = node
}

// nodeObject returns the last Node object seen, nil before the first.
func (f *facts) nodeObject() *service.NodeObject {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.node
}

func (f *facts) combine() *service.NodeFacts {
	return f.settings.Facts(f.node, f.hosts, f.cidrs, f.servers)
}

// Facts combines the settings with the Node object (nil until it is known), the
// addresses of the host's interfaces, the ranges of ClusterIPs and the addresses of the API server.
func (s NodeSettings) Facts(node *service.NodeObject, hosts []netip.Addr,
	cidrs []netip.Prefix, servers []netip.Addr) *service.NodeFacts {
	n := &service.NodeFacts{Name: s.Name, MasqueradeAll: s.MasqueradeAll,
		LocalhostNodePorts: s.LocalhostNodePorts, ExternalIPsInServiceCIDR: s.ExternalIPsInServiceCIDR, SelfTest: s.SelfTest, Limit: s.Limit}
	if node != nil {
		n.Zone = node.Zone
		for _, a := range node.Addresses {
			if family := service.FamilyOf(a); !n.NodeIPs[family].IsValid() {
				n.NodeIPs[family] = a
			}
		}
	}
	if s.Address.IsValid() && !s.Address.IsUnspecified() {
		n.NodeIPs[service.FamilyOf(s.Address)] = s.Address
	}
	for _, c := range cidrs {
		family := service.FamilyOf(c.Addr())
		n.ServiceCIDRs[family] = append(n.ServiceCIDRs[family], c)
	}
	for _, family := range service.Families {
		n.Detect[family] = s.detector(family, node)
		n.NodePorts[family] = nodePorts(family, s, n.NodeIPs, hosts)
		if s.HostAddresses {
			n.NodePorts[family].Host = outward(family, hosts)
			n.Servers[family] = outward(family, servers)
		}
	}
	return n
}

// nodePorts returns the addresses on which node ports of a family answer.
func nodePorts(family service.Family, s NodeSettings, own service.PerFamily[netip.Addr],
	hosts []netip.Addr) service.NodePortAddresses {
	var served []netip.Addr
	if s.NodePortPrimary && own[family].IsValid() {
		served = append(served, own[family])
	}
	var ranges []netip.Prefix
	for _, r := range s.NodePortRanges {
		if service.FamilyOf(r.Addr()) == family {
			ranges = append(ranges, r)
		}
	}
	loopback := slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Addr().IsLoopback() })
	unknown := s.NodePortPrimary && own == (service.PerFamily[netip.Addr]{})
	everything := func(r netip.Prefix) bool { return r.Bits() == 0 }
	if len(ranges) == 0 && len(served) == 0 && !unknown || slices.ContainsFunc(ranges, everything) {
		return service.NodePortAddresses{All: true, Loopback: loopback}
	}
	for _, a := range hosts {
		if service.FamilyOf(a) != family ||
			a.IsLoopback() && (!s.LocalhostNodePorts || family == service.IPv6 && !s.HostAddresses) {
			continue
		}
		if slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(a) }) {
			served = append(served, a)
		}
	}
	slices.SortFunc(served, netip.Addr.Compare)
	return service.NodePortAddresses{Addresses: slices.Compact(served), Loopback: loopback}
}

// outward returns the addresses of a family at which others can reach the host:
// neither loopback nor IPv6 link-local.
func outward(family service.Family, hosts []netip.Addr) []netip.Addr {
	var found []netip.Addr
	for _, a := range hosts {
		if service.FamilyOf(a) == family && !a.IsLoopback() &&
			(family == service.IPv4 || !a.IsLinkLocalUnicast()) {
			found = append(found, a)
		}
	}
	slices.SortFunc(found, netip.Addr.Compare)
	return slices.Compact(found)
}
