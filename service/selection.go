package service

import (
	"net/netip"
	"slices"
)

// selection chooses among the candidates of one service port at a time. It is
// the scratch space of one Resolve; the zero value is ready.
type selection struct {
	gathering
	// scratch is where a set is put together before its size is known.
	scratch []Endpoint
	// readyLocal are the addresses of local ready endpoints of the ports of one
	// family so far, duplicates included.
	readyLocal []netip.Addr
}

// choose fills in the endpoints of a port whose frontends are known already.
func (s *selection) choose(port *PortView, facts *NodeFacts) {
	port.HasAny = slices.ContainsFunc(s.candidates, func(c candidate) bool { return c.usable() })
	if port.UsesCluster() {
		rule := chooseTopology(&s.gathering, facts)
		port.Topology = rule
		s.collect(func(c *candidate) bool { return rule.admits(c, s.endpoint(c), facts) })
		port.Cluster = s.keep()
	}
	if port.UsesLocal() {
		enough := s.localStanding()
		s.collect(func(c *candidate) bool { return c.local && c.standing >= enough })
		port.Local = s.keep(port.Cluster)
	}
	if port.Protocol == UDP {
		s.collect((*candidate).serving)
		port.Serving = s.keep(port.Cluster, port.Local)
		if len(port.Serving) == 0 {
			s.collect(func(c *candidate) bool { return !s.endpoint(c).Terminating })
			port.Resting = s.keep()
		}
	}
}

// localStanding is what a local endpoint needs for the Local policy: to be
// ready, or when no local one is, to serve while it terminates. Hints and
// endpoints elsewhere have no say.
func (s *selection) localStanding() standing {
	for i := range s.candidates {
		if c := &s.candidates[i]; c.local && c.ready() {
			return readyTerminating
		}
	}
	return servingTerminating
}

// collect puts the candidates that are wanted into scratch, in their order.
func (s *selection) collect(wanted func(*candidate) bool) {
	s.scratch = slices.Grow(s.scratch[:0], len(s.candidates))
	for i := range s.candidates {
		if c := &s.candidates[i]; wanted(c) {
			s.scratch = append(s.scratch, Endpoint{
				AddrPort: netip.AddrPortFrom(s.endpoint(c).Addr, c.port),
				Local:    c.local,
			})
		}
	}
}

// keep gives what collect found a place of its own, or hands out one of the
// earlier sets if it is the same; for most Services it is.
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

// countReadyLocal counts what has been noted, each address once. Several pods
// of the host network share an address and count as one.
func (s *selection) countReadyLocal() int {
	slices.SortFunc(s.readyLocal, netip.Addr.Compare)
	return len(slices.Compact(s.readyLocal))
}
