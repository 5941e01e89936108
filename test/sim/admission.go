// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/sluice-proxy/sluice/service"
)

// place is a frontend in one family.
type place struct {
	family   service.Family
	frontend service.Frontend
}

// frontendOwners returns which Service owns each frontend: ClusterIPs and node ports precede load balancer IPs, and
// these precede external IPs; then the older Service wins, then the smaller key.
func (p *picture) frontendOwners() map[place]int {
	if p.last.owners != nil && maps.Equal(p.last.specs, p.specs) {
		return p.last.owners
	}
	owners := map[place]int{}
	defer func() { p.last.specs, p.last.owners = maps.Clone(p.specs), owners }()
	kinds := map[place]service.FrontendKind{}
	for n, spec := range p.specs {
		spec.Claims(func(family service.Family, f service.Frontend, kind service.FrontendKind) {
			at := place{family, f}
			owner, taken := owners[at]
			if taken && owner != n {
				other := p.specs[owner]
				if cmp.Or(cmp.Compare(kinds[at], kind), other.Created.Compare(spec.Created), other.Key.Compare(spec.Key)) < 0 {
					return
				}
			}
			if !taken || owner != n || kind < kinds[at] {
				owners[at], kinds[at] = n, kind
			}
		})
	}
	return owners
}

// admitted returns the spec of a Service, in which frontends of other Services are denied.
func (p *picture) admitted(n int, owners map[place]int) *service.Spec {
	return p.made.deny(p.specs[n], func(at place) (service.Key, bool) {
		owner, taken := owners[at]
		return keyOf(owner), taken && owner != n
	})
}

// admittedSpecs makes each spec once for each list of denied frontends, so that equal states have the same pointer.
type admittedSpecs struct {
	mu   sync.Mutex
	made map[string]*service.Spec
}

// deny returns the spec in which the frontends of other Services are denied.
func (m *admittedSpecs) deny(spec *service.Spec, by func(place) (service.Key, bool)) *service.Spec {
	var denied service.PerFamily[[]service.Denial]
	spec.Claims(func(family service.Family, f service.Frontend, _ service.FrontendKind) {
		key, lost := by(place{family, f})
		if !lost {
			key, lost = spec.DeniedBy(family, f)
		}
		if lost {
			denied[family] = append(denied[family], service.Denial{Frontend: f, By: key})
		}
	})
	if spec == nil || len(denied[service.IPv4])+len(denied[service.IPv6]) == 0 {
		return spec
	}
	for family := range denied {
		slices.SortFunc(denied[family], func(a, b service.Denial) int { return a.Frontend.Compare(b.Frontend) })
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	id := fmt.Sprintf("%p %v", spec, denied)
	if m.made[id] == nil {
		if m.made == nil {
			m.made = map[string]*service.Spec{}
		}
		made := *spec
		made.Denied = denied
		m.made[id] = &made
		m.made[id+" kept"] = spec // so that no other spec gets its address
	}
	return m.made[id]
}

// contest denies Services the frontends that another Service gets. Two Services request one frontend only if one of
// them is held back, and its applied rules still have a frontend that it lost: then contest denies it the frontend.
func (w *world) contest(family service.Family, all []served) []served {
	owners := w.cluster.frontendOwners()
	best := map[service.Frontend]int{}
	for i, s := range all {
		s.frontends(family, func(f service.Frontend) {
			j, taken := best[f]
			if !taken || w.beats(family, owners, f, all[i].n, all[j].n) {
				best[f] = i
			}
		})
	}
	out := slices.Clone(all)
	for i, s := range all {
		spec := w.cluster.made.deny(s.state.spec, func(at place) (service.Key, bool) {
			j, taken := best[at.frontend]
			return all[j].view.Key, at.family == family && taken && j != i
		})
		if spec != s.state.spec {
			s.state.spec = spec
			out[i] = serve(s.n, s.state)
		}
	}
	return out
}

// beats reports whether Service n gets a frontend that Service m also requests.
func (w *world) beats(family service.Family, owners map[place]int, f service.Frontend, n, m int) bool {
	if owner, taken := owners[place{family, f}]; taken && (owner == n || owner == m) {
		return owner == n
	}
	if held := w.cluster.heldBack(n, family); held != w.cluster.heldBack(m, family) {
		return !held
	}
	return keyOf(n).Compare(keyOf(m)) < 0 != w.later[family]
}

// frontends calls yield with the frontends of a Service in a family.
func (s served) frontends(family service.Family, yield func(service.Frontend)) {
	s.state.spec.Claims(func(in service.Family, f service.Frontend, _ service.FrontendKind) {
		if _, denied := s.state.spec.DeniedBy(in, f); in == family && !denied {
			yield(f)
		}
	})
}

// contested reports whether a Service that is held back has lost a frontend to another one.
func (w *world) contested() bool {
	for _, family := range service.Families {
		for _, n := range w.cluster.numbers() {
			for _, s := range w.cluster.histories[family][n] {
				all := []served{serve(n, s)}
				for _, m := range w.cluster.numbers() {
					if m != n {
						all = append(all, serve(m, w.cluster.state(m)))
					}
				}
				if w.cluster.heldBack(n, family) && w.contest(family, all)[0].state.spec != s.spec {
					return true
				}
			}
		}
	}
	return false
}
