package service

import (
	"net/netip"
	"slices"
	"time"
)

// Spec is what the API said about one Service, reduced to what a proxy needs. A
// nil *Spec means that the Service does not exist, or that it is of a kind
// which is not proxied (ExternalName, headless).
type Spec struct {
	Key Key
	// Created is metadata.creationTimestamp; the older Service wins a claim.
	Created time.Time
	// ClusterIPs holds the ClusterIP of each family; the zero Addr means none.
	ClusterIPs PerFamily[netip.Addr]
	// Ports are spec.ports in API order.
	Ports []Port
	// ExternalIPs are the parsed spec.externalIPs, canonical, without
	// duplicates, in API order.
	ExternalIPs PerFamily[[]netip.Addr]
	// LoadBalancerVIPs are status.loadBalancer.ingress[].ip whose ipMode is VIP
	// or nil, canonical, without duplicates, in API order.
	LoadBalancerVIPs PerFamily[[]netip.Addr]
	// SourceRanges are the masked spec.loadBalancerSourceRanges. Empty means
	// that nobody is refused; a prefix of length 0 empties the list.
	SourceRanges PerFamily[[]netip.Prefix]
	// InternalLocal is internalTrafficPolicy: Local.
	InternalLocal bool
	// ExternalLocal is externalTrafficPolicy: Local on a Service whose type
	// makes it count: LoadBalancer, NodePort, or ClusterIP with externalIPs.
	ExternalLocal bool
	// HealthCheckNodePort is set only for type LoadBalancer with
	// externalTrafficPolicy Local; 0 means none.
	HealthCheckNodePort uint16
	// AffinitySeconds is the ClientIP affinity timeout; 0 means no affinity.
	AffinitySeconds int
	// Scheduling is how the Service asks for its connections to be spread.
	Scheduling Scheduling
}

// Equal tells whether two specs say the same. Order counts, since it is the
// order in which frontends are rendered. Two nil specs are equal.
func (s *Spec) Equal(other *Spec) bool {
	if s == nil || other == nil {
		return s == other
	}
	for _, family := range Families {
		if !slices.Equal(s.ExternalIPs[family], other.ExternalIPs[family]) ||
			!slices.Equal(s.LoadBalancerVIPs[family], other.LoadBalancerVIPs[family]) ||
			!slices.Equal(s.SourceRanges[family], other.SourceRanges[family]) {
			return false
		}
	}
	return s.Key == other.Key && s.Created.Equal(other.Created) &&
		s.ClusterIPs == other.ClusterIPs &&
		slices.Equal(s.Ports, other.Ports) &&
		s.InternalLocal == other.InternalLocal &&
		s.ExternalLocal == other.ExternalLocal &&
		s.HealthCheckNodePort == other.HealthCheckNodePort &&
		s.AffinitySeconds == other.AffinitySeconds &&
		s.Scheduling == other.Scheduling
}

// Port is one element of spec.ports, the unit of programming. Within a Service
// it is identified by Name and Protocol.
type Port struct {
	Name     string
	Protocol Protocol
	Port     uint16
	// NodePort is 0 when the Service opens none.
	NodePort uint16
}
