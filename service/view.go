package service

import (
	"net/netip"
	"time"
)

// View is one Service as this node should serve it: frontends, and for each
// traffic policy the endpoints to use, with topology and termination already
// decided. It is a pure function of spec, slices and node facts, and does not
// depend on the order in which slices arrived. Two equal views render to equal
// fragments.
type View struct {
	Key Key
	// Created is the Service's creation time; it decides claims.
	Created time.Time
	// Ports holds the service ports of each family in API order; a family
	// without a ClusterIP has none. No ports at all means that the Service has
	// no rules on this node.
	Ports PerFamily[[]PortView]
	// HealthCheckNodePort is 0 when the Service opens none.
	HealthCheckNodePort uint16
	// ReadyLocal is the number of distinct endpoint addresses of each family
	// that are local and ready, over all ports: what the health-check node
	// port reports.
	ReadyLocal PerFamily[int]
}

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
}

// Endpoint is one address and port behind a service port.
type Endpoint struct {
	AddrPort netip.AddrPort
	// Local tells that it runs on this node.
	Local bool
}

// String gives the identity of the endpoint as rule comments show it:
// "10.0.0.1:80" or "[fd00::1]:80".
func (e Endpoint) String() string { return e.AddrPort.String() }

// Topology tells how the Cluster endpoints of a port were chosen (KEP-2433,
// KEP-3015).
type Topology uint8

// The topology rules, in the order in which they are tried.
const (
	// TopologyNone keeps every ready endpoint.
	TopologyNone Topology = iota
	// TopologySameNode keeps the endpoints that are hinted for this node.
	TopologySameNode
	// TopologySameZone keeps the endpoints that are hinted for this zone.
	TopologySameZone
	// TopologyTerminating is the fallback to endpoints that still serve while
	// they terminate, because no endpoint is ready.
	TopologyTerminating
)

// String names the rule for people.
func (t Topology) String() string {
	return [...]string{"none", "same node", "same zone", "serving while terminating"}[t]
}

// ExternallyAccessible tells whether the port answers on anything but its
// ClusterIP.
func (p *PortView) ExternallyAccessible() bool {
	return p.NodePort != 0 || len(p.ExternalIPs) > 0 || len(p.LoadBalancerVIPs) > 0
}

// UsesCluster tells whether some frontend sends to the Cluster endpoints. It is
// true for every externally accessible port, since local senders of an
// externalTrafficPolicy: Local Service are short-circuited to them.
func (p *PortView) UsesCluster() bool {
	return !p.InternalLocal || p.ExternallyAccessible()
}

// UsesLocal tells whether some frontend sends to the Local endpoints.
func (p *PortView) UsesLocal() bool {
	return p.InternalLocal || (p.ExternalLocal && p.ExternallyAccessible())
}

// ServesInternal tells whether ClusterIP traffic has somewhere to go.
func (p *PortView) ServesInternal() bool {
	return p.HasAny && (!p.InternalLocal || len(p.Local) > 0)
}

// ServesExternal tells whether external traffic from outside has somewhere to
// go.
func (p *PortView) ServesExternal() bool {
	return p.HasAny && (!p.ExternalLocal || len(p.Local) > 0)
}
