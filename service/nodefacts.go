// SPDX-License-Identifier: Apache-2.0

package service

import (
	"net/netip"
	"slices"
)

// NodeFacts is everything that is the same for all Services of this node: the relevant parts of the Node object, the
// addresses of the host, and the settings that rules depend on. A change is posted to every actor, in a separate slot
// of its mailbox.
type NodeFacts struct {
	// Name is the node's name as the API knows it; never empty.
	Name string
	// Zone is the label topology.kubernetes.io/zone, or empty.
	Zone string
	// NodeIPs holds the node's address of each family, zero when unknown.
	NodeIPs PerFamily[netip.Addr]
	// Detect matches the traffic of local pods.
	Detect PerFamily[LocalDetector]
	// NodePorts are the addresses on which node ports answer.
	NodePorts PerFamily[NodePortAddresses]
	// MasqueradeAll asks for source NAT of all ClusterIP traffic.
	MasqueradeAll bool
	// LocalhostNodePorts lets IPv4 node ports answer on 127.0.0.0/8 (iptables; needs
	// net.ipv4.conf.all.route_localnet), or node ports on 127.0.0.1 and ::1 (userspace).
	LocalhostNodePorts bool
	// ServiceCIDRs are the ranges that ClusterIPs are allocated from.
	ServiceCIDRs PerFamily[[]netip.Prefix]
	// Servers are the addresses at which this process reaches the API server, sorted. Nil unless
	// the backend makes addresses of Services local.
	Servers PerFamily[[]netip.Addr]
	// ExternalIPsInServiceCIDR serves external IPs inside ServiceCIDRs, which are ignored otherwise.
	ExternalIPsInServiceCIDR bool
	// SelfTest is the node's self-test; zero without one.
	SelfTest SelfTest
	// Limit bounds the objects of one Service.
	Limit Limit
}

// Binds reports whether the address of a frontend becomes a local address of this node. A ClusterIP does, and a node
// port does not. An external IP or a load balancer IP must be neither an address of the node nor the API server's: at
// the API server's address, this process would connect to itself, and could not learn that the Service was deleted.
func (f *NodeFacts) Binds(e *Exposure) bool {
	addr, family := e.Addr, FamilyOf(e.Addr)
	return e.Kind == ClusterIP || !e.IsNodePort() && addr != f.NodeIPs[family] && !slices.Contains(f.NodePorts[family].Host, addr) && !slices.Contains(f.Servers[family], addr)
}

// externalIPs returns the external IPs of a Service that are served. By default, it omits those inside ServiceCIDRs:
// with them, any tenant could take over the ClusterIP of a Service that is created later, or has no endpoints.
func (f *NodeFacts) externalIPs(spec *Spec, family Family) []netip.Addr {
	all, ranges := spec.ExternalIPs[family], f.ServiceCIDRs[family]
	if f.ExternalIPsInServiceCIDR || !slices.ContainsFunc(all, func(a netip.Addr) bool { return Within(ranges, a).IsValid() }) {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(a netip.Addr) bool { return Within(ranges, a).IsValid() })
}

// Within returns the first range that contains an address; the zero Prefix if none does.
func Within(ranges []netip.Prefix, addr netip.Addr) netip.Prefix {
	for _, r := range ranges {
		if r.Contains(addr) {
			return r
		}
	}
	return netip.Prefix{}
}

// LocalDetector recognizes packets that were sent by a local pod. The zero value means that detection is not
// configured.
type LocalDetector struct {
	// CIDR matches the source address, when valid.
	CIDR netip.Prefix
	// Interface matches the input interface, when not empty. A trailing "+"
	// makes it a prefix, as in iptables.
	Interface string
}

// Configured reports whether the detector can match anything.
func (d LocalDetector) Configured() bool {
	return d.CIDR.IsValid() || d.Interface != ""
}

// NodePortAddresses says on which of the host's addresses node ports answer.
type NodePortAddresses struct {
	// All means every local address (the loopback rules of the backend apply).
	All bool
	// Addresses are the host's addresses that fall into the configured
	// ranges, sorted; used when All is false. Empty then means that node ports
	// answer nowhere.
	Addresses []netip.Addr
	// Loopback is set if a configured range begins with a loopback address, unlike 0.0.0.0/0 and ::/0. Addresses may
	// lack loopback addresses, because the rules of a backend cannot serve them.
	Loopback bool
	// Host are the host's addresses of the family, sorted, without loopback, IPv6
	// link-local and the proxy's own addresses. Nil unless the backend serves each
	// address separately.
	Host []netip.Addr
}

// served returns the number of addresses that are served separately, or 0 for a backend with one rule for all of them.
func (n *NodePortAddresses) served() int {
	if n.Host == nil || n.All {
		return len(n.Host)
	}
	return len(n.Addresses)
}

// Equal reports whether two sets of facts lead to the same rules.
func (f *NodeFacts) Equal(other *NodeFacts) bool {
	if f == nil || other == nil {
		return f == other
	}
	for _, family := range Families {
		a, b := f.NodePorts[family], other.NodePorts[family]
		if a.All != b.All || a.Loopback != b.Loopback || !slices.Equal(a.Addresses, b.Addresses) || !slices.Equal(a.Host, b.Host) ||
			!slices.Equal(f.ServiceCIDRs[family], other.ServiceCIDRs[family]) ||
			!slices.Equal(f.Servers[family], other.Servers[family]) {
			return false
		}
	}
	return f.Name == other.Name && f.Zone == other.Zone &&
		f.NodeIPs == other.NodeIPs && f.Detect == other.Detect &&
		f.MasqueradeAll == other.MasqueradeAll &&
		f.LocalhostNodePorts == other.LocalhostNodePorts &&
		f.ExternalIPsInServiceCIDR == other.ExternalIPsInServiceCIDR && f.SelfTest == other.SelfTest && f.Limit == other.Limit
}

// NodeObject is the Node object of this node, reduced to what a proxy needs. Package proxy combines it with the
// configuration and the host's addresses into NodeFacts.
type NodeObject struct {
	Name string
	// Zone is the label topology.kubernetes.io/zone.
	Zone string
	// Addresses are status.addresses: every InternalIP in order, then every ExternalIP, without unparsable ones.
	Addresses []netip.Addr
	// Internal is set for the families with an InternalIP.
	Internal PerFamily[bool]
	// PodCIDRs holds the first spec.podCIDRs entry of each family.
	PodCIDRs PerFamily[netip.Prefix]
	// Deleting is set once metadata.deletionTimestamp is set.
	Deleting bool
	// AutoscalerTaint is set while the taint
	// ToBeDeletedByClusterAutoscaler is present.
	AutoscalerTaint bool
	// Deleted means that the object no longer exists; the other fields are its last state.
	Deleted bool
}
