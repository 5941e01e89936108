package sim

import (
	"context"
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane/nftables"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/nftmodel"
)

// inherit notes which Services are held back at a restart. What the new process knows of such a
// Service is what the kernel has. It does not know what the Service wanted of a chain that others
// share; so it takes the chain as they want it, and the Service goes on with that.
func (w *world) inherit() {
	for n := range w.cluster.specs {
		held := w.cluster.heldBack(n, service.IPv4) || w.cluster.heldBack(n, service.IPv6)
		if held && w.cluster.heirs[n] == nil {
			w.cluster.heirs[n] = []*service.NodeFacts{w.cluster.facts()}
		}
	}
}

// inherited returns the forms besides its own in which a held Service may have the chains that it
// shares: with each detection of local pods since the restart. Affinity has chains of its own.
func (w *world) inherited(family service.Family, s served) (all []served) {
	spec := s.state.spec
	if spec == nil || !spec.ExternalLocal || spec.AffinitySeconds > 0 || !w.cluster.heldBack(s.n, family) {
		return nil
	}
	for _, f := range w.cluster.heirs[s.n] {
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

// elders returns what may become of a packet besides what its Service wants. One chain decides
// for all external frontends with tables of the same sizes, and the oldest of their Services
// says which packets it takes for those of local pods. If that Service is held back, it goes
// on saying what was right at its time, or what others wanted at a restart. If it is not, it says
// what is right today, also to a younger one that is held back. The chain's content has been
// compared; this only says what it does to that Service and to the younger ones that share it,
// and to no others.
func (w *world) elders(family service.Family, there []served, p nftmodel.Packet) (all []expectation) {
	for _, n := range w.cluster.numbers() {
		times := []*service.NodeFacts{nil}
		if w.isVague(n, family) {
			times = append(times, w.cluster.former...)
		}
		if w.cluster.heldBack(n, family) {
			times = append(times, w.cluster.heirs[n]...)
		}
		for _, s := range w.cluster.candidates(n, family) {
			for _, f := range times {
				if f == nil {
					f = s.facts
				}
				if s.spec != nil {
					j := newJudge(family, w.cluster.facts(), w.cluster.hosts, w.taught(family, there, serve(n, s), f))
					all = append(all, j.expect(p))
				}
			}
		}
	}
	return all
}

// taught returns Services with an elder's detection of local pods where they share its chain.
func (w *world) taught(family service.Family, there []served, elder served, at *service.NodeFacts) []served {
	chains := w.externalChains(family, elder)
	now := serve(elder.n, w.cluster.state(elder.n)) // what has gone and come back has this age
	there = slices.Clone(there)
	for i := range there {
		s := &there[i]
		shared := func(chain string) bool { return slices.Contains(chains, chain) }
		if min(older(elder, *s), older(now, *s)) <= 0 && slices.ContainsFunc(w.externalChains(family, *s), shared) {
			s.state = s.state.detecting(at)
		}
	}
	return there
}

// externalChains names the chains for external frontends that a Service uses.
func (w *world) externalChains(family service.Family, s served) (names []string) {
	for _, o := range nftables.NewRenderer(family, w.settings.options).Service(context.Background(), &s.view, s.state.facts) {
		if o.ID.Container == "chain" && strings.Contains(o.ID.Name, "external-") {
			names = append(names, o.ID.Name)
		}
	}
	return names
}
