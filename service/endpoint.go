// SPDX-License-Identifier: Apache-2.0

package service

import (
	"net/netip"
	"slices"
	"time"
)

// Endpoint is one address and port behind a service port.
type Endpoint struct {
	AddrPort netip.AddrPort
	// Local reports that it runs on this node.
	Local bool
	// Weight is the endpoint's share of new connections, compared with other endpoints; see Share.
	Weight uint16
}

// Share returns the weight, which is 1 if none is given.
func (e Endpoint) Share() int { return max(int(e.Weight), 1) }

// String returns the identity of the endpoint as rule comments show it:
// "10.0.0.1:80" or "[fd00::1]:80".
func (e Endpoint) String() string { return e.AddrPort.String() }

// Compare orders endpoints by address, then port, the order in which they are rendered.
func (e Endpoint) Compare(other Endpoint) int { return e.AddrPort.Compare(other.AddrPort) }

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
	// Weight is that of all endpoints of the slice, 0 for none given. Drains says that they have weight 0.
	Weight uint16
	Drains bool
	// Trigger is the annotation endpoints.kubernetes.io/last-change-trigger-time:
	// the earliest moment at which the change that this slice carries was
	// caused. Zero when absent or unparsable.
	Trigger time.Time
	// Received is when the source stored the slice; zero before that.
	Received time.Time
	// Observed is set in the slice of observations, which has no endpoints; see ObservedSlice.
	Observed *Observed
}

// Equal reports whether two slices contribute the same endpoints. The times are left
// out: they say when a change was caused, not what is. Two nil slices are equal.
func (s *Slice) Equal(other *Slice) bool {
	if s == nil || other == nil {
		return s == other
	}
	return s.Service == other.Service && s.Name == other.Name &&
		s.Family == other.Family && s.Weight == other.Weight && s.Drains == other.Drains &&
		s.Observed.Equal(other.Observed) &&
		slices.Equal(s.Ports, other.Ports) &&
		slices.EqualFunc(s.Endpoints, other.Endpoints, SliceEndpoint.equal)
}

// Snapshot is what the source holds of one Service at one moment. Its values are shared and never change.
type Snapshot struct {
	// Spec is nil if the Service does not exist or is not proxied.
	Spec *Spec
	// Slices are sorted by name.
	Slices []*Slice
	// Changed is when the source last stored one of these values.
	Changed time.Time
}

// SlicePort is one port of a slice; ports without a name field or a number have
// been left out (with a warning) while reducing.
type SlicePort struct {
	Name     string
	Protocol Protocol
	Port     uint16
}

// serves reports whether the endpoints of the slice serve a service port at this port of theirs. The number of the
// service port does not matter.
func (p SlicePort) serves(port *Port) bool {
	return p.Name == port.Name && p.Protocol == port.Protocol
}

// SliceEndpoint is one endpoint of a slice. Conditions already have their
// defaults: nil ready and serving mean true, nil terminating means false.
type SliceEndpoint struct {
	// Addr is the canonical form of addresses[0].
	Addr netip.Addr
	// Location is shared by many endpoints, and immutable; nil when the API gave none. Read it with Where.
	Location    *Location
	Ready       bool
	Serving     bool
	Terminating bool
}

// Location says where an endpoint runs and whose traffic it is meant for.
type Location struct {
	// NodeName is empty when the API gave none; such an endpoint is not local.
	NodeName string
	// Zone is where the endpoint runs; no rule depends on it.
	Zone string
	// ForZones and ForNodes are the hints; empty means no hint.
	ForZones []string
	ForNodes []string
}

var nowhere Location

// Where returns the location of the endpoint, never nil.
func (e *SliceEndpoint) Where() *Location {
	if e.Location == nil {
		return &nowhere
	}
	return e.Location
}

// Equal reports whether two locations are the same.
func (p *Location) Equal(other *Location) bool {
	return p == other || p.NodeName == other.NodeName && p.Zone == other.Zone &&
		slices.Equal(p.ForZones, other.ForZones) && slices.Equal(p.ForNodes, other.ForNodes)
}

func (e SliceEndpoint) equal(other SliceEndpoint) bool {
	return e.Addr == other.Addr && e.Ready == other.Ready && e.Serving == other.Serving &&
		e.Terminating == other.Terminating && e.Where().Equal(other.Where())
}

// candidate is one occurrence of an endpoint behind a service port. It refers to
// its slice by number, so that sorting moves little and the garbage collector
// has nothing to follow.
type candidate struct {
	// slice is the position of the slice in the gathering, and index that of
	// the endpoint in the slice.
	slice, index int32
	port         uint16
	standing     standing
	// local reports that the endpoint runs on this node.
	local bool
}

// ready candidates are the normal target of new connections.
func (c *candidate) ready() bool { return c.standing >= readyTerminating }

// usable candidates may get new connections, some only if there are no better ones.
func (c *candidate) usable() bool { return c.standing >= servingTerminating }

// unfit is the reason why a candidate that is not ready is not chosen.
func (c *candidate) unfit() Reason {
	switch c.standing {
	case servingTerminating:
		return ReadyOnesFirst
	case unready:
		return NotReady
	default:
		return NotServing
	}
}

// serving candidates may keep established flows.
func (c *candidate) serving() bool { return c.standing >= unready }
