// SPDX-License-Identifier: Apache-2.0

// Package reference says which endpoints a node may send a connection to, and what becomes
// of the connection. It is a plain reading of the rules for node proxies: with whole-list
// filters, slow, and sharing nothing with the product, not even its types. The simulation,
// the scenarios and the tests of package service compare the product with it.
package reference

import (
	"net/netip"
	"slices"
)

// Endpoint is one endpoint as an EndpointSlice lists it.
type Endpoint struct {
	At                          netip.AddrPort
	Ready, Serving, Terminating bool
	// Local endpoints run on this node.
	Local bool
	// ForNodes and ForZones are the hints.
	ForNodes, ForZones []string
	// Weight is its share, 0 for none given, and Drains says that it is given as 0.
	Weight int
	Drains bool
	// Percent is what the node makes of the weight, 0 for 100. Suspect says that the node wants to avoid it.
	Percent int
	Suspect bool
	// Chance is the part of the connections that Select gives it.
	Chance float64
}

// Zones limits hints for zones: a zone needs Min ready endpoints, 0 for any number, and keeps Share percent of the
// connections, 0 for all.
type Zones struct{ Min, Share int }

// fallback endpoints are used where none is ready.
func (e Endpoint) fallback() bool { return !e.Ready && e.Serving && e.Terminating }

// rank orders the occurrences of one endpoint: the best one counts.
func (e Endpoint) rank() int {
	switch {
	case e.Ready && !e.Terminating:
		return 4
	case e.Ready:
		return 3
	case e.fallback():
		return 2
	case e.Serving:
		return 1
	default:
		return 0
	}
}

// Distinct removes duplicates: of several occurrences of one address and port the best
// stays, and among equals the first. The result is sorted by text.
//
// Disputed lists the addresses of which equally good occurrences differ in where they are
// or whom they are for: the rules say nothing about them.
func Distinct(listed []Endpoint) (distinct []Endpoint, disputed []netip.AddrPort) {
	best := map[netip.AddrPort][]Endpoint{}
	for _, e := range listed {
		switch same := best[e.At]; {
		case len(same) == 0 || e.rank() > same[0].rank():
			best[e.At] = []Endpoint{e}
		case e.rank() == same[0].rank():
			best[e.At] = append(same, e)
		}
	}
	for at, same := range best {
		distinct = append(distinct, same[0])
		if slices.ContainsFunc(same, func(e Endpoint) bool { return !same[0].placedAs(e) }) {
			disputed = append(disputed, at)
		}
	}
	slices.SortFunc(distinct, func(a, b Endpoint) int { return a.At.Compare(b.At) })
	return distinct, disputed
}

func (e Endpoint) placedAs(other Endpoint) bool {
	return e.Local == other.Local && slices.Equal(e.ForNodes, other.ForNodes) && slices.Equal(e.ForZones, other.ForZones)
}

// Selection is the endpoints of one service port on one node, for each traffic policy.
type Selection struct {
	Cluster, Local []Endpoint
	// Serving are those that established flows may stay with.
	Serving []Endpoint
	// Any is set if some endpoint in the cluster takes new connections.
	Any bool
}

// Select selects among distinct endpoints on a node. The zone is empty if the node has none.
func Select(all []Endpoint, node, zone string, zones Zones) Selection {
	ready := keep(all, func(e Endpoint) bool { return e.Ready })
	fallback := keep(all, Endpoint.fallback)
	here := func(e Endpoint) bool { return e.Local }
	cluster, inZone := hinted(ready, node, zone, zones)
	s := Selection{
		Cluster: cluster,
		Local:   keep(ready, here),
		Serving: keep(all, func(e Endpoint) bool { return e.Ready || e.Serving }),
		Any:     len(ready)+len(fallback) > 0,
	}
	if len(ready) == 0 {
		s.Cluster = fallback
	}
	if len(s.Local) == 0 {
		s.Local = keep(fallback, here)
	}
	s.Cluster, s.Local = withChances(trusted(undrained(s.Cluster)), inZone, zones.Share), withChances(trusted(undrained(s.Local)), nil, 0)
	return s
}

// trusted leaves out suspects, at most half of the endpoints: those with the lowest addresses.
func trusted(all []Endpoint) []Endpoint {
	left := len(all) / 2
	return keep(all, func(e Endpoint) bool {
		if e.Suspect && left > 0 {
			left--
			return false
		}
		return true
	})
}

// withChances fills in the chances. The endpoints for which inZone is true together have a share in percent, if there are
// others, too.
func withChances(all []Endpoint, inZone func(Endpoint) bool, share int) []Endpoint {
	all = slices.Clone(all)
	sum := func(of []Endpoint) (total float64) {
		for _, e := range of {
			total += e.part()
		}
		return total
	}
	whole := sum(all)
	here, there := 0.0, 0.0
	if inZone != nil {
		here = sum(keep(all, inZone))
		there = whole - here
	}
	for i, e := range all {
		switch {
		case inZone == nil || here == 0 || there == 0:
			all[i].Chance = e.part() / whole
		case inZone(e):
			all[i].Chance = e.part() / here * float64(share) / 100
		default:
			all[i].Chance = e.part() / there * (1 - float64(share)/100)
		}
	}
	return all
}

// part is what the endpoint gets in proportion to others.
func (e Endpoint) part() float64 {
	percent := e.Percent
	if percent == 0 {
		percent = 100
	}
	return float64(max(e.Weight, 1) * percent)
}

// undrained leaves out endpoints of weight 0, unless all have it.
func undrained(all []Endpoint) []Endpoint {
	if others := keep(all, func(e Endpoint) bool { return !e.Drains }); len(others) > 0 {
		return others
	}
	return all
}

// hinted returns the ready endpoints that are meant for this node, or else for its zone, or
// else all. Hints of a kind count only if every ready endpoint has one. If all are to be used because the zone has a share,
// inZone says which ones are for it.
func hinted(ready []Endpoint, node, zone string, zones Zones) (chosen []Endpoint, inZone func(Endpoint) bool) {
	for kind, hint := range []struct {
		of   func(Endpoint) []string
		mine string
	}{
		{func(e Endpoint) []string { return e.ForNodes }, node},
		{func(e Endpoint) []string { return e.ForZones }, zone},
	} {
		isMine := func(e Endpoint) bool { return hint.mine != "" && slices.Contains(hint.of(e), hint.mine) }
		mine := keep(ready, isMine)
		without := func(e Endpoint) bool { return len(hint.of(e)) == 0 }
		switch {
		case len(mine) == 0 || slices.ContainsFunc(ready, without):
		case kind == 1 && len(mine) < zones.Min:
		case kind == 1 && zones.Share > 0:
			return ready, isMine
		default:
			return mine, nil
		}
	}
	return ready, nil
}

func keep(all []Endpoint, wanted func(Endpoint) bool) (some []Endpoint) {
	for _, e := range all {
		if wanted(e) {
			some = append(some, e)
		}
	}
	return some
}

// Traffic is a connection to a frontend of a service port.
type Traffic struct {
	// Internal connections go to the ClusterIP.
	Internal bool
	// PolicyLocal is set if the traffic policy for these connections is Local.
	PolicyLocal bool
	// Detect is set if the proxy can tell local pods from others, and Pod if the client is
	// one of them by that. Node is set for clients with an address of the node.
	Detect, Pod, Node bool
	// MasqueradeAll is the setting of that name.
	MasqueradeAll bool
}

// Fate is what becomes of a connection.
type Fate uint8

// The fates of a connection to a service port. The sender of a refused one is told.
const (
	Refused Fate = iota
	Dropped
	Delivered
)

// Route says what becomes of a connection. Its To are as likely as their chances say, and see an address of
// the node instead of the client's if Masqueraded is set. (An endpoint that is sent to itself
// sees one in any case.)
type Route struct {
	Fate        Fate
	To          []Endpoint
	Masqueraded bool
}

// Route decides on a connection that no source range forbids.
func (s Selection) Route(t Traffic) Route {
	var r Route
	switch {
	case t.Internal:
		r = Route{To: s.Cluster, Masqueraded: t.MasqueradeAll || (t.Detect && !t.Pod)}
		if t.PolicyLocal {
			r.To = s.Local
		}
	case !t.PolicyLocal:
		r = Route{To: s.Cluster, Masqueraded: true}
	case t.Pod:
		r = Route{To: s.Cluster}
	case t.Node:
		r = Route{To: s.Cluster, Masqueraded: true}
	default:
		r = Route{To: s.Local}
	}
	switch {
	case !s.Any:
		return Route{Fate: Refused}
	case len(r.To) == 0:
		return Route{Fate: Dropped}
	default:
		r.Fate = Delivered
		return r
	}
}
