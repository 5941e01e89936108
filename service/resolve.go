// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
)

// Resolve decides how this node serves one Service: for each family and service
// port the frontends, and the endpoints of each traffic policy. A nil spec gives
// a view without ports. Frontends above the limit of the facts are left out.
//
// The slices are those of this Service, one per name; their order does not
// matter. Facts must not be nil. The view shares address lists with the spec,
// and equal endpoint lists with each other; nothing of it may be changed.
func Resolve(key Key, spec *Spec, from []*Slice, facts *NodeFacts) View {
	view := View{Key: key}
	if spec == nil {
		return view
	}
	view.HealthCheckNodePort = spec.HealthCheckNodePort
	view.Scheduling, view.Balancing, view.ProxyProtocol, view.FlowLog = spec.Scheduling, spec.Balancing, spec.ProxyProtocol, spec.FlowLog
	s := selection{spec: spec, gathering: gathering{observed: observedOf(from)}}
	view.Adaptation, view.Drain = spec.Adaptation, spec.Drain
	if len(spec.Ports) > portsUnindexed {
		s.index(from)
	}
	for _, family := range Families {
		if !spec.ClusterIPs[family].IsValid() || len(spec.Ports) == 0 {
			continue
		}
		ports := make([]PortView, len(spec.Ports))
		s.readyLocal = s.readyLocal[:0]
		externalIPs := facts.externalIPs(spec, family)
		for i := range ports {
			ports[i] = spec.offered(family, i, facts, externalIPs)
		}
		if e := s.limit(ports, family, from, facts); e.LeftOut > view.Excess.LeftOut {
			view.Excess = e
		}
		for i := range ports {
			if !ports[i].ClusterIP.IsValid() && !ports[i].ExternallyAccessible() {
				continue // all frontends are left out, and the port may have very many endpoints
			}
			ports[i].deny(spec.Denied[family])
			s.gather(family, &spec.Ports[i], from, facts.Name)
			s.choose(&ports[i], facts)
			if spec.HealthCheckNodePort != 0 {
				s.noteReadyLocal()
			}
		}
		view.Ports[family] = ports
		view.ReadyLocal[family] = s.countReadyLocal()
	}
	view.Shifts = s.shifted || spec.Balancing == LeastConnections
	return view
}

// frontends returns the part of a port's view that depends on the spec only: all frontends that the spec requests.
func (s *Spec) frontends(family Family, i int) PortView {
	port := &s.Ports[i]
	view := PortView{
		Name:             port.Name,
		Protocol:         port.Protocol,
		Port:             port.Port,
		NodePort:         port.NodePort,
		ClusterIP:        s.ClusterIPs[family],
		ExternalIPs:      s.ExternalIPs[family],
		LoadBalancerVIPs: s.LoadBalancerVIPs[family],
		SourceRanges:     s.SourceRanges[family],
		DenyRanges:       s.DenyRanges[family],
		NoEndpoints:      s.NoEndpoints,
		InternalLocal:    s.InternalLocal,
		ExternalLocal:    s.ExternalLocal,
		AffinitySeconds:  s.AffinitySeconds,
	}
	if port.NotOutside {
		view.ExternalIPs, view.LoadBalancerVIPs = nil, nil
	}
	return view
}

// offered returns the part of a port's view that depends neither on endpoints nor on other Services. The external IPs
// are those of NodeFacts.externalIPs, which all ports share.
func (s *Spec) offered(family Family, i int, facts *NodeFacts, externalIPs []netip.Addr) PortView {
	view := s.frontends(family, i)
	if !s.Ports[i].NotOutside {
		view.ExternalIPs = externalIPs
	}
	view.NodeInSourceRanges = Within(view.SourceRanges, facts.NodeIPs[family]).IsValid()
	return view
}

// gathering collects the candidates of one service port: every slice of the family contributes all its endpoints with
// each of its ports of the service port's name and protocol. The zero value is ready; its buffers are reused from port
// to port.
type gathering struct {
	// from are the slices that the candidates refer to.
	from []*Slice
	// candidates are sorted as Endpoint.Compare does, without duplicates.
	candidates []candidate
	// anyDrains is set if a slice has weight 0.
	anyDrains bool
	// observed is what the node observed of the endpoints; nil for nothing.
	observed *Observed
	// indexed lists the ports of the slices by name and protocol, for a Service with many ports; nil otherwise.
	indexed map[portID][]slicePort
}

// portsUnindexed is the largest number of service ports that are compared with each port of each slice. A Service in
// the API may have thousands of ports.
const portsUnindexed = 16

// portID identifies a service port in the slices.
type portID struct {
	name     string
	protocol Protocol
}

// slicePort is a port of a slice, which is given by its index in a list.
type slicePort struct {
	slice int32
	port  uint16
}

// index fills indexed with the ports of all slices.
func (g *gathering) index(from []*Slice) {
	g.indexed = make(map[portID][]slicePort)
	for n, s := range from {
		for i := range s.Ports {
			id := portID{s.Ports[i].Name, s.Ports[i].Protocol}
			g.indexed[id] = append(g.indexed[id], slicePort{int32(n), s.Ports[i].Port})
		}
	}
}

// each calls found for each port of the family's slices that belongs to a service port.
func (g *gathering) each(family Family, port *Port, from []*Slice, found func(slice int32, port uint16)) {
	if g.indexed != nil {
		for _, p := range g.indexed[portID{port.Name, port.Protocol}] {
			if from[p.slice].Family == family {
				found(p.slice, p.port)
			}
		}
		return
	}
	for n, s := range from {
		if s.Family != family {
			continue
		}
		for i := range s.Ports {
			if s.Ports[i].serves(port) {
				found(int32(n), s.Ports[i].Port)
			}
		}
	}
}

// gather replaces the candidates by those of a service port.
func (g *gathering) gather(family Family, port *Port, from []*Slice, nodeName string) {
	g.reset(family, port, from)
	g.each(family, port, from, func(slice int32, port uint16) { g.addAll(slice, port, nodeName) })
	slices.SortFunc(g.candidates, func(a, b candidate) int { return g.compare(&a, &b) })
	// The best occurrence of each endpoint comes first and stays.
	g.candidates = slices.CompactFunc(g.candidates, func(a, b candidate) bool {
		return a.port == b.port && g.endpoint(&a).Addr == g.endpoint(&b).Addr
	})
}

// reset removes the candidates and makes room for those of a service port.
func (g *gathering) reset(family Family, port *Port, from []*Slice) {
	g.from = from
	g.anyDrains = slices.ContainsFunc(from, func(s *Slice) bool { return s.Drains })
	count := 0
	g.each(family, port, from, func(slice int32, _ uint16) { count += len(from[slice].Endpoints) })
	g.candidates = slices.Grow(g.candidates[:0], count)
}

// addAll adds the endpoints of a slice at one of its ports.
func (g *gathering) addAll(slice int32, port uint16, nodeName string) {
	s := g.from[slice]
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		g.candidates = append(g.candidates, candidate{
			slice: slice, index: int32(i), port: port, standing: standingOf(e), local: isLocal(e, nodeName),
		})
	}
}

// isLocal reports whether an endpoint runs on this node.
func isLocal(e *SliceEndpoint, nodeName string) bool {
	return nodeName != "" && e.Where().NodeName == nodeName
}

// compare orders as Endpoint.Compare does, then the better standing first, then place.
func (g *gathering) compare(a, b *candidate) int {
	if c := g.endpoint(a).Addr.Compare(g.endpoint(b).Addr); c != 0 {
		return c
	}
	if c := cmp.Compare(a.port, b.port); c != 0 {
		return c
	}
	if c := cmp.Compare(b.standing, a.standing); c != 0 {
		return c
	}
	// For equal standings, the place in the API decides: it does not depend on the order of arrival.
	if c := strings.Compare(g.from[a.slice].Name, g.from[b.slice].Name); c != 0 {
		return c
	}
	return cmp.Compare(a.index, b.index)
}

func (g *gathering) endpoint(c *candidate) *SliceEndpoint {
	return &g.from[c.slice].Endpoints[c.index]
}

// selection chooses among the candidates of one service port at a time. It is
// the scratch space of one Resolve; the zero value is ready.
type selection struct {
	gathering
	spec *Spec
	// reasons has an entry per candidate, for one policy at a time.
	reasons []Reason
	// scratch is where a set is put together before its size is known, and origins are the positions of its candidates.
	scratch []Endpoint
	origins []int32
	// avoided are the suspects of the current port.
	avoided []Endpoint
	// shifted is set if observations make weights differ.
	shifted bool
	// readyLocal are the addresses of local ready endpoints of the ports of one
	// family so far, duplicates included.
	readyLocal []netip.Addr
	// trace, if set, receives each decision about a candidate, by the Local policy or by
	// Cluster.
	trace func(c *candidate, local bool, why Reason)
}

// choose fills in the endpoints of a port whose frontends are known already.
func (s *selection) choose(port *PortView, facts *NodeFacts) {
	s.avoided = nil
	port.HasAny = slices.ContainsFunc(s.candidates, func(c candidate) bool { return c.usable() })
	if port.UsesCluster() {
		rule := chooseTopology(&s.gathering, s.spec.Zones, facts)
		port.Topology = rule
		zone := ""
		if rule == TopologyZoneShare {
			zone = facts.Zone
		}
		port.Cluster = s.chosen(false, zone, func(c *candidate) Reason { return rule.judge(c, s.endpoint(c).Where(), facts) })
	}
	if port.UsesLocal() {
		enough := s.localStanding()
		port.Local = s.chosen(true, "", func(c *candidate) Reason { return judgeLocal(c, enough) }, port.Cluster)
	}
	port.Avoided = s.avoided
	if port.Protocol == UDP {
		s.collect(func(i int) bool { return s.candidates[i].serving() })
		port.Serving = s.keep(port.Cluster, port.Local)
	}
}

// chosen returns the endpoints that a policy chooses, without suspects (at most half) and, if there are others, those
// of weight 0. Endpoints hinted for zone get a share of the connections, unless zone is empty.
func (s *selection) chosen(local bool, zone string, judge func(*candidate) Reason, earlier ...[]Endpoint) []Endpoint {
	s.reasons = slices.Grow(s.reasons[:0], len(s.candidates))
	instead := false
	for i := range s.candidates {
		why := judge(&s.candidates[i])
		s.reasons = append(s.reasons, why)
		instead = instead || why.Chosen() && !s.drains(i)
	}
	for i := range s.candidates {
		if s.anyDrains && instead && s.reasons[i].Chosen() && s.drains(i) {
			s.reasons[i] = WeightZero
		}
	}
	s.suspects()
	if s.trace != nil {
		for i := range s.candidates {
			s.trace(&s.candidates[i], local, s.reasons[i])
		}
	}
	s.collect(func(i int) bool { return s.reasons[i].Chosen() })
	s.weigh(zone)
	return s.keep(earlier...)
}

// drains reports whether a candidate has weight 0.
func (s *selection) drains(i int) bool { return s.from[s.candidates[i].slice].Drains }

// localStanding returns the standing that a local endpoint needs for the Local policy:
// ready, or serving while terminating if no local endpoint is ready. Hints and endpoints
// on other nodes do not count.
func (s *selection) localStanding() standing {
	for i := range s.candidates {
		if c := &s.candidates[i]; c.local && c.ready() {
			return readyTerminating
		}
	}
	return servingTerminating
}

// collect puts the wanted candidates into scratch and keeps their order.
func (s *selection) collect(wanted func(i int) bool) {
	s.scratch = slices.Grow(s.scratch[:0], len(s.candidates))
	s.origins = s.origins[:0]
	for i := range s.candidates {
		if wanted(i) {
			c := &s.candidates[i]
			s.origins = append(s.origins, int32(i))
			s.scratch = append(s.scratch, Endpoint{
				AddrPort: s.addrPort(c),
				Local:    c.local,
				Weight:   s.from[c.slice].Weight,
			})
		}
	}
}

// keep returns a copy of scratch, or an earlier set if it is equal, as for most Services.
func (s *selection) keep(earlier ...[]Endpoint) []Endpoint {
	if len(s.scratch) == 0 {
		return nil
	}
	for _, set := range earlier {
		if slices.Equal(set, s.scratch) {
			return set
		}
	}
	kept := make([]Endpoint, len(s.scratch))
	copy(kept, s.scratch)
	return kept
}

// noteReadyLocal remembers the local ready addresses of the current port.
func (s *selection) noteReadyLocal() {
	for i := range s.candidates {
		if c := &s.candidates[i]; c.local && c.ready() {
			s.readyLocal = append(s.readyLocal, s.endpoint(c).Addr)
		}
	}
}

// countReadyLocal counts the noted addresses, each one once. Pods of the host network
// share an address and count as one.
func (s *selection) countReadyLocal() int {
	slices.SortFunc(s.readyLocal, netip.Addr.Compare)
	return len(slices.Compact(s.readyLocal))
}

// Topology says how the Cluster endpoints of a port were chosen (KEP-2433,
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
	// TopologyZoneTooSmall keeps every ready endpoint, because too few are hinted for this zone.
	TopologyZoneTooSmall
	// TopologyZoneShare keeps every ready endpoint, and those hinted for this zone get a share of the connections.
	TopologyZoneShare
)

// String names the rule for people.
func (t Topology) String() string {
	return [...]string{"none", "same node", "same zone", "serving while terminating", "zone too small", "share of the zone"}[t]
}

// chooseTopology applies the hints of the ready endpoints. A kind of hint counts only if every ready endpoint has one
// and at least one names this node or zone, so that a rule never leaves a ready Service without ready endpoints. It
// does not matter where an endpoint runs: a hint names the node or zone that it serves.
func chooseTopology(g *gathering, zones ZonePolicy, facts *NodeFacts) Topology {
	var ready, usable, forNode bool
	forZone := 0
	allNodes, allZones := true, true
	for i := range g.candidates {
		c := &g.candidates[i]
		usable = usable || c.usable()
		if !c.ready() {
			continue
		}
		ready = true
		e := g.endpoint(c).Where()
		allNodes = allNodes && len(e.ForNodes) > 0
		allZones = allZones && len(e.ForZones) > 0
		forNode = forNode || hinted(e.ForNodes, facts.Name)
		if hinted(e.ForZones, facts.Zone) {
			forZone++
		}
	}
	switch {
	case !ready && usable:
		return TopologyTerminating
	case ready && allNodes && forNode:
		return TopologySameNode
	case !ready || !allZones || forZone == 0:
		return TopologyNone
	case forZone < int(zones.MinEndpoints):
		return TopologyZoneTooSmall
	case zones.Share > 0:
		return TopologyZoneShare
	default:
		return TopologySameZone
	}
}

// judge decides whether an endpoint is in the Cluster set. TopologyTerminating admits every endpoint that still serves
// while it terminates, regardless of its hints.
func (t Topology) judge(c *candidate, e *Location, facts *NodeFacts) Reason {
	switch {
	case t == TopologyTerminating && c.usable():
		return ChosenTerminating
	case !c.ready():
		return c.unfit()
	case t == TopologySameNode && hinted(e.ForNodes, facts.Name):
		return ChosenSameNode
	case t == TopologySameNode:
		return OtherNodeHint
	case t == TopologySameZone && hinted(e.ForZones, facts.Zone):
		return ChosenSameZone
	case t == TopologySameZone:
		return OtherZoneHint
	default:
		return ChosenReady
	}
}

// judgeLocal decides whether an endpoint is in the Local set; enough is localStanding.
func judgeLocal(c *candidate, enough standing) Reason {
	switch {
	case !c.local:
		return OtherNode
	case c.standing < enough:
		return c.unfit()
	case c.ready():
		return ChosenLocal
	default:
		return ChosenLocalTerminating
	}
}

// hinted reports whether a place is among the hints. A node without a zone label
// is in no zone.
func hinted(hints []string, place string) bool {
	return place != "" && slices.Contains(hints, place)
}

// standing ranks one occurrence of an endpoint. Of several occurrences of the same
// address and port, the highest counts.
//
// In kube-proxy the last occurrence that is not terminating wins. Its result depends on
// the order of a map walk, and an unready pod can hide a ready or serving one at the same
// address (kubernetes issue 135593). Here an unusable endpoint never hides a usable one.
type standing uint8

const (
	// absent endpoints are not used, not even by established flows.
	absent standing = iota
	// unready endpoints serve and do not terminate, but are not ready: no new
	// connections.
	unready
	// servingTerminating endpoints are used when nothing is ready.
	servingTerminating
	// readyTerminating endpoints belong to Services that publish not-ready
	// addresses. They count as ready, but a running pod comes first.
	readyTerminating
	// readyRunning endpoints are the normal case.
	readyRunning
)

// standingOf ranks by the conditions. Serving and terminating matter only if the
// endpoint is not ready.
func standingOf(e *SliceEndpoint) standing {
	switch {
	case e.Ready && e.Terminating:
		return readyTerminating
	case e.Ready:
		return readyRunning
	case e.Serving && e.Terminating:
		return servingTerminating
	case e.Serving:
		return unready
	default:
		return absent
	}
}
