package service

import (
	"net/netip"
	"slices"
)

// PortView is one service port in one family, ready to be rendered.
type PortView struct {
	Name     string
	Protocol Protocol
	Port     uint16
	// NodePort is 0 when there is none.
	NodePort  uint16
	ClusterIP netip.Addr
	// ExternalIPs, LoadBalancerVIPs and SourceRanges are of this family.
	ExternalIPs      []netip.Addr
	LoadBalancerVIPs []netip.Addr
	// SourceRanges restrict the LoadBalancerVIPs; empty means no filter.
	SourceRanges []netip.Prefix
	// NodeInSourceRanges tells that this node's own address is inside one of
	// the SourceRanges.
	NodeInSourceRanges bool
	InternalLocal      bool
	ExternalLocal      bool
	// AffinitySeconds is 0 without ClientIP affinity.
	AffinitySeconds int
	// HasAny tells that a usable endpoint exists anywhere in the cluster.
	HasAny bool
	// Cluster are the endpoints for the Cluster policy, nil when no frontend
	// needs them. Sorted by their text form, without duplicates.
	Cluster []Endpoint
	// Local are the endpoints for the Local policy, nil when no frontend needs
	// them. Sorted and unique as Cluster.
	Local []Endpoint
	// Topology tells which rule chose Cluster.
	Topology Topology
	// Serving are the endpoints to which established flows may continue: all
	// that are ready or serving, on any node, whatever policy, topology and
	// termination say about new connections. Only for UDP, where stale flows
	// must be cut by hand; nil otherwise. Sorted and unique as Cluster.
	Serving []Endpoint
	// Resting are, while nothing is Serving, the endpoints that are known and do not
	// terminate: they may serve again in a moment, and what is established may wait
	// for that. Only for UDP; nil otherwise. Sorted and unique as Cluster.
	Resting []Endpoint
	// Draining are endpoints that get no new connections and keep those they have
	// until a deadline, or, for UDP, no longer than they are among Serving; only in
	// domains that drain, where the actor adds them to what was resolved, and never
	// for SCTP; nil otherwise. Sorted and unique as Cluster. One that is in Cluster or
	// Local, too, drains only at the frontends of the policy that it has left: for
	// each of them, wanted goes before draining.
	Draining []Endpoint
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

// Reachable are all endpoints that new connections may be sent to: Cluster and
// Local without duplicates, sorted as they are. The result may share memory with
// either and must not be changed.
func (p *PortView) Reachable() []Endpoint {
	if subset(p.Local, p.Cluster) {
		return p.Cluster
	}
	if len(p.Cluster) == 0 {
		return p.Local
	}
	all := make([]Endpoint, 0, len(p.Cluster)+len(p.Local))
	all = append(append(all, p.Cluster...), p.Local...)
	slices.SortFunc(all, Endpoint.Compare)
	return slices.Compact(all)
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
		a.InternalLocal == b.InternalLocal && a.ExternalLocal == b.ExternalLocal &&
		a.AffinitySeconds == b.AffinitySeconds &&
		a.HasAny == b.HasAny && a.Topology == b.Topology &&
		slices.Equal(a.Cluster, b.Cluster) &&
		slices.Equal(a.Local, b.Local) &&
		slices.Equal(a.Serving, b.Serving) &&
		slices.Equal(a.Resting, b.Resting) &&
		slices.Equal(a.Draining, b.Draining)
}

// subset reports whether every element of part is in whole. Both are sorted
// alike, so that one walk is enough.
func subset(part, whole []Endpoint) bool {
	for _, e := range part {
		i := slices.Index(whole, e)
		if i < 0 {
			return false
		}
		whole = whole[i+1:]
	}
	return true
}
