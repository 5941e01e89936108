// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"slices"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/nftmodel"
)

// One chain decides for all external frontends with tables of the same sizes which packets it takes for
// those of local pods. It does so as is right today, unless all Services that share it are held back.
// Then it stays as it was, at the time of any of them.

// inherited returns the forms besides its own in which a held Service may have the chains that it
// shares: with each detection of local pods of the past. Affinity has separate chains.
func (w *world) inherited(family service.Family, s served) (all []served) {
	spec := s.state.spec
	if spec == nil || !spec.ExternalLocal || spec.AffinitySeconds > 0 || !w.cluster.heldBack(s.n, family) {
		return nil
	}
	for _, f := range w.cluster.former {
		if f.Detect[family] != s.state.facts.Detect[family] {
			as := s
			as.state = s.state.detecting(f)
			all = append(all, as)
		}
	}
	return all
}

// detecting returns the state with the detection of local pods of another time.
func (s state) detecting(at *service.NodeFacts) state {
	facts := *s.facts
	facts.Detect = at.Detect
	s.facts = &facts
	return s
}

// elders returns what may become of a packet to a Service that is held back, besides what it wants. The
// content of the chains has been compared; this only says what they do to that Service.
func (w *world) elders(family service.Family, there []served, p nftmodel.Packet) (all []expectation) {
	for _, f := range append(slices.Clip(w.cluster.former), w.cluster.facts()) {
		then := slices.Clone(there)
		for i := range then {
			if s := &then[i]; s.state.spec != nil && s.state.spec.AffinitySeconds == 0 && w.cluster.heldBack(s.n, family) {
				s.state = s.state.detecting(f)
			}
		}
		all = append(all, newJudge(family, w.cluster.facts(), w.cluster.hosts, then).expect(p))
	}
	return all
}
