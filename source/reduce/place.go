package reduce

import (
	"hash/maphash"
	"sync/atomic"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/sluice-proxy/sluice/service"
)

// places remembers the last place of each slot, as interned does for strings. A
// cluster has few: most endpoints of a node have the same.
var places [internSlots]atomic.Pointer[service.Location]

// placeOf returns the place of an endpoint, which is shared with other endpoints there
// and not with the API object. It is nil if the endpoint has none.
func placeOf(e *discoveryv1.Endpoint) *service.Location {
	var hints discoveryv1.EndpointHints
	if e.Hints != nil {
		hints = *e.Hints
	}
	node, zone := valueOr(e.NodeName, ""), valueOr(e.Zone, "")
	if node == "" && zone == "" && len(hints.ForZones) == 0 && len(hints.ForNodes) == 0 {
		return nil
	}
	slot := &places[placeHash(node, zone, &hints)%internSlots]
	if known := slot.Load(); known != nil && isPlace(known, node, zone, &hints) {
		return known
	}
	own := &service.Location{NodeName: intern(node), Zone: intern(zone)}
	for i := range hints.ForZones {
		own.ForZones = append(own.ForZones, intern(hints.ForZones[i].Name))
	}
	for i := range hints.ForNodes {
		own.ForNodes = append(own.ForNodes, intern(hints.ForNodes[i].Name))
	}
	slot.Store(own)
	return own
}

func placeHash(node, zone string, hints *discoveryv1.EndpointHints) uint64 {
	var h maphash.Hash
	h.SetSeed(internSeed)
	add := func(s string) {
		h.WriteString(s)
		h.WriteByte(0)
	}
	add(node)
	add(zone)
	for i := range hints.ForZones {
		add(hints.ForZones[i].Name)
	}
	add("")
	for i := range hints.ForNodes {
		add(hints.ForNodes[i].Name)
	}
	return h.Sum64()
}

func isPlace(p *service.Location, node, zone string, hints *discoveryv1.EndpointHints) bool {
	if p.NodeName != node || p.Zone != zone ||
		len(p.ForZones) != len(hints.ForZones) || len(p.ForNodes) != len(hints.ForNodes) {
		return false
	}
	for i := range p.ForZones {
		if p.ForZones[i] != hints.ForZones[i].Name {
			return false
		}
	}
	for i := range p.ForNodes {
		if p.ForNodes[i] != hints.ForNodes[i].Name {
			return false
		}
	}
	return true
}
