// SPDX-License-Identifier: Apache-2.0

package service

import (
	"net/netip"
	"slices"
)

// View is one Service as this node should serve it: frontends, and for each
// traffic policy the endpoints to use, with topology and termination already
// decided. It is a pure function of spec, slices and node facts, and does not
// depend on the order in which slices arrived. Two equal views render to equal
// fragments.
type View struct {
	Key Key
	// Ports holds the service ports of each family in API order; a family
	// without a ClusterIP has none. No ports at all means that the Service has
	// no rules on this node.
	Ports PerFamily[[]PortView]
	// HealthCheckNodePort is 0 when the Service opens none. It is opened in
	// the families that have Ports; see HealthPort.
	HealthCheckNodePort uint16
	// Scheduling is the IPVS scheduling that the Service requests.
	Scheduling Scheduling
	// Balancing is how new connections choose their endpoints.
	Balancing Balancing
	// Adaptation says which observations of the node change weights. Shifts is set if weights change often: a table of
	// slots then keeps its size.
	Adaptation Adaptation
	Shifts     bool
	// ProxyProtocol is set if endpoints expect the client's address in a PROXY protocol header, in userspace mode.
	ProxyProtocol bool
	// FlowLog asks for records of the connections.
	FlowLog bool
	// Drain limits how long connections to removed endpoints stay open.
	Drain Drain
	// ReadyLocal is the number of distinct endpoint addresses of each family that are local and ready, over all ports:
	// what the health-check node port reports. It is 0 without a HealthCheckNodePort.
	ReadyLocal PerFamily[int]
	// Excess describes the frontends that are left out because the Service is above the limit.
	Excess Excess
}

// Equal reports whether two views are the same to every renderer and follow-up.
// Two nil views are equal.
func (v *View) Equal(other *View) bool {
	if v == nil || other == nil {
		return v == other
	}
	for _, family := range Families {
		if !slices.EqualFunc(v.Ports[family], other.Ports[family], equalPorts) {
			return false
		}
	}
	return v.Key == other.Key &&
		v.HealthCheckNodePort == other.HealthCheckNodePort &&
		v.Scheduling == other.Scheduling &&
		v.Balancing == other.Balancing && v.Adaptation == other.Adaptation && v.Shifts == other.Shifts &&
		v.ProxyProtocol == other.ProxyProtocol && v.FlowLog == other.FlowLog && v.Drain == other.Drain &&
		v.ReadyLocal == other.ReadyLocal && v.Excess == other.Excess
}

// HealthPort is the health-check node port to open in a family, or 0. A family in which the Service has no port is not
// served, and opens no health-check port.
func (v *View) HealthPort(family Family) uint16 {
	if len(v.Ports[family]) == 0 {
		return 0
	}
	return v.HealthCheckNodePort
}

// PortView is one service port in one family, ready to be rendered.
type PortView struct {
	Name     string
	Protocol Protocol
	Port     uint16
	// NodePort is 0 when there is none.
	NodePort uint16
	// ClusterIP is invalid if another Service owns it at this port.
	ClusterIP netip.Addr
	// ExternalIPs, LoadBalancerVIPs and SourceRanges are of this family.
	ExternalIPs      []netip.Addr
	LoadBalancerVIPs []netip.Addr
	// SourceRanges restrict the LoadBalancerVIPs; empty means no filter.
	SourceRanges []netip.Prefix
	// NodeInSourceRanges reports that this node's own address is inside one of
	// the SourceRanges.
	NodeInSourceRanges bool
	// DenyRanges are sources that may not reach any frontend but the ClusterIP; see Spec.
	DenyRanges []netip.Prefix
	// NoEndpoints is what the Service requests; see Unserved.
	NoEndpoints   NoEndpoints
	InternalLocal bool
	ExternalLocal bool
	// AffinitySeconds is 0 without ClientIP affinity.
	AffinitySeconds int
	// HasAny reports that a usable endpoint exists anywhere in the cluster.
	HasAny bool
	// Cluster are the endpoints for the Cluster policy, nil when no frontend
	// needs them. Sorted by address and port, without duplicates.
	Cluster []Endpoint
	// Local are the endpoints for the Local policy, nil when no frontend needs
	// them. Sorted and unique as Cluster.
	Local []Endpoint
	// Topology is the rule that chose Cluster.
	Topology Topology
	// Serving are the endpoints to which established flows may continue: all
	// that are ready or serving, on any node, regardless of policy, topology and
	// termination. Only for UDP, whose stale flows the proxy must delete; nil otherwise. Sorted and unique as Cluster.
	Serving []Endpoint
	// Avoided are suspects: endpoints that would get new connections if they answered. Sorted and unique as Cluster.
	Avoided []Endpoint
}

// AllowedSources returns the sources that may reach the LoadBalancerVIPs; nil for all.
func (p *PortView) AllowedSources() []netip.Prefix {
	if !p.NodeInSourceRanges {
		return p.SourceRanges
	}
	allowed := slices.Clone(p.SourceRanges)
	for _, vip := range p.LoadBalancerVIPs {
		// The node may use a VIP as its source.
		allowed = append(allowed, netip.PrefixFrom(vip, vip.BitLen()))
	}
	return allowed
}

// ExternallyAccessible reports whether the port answers on anything but its
// ClusterIP.
func (p *PortView) ExternallyAccessible() bool {
	return p.NodePort != 0 || len(p.ExternalIPs) > 0 || len(p.LoadBalancerVIPs) > 0
}

// UsesCluster reports whether some frontend sends to the Cluster endpoints. It is
// true for every externally accessible port, since local senders of an
// externalTrafficPolicy: Local Service are short-circuited to them.
func (p *PortView) UsesCluster() bool {
	return !p.InternalLocal || p.ExternallyAccessible()
}

// UsesLocal reports whether some frontend sends to the Local endpoints.
func (p *PortView) UsesLocal() bool {
	return p.InternalLocal || (p.ExternalLocal && p.ExternallyAccessible())
}

// ServesInternal reports whether ClusterIP traffic has somewhere to go.
func (p *PortView) ServesInternal() bool {
	return p.HasAny && (!p.InternalLocal || len(p.Local) > 0)
}

// ServesExternal reports whether external traffic from outside has somewhere to
// go.
func (p *PortView) ServesExternal() bool {
	return p.HasAny && (!p.ExternalLocal || len(p.Local) > 0)
}

// Reachable returns all endpoints to which new connections may be sent: Cluster and Local without duplicates, sorted
// like them. An endpoint in both has its weight from Cluster. The result may share memory with either list and must not
// be changed.
func (p *PortView) Reachable() []Endpoint {
	if subset(p.Local, p.Cluster) {
		return p.Cluster
	}
	if len(p.Cluster) == 0 {
		return p.Local
	}
	all := make([]Endpoint, 0, len(p.Cluster)+len(p.Local))
	all = append(append(all, p.Cluster...), p.Local...)
	slices.SortStableFunc(all, Endpoint.Compare)
	return slices.CompactFunc(all, sameEndpoint)
}

// sameIdentity reports whether both are the same service port of a Service.
func (p *PortView) sameIdentity(other *PortView) bool {
	return p.Name == other.Name && p.Protocol == other.Protocol
}

func equalPorts(a, b PortView) bool {
	return a.sameIdentity(&b) && a.Port == b.Port && a.NodePort == b.NodePort &&
		a.ClusterIP == b.ClusterIP &&
		slices.Equal(a.ExternalIPs, b.ExternalIPs) &&
		slices.Equal(a.LoadBalancerVIPs, b.LoadBalancerVIPs) &&
		slices.Equal(a.SourceRanges, b.SourceRanges) &&
		a.NodeInSourceRanges == b.NodeInSourceRanges &&
		slices.Equal(a.DenyRanges, b.DenyRanges) && a.NoEndpoints == b.NoEndpoints &&
		a.InternalLocal == b.InternalLocal && a.ExternalLocal == b.ExternalLocal &&
		a.AffinitySeconds == b.AffinitySeconds &&
		a.HasAny == b.HasAny && a.Topology == b.Topology &&
		slices.Equal(a.Cluster, b.Cluster) &&
		slices.Equal(a.Local, b.Local) &&
		slices.Equal(a.Serving, b.Serving) &&
		slices.Equal(a.Avoided, b.Avoided)
}

func sameEndpoint(a, b Endpoint) bool { return a.AddrPort == b.AddrPort }

// subset reports whether every element of part is in whole. Both are sorted
// alike, so that one walk is enough.
func subset(part, whole []Endpoint) bool {
	for _, e := range part {
		i := slices.IndexFunc(whole, func(w Endpoint) bool { return sameEndpoint(w, e) })
		if i < 0 {
			return false
		}
		whole = whole[i+1:]
	}
	return true
}
