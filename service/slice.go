package service

import (
	"net/netip"
	"slices"
	"time"
)

// Slice is one EndpointSlice (discovery/v1), reduced to what a proxy needs.
type Slice struct {
	// Service is the owner: the slice's namespace and the value of its label
	// kubernetes.io/service-name.
	Service Key
	// Name is metadata.name; unique within the namespace.
	Name   string
	Family Family
	Ports  []SlicePort
	// Endpoints have at least one parsable address each.
	Endpoints []SliceEndpoint
	// Trigger is the annotation endpoints.kubernetes.io/last-change-trigger-time:
	// the earliest moment at which the change that this slice carries was
	// caused. Zero when absent or unparsable.
	Trigger time.Time
}

// Equal tells whether two slices contribute the same endpoints. Trigger is left
// out: it says when a change was caused, not what is. Two nil slices are equal.
func (s *Slice) Equal(other *Slice) bool {
	if s == nil || other == nil {
		return s == other
	}
	return s.Service == other.Service && s.Name == other.Name &&
		s.Family == other.Family &&
		slices.Equal(s.Ports, other.Ports) &&
		slices.EqualFunc(s.Endpoints, other.Endpoints, SliceEndpoint.equal)
}

// Snapshot is what the source knows about one Service at one moment. Its values
// are shared and never change.
type Snapshot struct {
	// Spec is nil if the Service does not exist or is not proxied.
	Spec *Spec
	// Slices are sorted by name.
	Slices []*Slice
}

// SlicePort is one port of a slice; ports without a name field or a number have
// been left out (with a warning) while reducing.
type SlicePort struct {
	Name     string
	Protocol Protocol
	Port     uint16
}

// serves tells whether the endpoints of the slice stand behind a service port at
// this port of theirs. The number of the service port does not matter.
func (p SlicePort) serves(port *Port) bool {
	return p.Name == port.Name && p.Protocol == port.Protocol
}

// SliceEndpoint is one endpoint of a slice. Conditions already have their
// defaults: nil ready and serving mean true, nil terminating means false.
type SliceEndpoint struct {
	// Addr is the canonical form of addresses[0].
	Addr netip.Addr
	// NodeName is empty when the API gave none; such an endpoint is not local.
	NodeName    string
	Ready       bool
	Serving     bool
	Terminating bool
	// ForZones and ForNodes are the hints; empty means no hint.
	ForZones []string
	ForNodes []string
}

func (e SliceEndpoint) equal(other SliceEndpoint) bool {
	return e.Addr == other.Addr && e.NodeName == other.NodeName &&
		e.Ready == other.Ready && e.Serving == other.Serving &&
		e.Terminating == other.Terminating &&
		slices.Equal(e.ForZones, other.ForZones) &&
		slices.Equal(e.ForNodes, other.ForNodes)
}
