package service

import "slices"

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

// chooseTopology applies the hints of the ready endpoints; the others have no
// say. A hint counts only if every ready endpoint has one of its kind and at
// least one points here, so that a rule never leaves a ready Service without
// ready endpoints. Where an endpoint itself runs does not matter: the hint
// names what it should serve.
func chooseTopology(g *gathering, facts *NodeFacts) Topology {
	var ready, usable, forNode, forZone bool
	allNodes, allZones := true, true
	for i := range g.candidates {
		c := &g.candidates[i]
		usable = usable || c.usable()
		if !c.ready() {
			continue
		}
		ready = true
		e := g.endpoint(c)
		allNodes = allNodes && len(e.ForNodes) > 0
		allZones = allZones && len(e.ForZones) > 0
		forNode = forNode || hinted(e.ForNodes, facts.Name)
		forZone = forZone || hinted(e.ForZones, facts.Zone)
	}
	switch {
	case !ready && usable:
		return TopologyTerminating
	case ready && allNodes && forNode:
		return TopologySameNode
	case ready && allZones && forZone:
		return TopologySameZone
	default:
		return TopologyNone
	}
}

// admits tells whether the rule lets an endpoint into the Cluster set. The
// fallback takes everything that still serves, hints or not.
func (t Topology) admits(c *candidate, e *SliceEndpoint, facts *NodeFacts) bool {
	switch t {
	case TopologySameNode:
		return c.ready() && hinted(e.ForNodes, facts.Name)
	case TopologySameZone:
		return c.ready() && hinted(e.ForZones, facts.Zone)
	case TopologyTerminating:
		return c.usable()
	default:
		return c.ready()
	}
}

// hinted tells whether a place is among the hints. A node without a zone label
// is in no zone.
func hinted(hints []string, place string) bool {
	return place != "" && slices.Contains(hints, place)
}
