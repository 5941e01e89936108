// SPDX-License-Identifier: Apache-2.0

package reduce

import (
	"hash/maphash"
	"slices"
	"strings"
	"sync/atomic"
	"weak"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/sluice-proxy/sluice/service"
)

// places refers weakly to the last location of each slot, for as long as an endpoint has it. A cluster has few
// locations: most endpoints of a node have the same one.
var places [internSlots]atomic.Pointer[weak.Pointer[service.Location]]

// placeOf returns the location of an endpoint, which is shared with other endpoints there and not with the API object.
// It is nil if the endpoint has none. API servers check some of the texts only, so those that cannot be names are left
// out.
func placeOf(n *notes, where path, e *discoveryv1.Endpoint) *service.Location {
	var hints discoveryv1.EndpointHints
	if e.Hints != nil {
		hints = *e.Hints
	}
	node := nameOr(n, where.dot("nodeName"), valueOr(e.NodeName, ""), longNameMax)
	zone := nameOr(n, where.dot("zone"), valueOr(e.Zone, ""), nameMax)
	forZones, forNodes := zoneHints(n, where, hints.ForZones), nodeHints(n, where, hints.ForNodes)
	if node == "" && zone == "" && len(forZones) == 0 && len(forNodes) == 0 {
		return nil
	}
	slot := &places[placeHash(node, zone, forZones, forNodes)%internSlots]
	if known := slot.Load(); known != nil {
		if place := known.Value(); place != nil && isPlace(place, node, zone, forZones, forNodes) {
			return place
		}
	}
	own := &service.Location{NodeName: strings.Clone(node), Zone: strings.Clone(zone)}
	for i := range forZones {
		own.ForZones = append(own.ForZones, strings.Clone(forZones[i].Name))
	}
	for i := range forNodes {
		own.ForNodes = append(own.ForNodes, strings.Clone(forNodes[i].Name))
	}
	shared := weak.Make(own)
	slot.Store(&shared)
	return own
}

// zoneHints returns the hints that can be names of zones: all of them, without a copy, as a rule.
func zoneHints(n *notes, where path, hints []discoveryv1.ForZone) []discoveryv1.ForZone {
	bad := func(h discoveryv1.ForZone) bool { return !isText(h.Name, nameMax) }
	if !slices.ContainsFunc(hints, bad) {
		return hints
	}
	return slices.DeleteFunc(slices.Clone(hints), func(h discoveryv1.ForZone) bool {
		return nameOr(n, where.dot("hints.forZones"), h.Name, nameMax) == ""
	})
}

// nodeHints is zoneHints for names of nodes.
func nodeHints(n *notes, where path, hints []discoveryv1.ForNode) []discoveryv1.ForNode {
	bad := func(h discoveryv1.ForNode) bool { return !isText(h.Name, longNameMax) }
	if !slices.ContainsFunc(hints, bad) {
		return hints
	}
	return slices.DeleteFunc(slices.Clone(hints), func(h discoveryv1.ForNode) bool {
		return nameOr(n, where.dot("hints.forNodes"), h.Name, longNameMax) == ""
	})
}

func placeHash(node, zone string, forZones []discoveryv1.ForZone, forNodes []discoveryv1.ForNode) uint64 {
	var h maphash.Hash
	h.SetSeed(internSeed)
	add := func(s string) {
		h.WriteString(s)
		h.WriteByte(0)
	}
	add(node)
	add(zone)
	for i := range forZones {
		add(forZones[i].Name)
	}
	add("")
	for i := range forNodes {
		add(forNodes[i].Name)
	}
	return h.Sum64()
}

func isPlace(p *service.Location, node, zone string, forZones []discoveryv1.ForZone, forNodes []discoveryv1.ForNode) bool {
	if p.NodeName != node || p.Zone != zone ||
		len(p.ForZones) != len(forZones) || len(p.ForNodes) != len(forNodes) {
		return false
	}
	for i := range p.ForZones {
		if p.ForZones[i] != forZones[i].Name {
			return false
		}
	}
	for i := range p.ForNodes {
		if p.ForNodes[i] != forNodes[i].Name {
			return false
		}
	}
	return true
}
