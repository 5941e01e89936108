// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Adaptation says which observations of this node may change the weights of a Service's endpoints.
type Adaptation struct {
	// SlowStart is how long a new endpoint gets fewer connections; 0 for none.
	SlowStart time.Duration
	// Outliers lets the node avoid endpoints that do not answer.
	Outliers bool
}

// ZonePolicy limits the effect of zone hints.
type ZonePolicy struct {
	// MinEndpoints is how many ready endpoints a zone needs to serve its clients alone; 0 for any number.
	MinEndpoints uint16
	// Share is the percentage of connections that stay in the zone; 0 means all.
	Share uint8
}

// Observed is what this node has observed of the endpoints of a Service that adapts. It is passed on as one more slice
// of the Service, which does not exist in the API. It is immutable.
type Observed struct {
	// Endpoints are sorted by address and port, without duplicates.
	Endpoints []ObservedEndpoint
}

// ObservedEndpoint is one endpoint. An endpoint that is not among the observed ones is new.
type ObservedEndpoint struct {
	AddrPort netip.AddrPort
	// Percent multiplies the weight; 0 means 100.
	Percent uint16
	// Suspect endpoints get no new connections as long as enough other ones do.
	Suspect bool
}

// NewPercent is the percentage of a new endpoint of a Service with slow start.
const NewPercent = 10

// observedName begins the names of slices of observations. The API allows no such name.
const observedName = "observed/"

// IsObserved reports whether a slice of this name has observations.
func IsObserved(name string) bool { return strings.HasPrefix(name, observedName) }

// ObservedSlice makes the slice of observations of a Service.
func ObservedSlice(key Key, o *Observed) *Slice {
	return &Slice{Service: key, Name: observedName + key.Name, Observed: o}
}

// observedOf returns the observations among the slices of a Service; nil without.
func observedOf(from []*Slice) *Observed {
	for _, s := range from {
		if s.Observed != nil {
			return s.Observed
		}
	}
	return nil
}

// Suspects counts the suspect endpoints among the observations of a Service.
func Suspects(from []*Slice) (n int) {
	if o := observedOf(from); o != nil {
		for i := range o.Endpoints {
			if o.Endpoints[i].Suspect {
				n++
			}
		}
	}
	return n
}

// Of returns what was observed of an endpoint.
func (o *Observed) Of(a netip.AddrPort) (e ObservedEndpoint, known bool) {
	if o == nil {
		return e, false
	}
	at, found := slices.BinarySearchFunc(o.Endpoints, a, func(e ObservedEndpoint, a netip.AddrPort) int { return e.AddrPort.Compare(a) })
	if !found {
		return e, false
	}
	return o.Endpoints[at], true
}

// Equal reports whether two observations are the same. Two nil ones are.
func (o *Observed) Equal(other *Observed) bool {
	if o == nil || other == nil {
		return o == other
	}
	return slices.Equal(o.Endpoints, other.Endpoints)
}

// suspects takes out the suspects among the chosen candidates: at most half of them, and never the last.
// If there are more, it takes out those that come first in the order of addresses.
func (s *selection) suspects() {
	if s.observed == nil {
		return
	}
	chosen := 0
	for _, why := range s.reasons {
		if why.Chosen() {
			chosen++
		}
	}
	room := chosen / 2
	for i := range s.candidates {
		if room == 0 {
			return
		}
		if e, _ := s.observed.Of(s.addrPort(&s.candidates[i])); e.Suspect && s.reasons[i].Chosen() {
			s.reasons[i] = Suspect
			room--
			s.avoid(e.AddrPort, s.candidates[i].local)
		}
	}
}

// avoid notes a suspect of the current port, in the order of addresses.
func (s *selection) avoid(at netip.AddrPort, local bool) {
	e := Endpoint{AddrPort: at, Local: local}
	if i, found := slices.BinarySearchFunc(s.avoided, e, Endpoint.Compare); !found {
		s.avoided = slices.Insert(s.avoided, i, e)
	}
}

func (s *selection) addrPort(c *candidate) netip.AddrPort {
	return netip.AddrPortFrom(s.endpoint(c).Addr, c.port)
}

// percent returns the percentage of an endpoint by the observations.
func (s *selection) percent(c *candidate) uint64 {
	switch e, known := s.observed.Of(s.addrPort(c)); {
	case s.observed == nil || known && e.Percent == 0:
		return 100
	case known:
		return uint64(e.Percent)
	case s.spec.Adaptation.SlowStart > 0:
		return NewPercent
	default:
		return 100
	}
}

// weigh sets the weights of the endpoints in scratch: weights of the API, times percentages of observations,
// times shares of a zone, if any.
func (s *selection) weigh(zone string) {
	if s.observed == nil && zone == "" || len(s.scratch) == 0 {
		return
	}
	weights, first := make([]uint64, len(s.scratch)), s.percent(&s.candidates[s.origins[0]])
	differ := false
	var here, elsewhere uint64
	for i := range weights {
		c := &s.candidates[s.origins[i]]
		percent := s.percent(c)
		differ = differ || percent != first
		weights[i] = uint64(s.scratch[i].Share()) * percent
	}
	if zone != "" {
		reduce(weights) // the product with a share and the weights of the other zone has 64 bits
	}
	for i, w := range weights {
		if s.inZone(&s.candidates[s.origins[i]], zone) {
			here += w
		} else {
			elsewhere += w
		}
	}
	if share := uint64(s.spec.Zones.Share); zone != "" && here > 0 && elsewhere > 0 {
		for i := range weights {
			if s.inZone(&s.candidates[s.origins[i]], zone) {
				weights[i] *= share * elsewhere
			} else {
				weights[i] *= (100 - share) * here
			}
		}
	}
	if s.shifted = s.shifted || differ; !differ && zone == "" {
		return
	}
	reduce(weights)
	for i := range weights {
		s.scratch[i].Weight = uint16(weights[i])
	}
}

// inZone reports whether an endpoint is meant for clients of a zone.
func (s *selection) inZone(c *candidate, zone string) bool {
	return hinted(s.endpoint(c).Where().ForZones, zone)
}

// weightBits bounds the weights of endpoints.
const weightBits = 16

// reduce divides weights by a common number, so that they fit: by their greatest common divisor, or by a larger number
// if that is not enough. None becomes 0.
func reduce(weights []uint64) {
	common, most := uint64(0), slices.Max(weights)
	for _, w := range weights {
		common = divisor(common, w)
	}
	if least := most >> weightBits; common <= least {
		common = least + 1
	}
	for i, w := range weights {
		weights[i] = max(w/common, 1)
	}
}

func divisor(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return cmp.Or(a, 1)
}
