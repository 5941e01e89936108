// SPDX-License-Identifier: Apache-2.0

package source

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// admission decides which Service has each frontend. A frontend that the API server allocated wins over one that a load
// balancer was assigned, and that over an external IP (service.FrontendKind). Then the older Service wins, then the
// smaller key. A Service keeps its frontends while it has no endpoints. Only API objects count, so every node and the
// next process decide the same.
//
// The cost of a change depends only on the Services that it concerns. While no two Services want the same frontend,
// contests is empty. It is not safe for concurrent use.
type admission struct {
	owners   map[place]*filed
	contests map[place][]bid
	// shadowed counts the frontends that a Service wants and another one has, once for each such Service.
	shadowed int
}

// place is a frontend in one family. A frontend with an address implies the family; a node port does not.
type place struct {
	family   service.Family
	frontend service.Frontend
}

// filed is a Service in the cache. spec has its denied frontends. received is when it was stored, in Unix seconds.
type filed struct {
	spec     *service.Spec
	received int64
}

// bid is one Service's claim for a frontend that several claim.
type bid struct {
	kind    service.FrontendKind
	created time.Time
	by      *filed
	key     service.Key
}

func (b bid) compare(other bid) int {
	return cmp.Or(cmp.Compare(b.kind, other.kind), b.created.Compare(other.created), b.key.Compare(other.key))
}

func bidOf(f *filed, spec *service.Spec, at place) bid {
	return bid{spec.KindOf(at.family, at.frontend), spec.Created, f, spec.Key}
}

// contestMax is the number of bids up to which all losers are told of a new owner. If there are more, only the previous
// and the new owner are: each Service that is told is visited at each change of the owner.
const contestMax = 8

// owner returns the Service that has a frontend, and the frontend as this Service claims it: a node port, which answers
// at addresses of the node, has no address. It returns nil if no Service has the frontend.
func (a *admission) owner(family service.Family, f service.Frontend) (*service.Spec, service.Frontend) {
	for range 2 {
		if owner := a.owners[place{family, f}]; owner != nil {
			return owner.spec, f
		}
		f.Addr = netip.Addr{}
	}
	return nil, f
}

// replace replaces the claims of a Service by those of its next spec, nil for none. It returns the other Services that
// got or lost a frontend, or lack one that has a new owner. A Service may come twice.
func (a *admission) replace(f *filed, next *service.Spec) (others []*filed) {
	was := f.spec
	f.spec = next
	if was != nil && next != nil && sameClaims(was, next) {
		return nil
	}
	told := func(o *filed) {
		if o != f {
			others = append(others, o)
		}
	}
	stays := map[place]bool{}
	if was != nil && next != nil && was.Created.Equal(next.Created) {
		next.Claims(func(family service.Family, at service.Frontend, kind service.FrontendKind) {
			stays[place{family, at}] = kind == was.KindOf(family, at)
		})
	}
	was.Claims(func(family service.Family, at service.Frontend, _ service.FrontendKind) {
		if p := (place{family, at}); !stays[p] {
			a.withdraw(p, bidOf(f, was, p), told)
		}
	})
	next.Claims(func(family service.Family, at service.Frontend, _ service.FrontendKind) {
		p := place{family, at}
		a.enter(p, bidOf(f, next, p), told)
	})
	return others
}

func sameClaims(a, b *service.Spec) bool {
	for _, family := range service.Families {
		if !slices.Equal(a.ExternalIPs[family], b.ExternalIPs[family]) ||
			!slices.Equal(a.LoadBalancerVIPs[family], b.LoadBalancerVIPs[family]) {
			return false
		}
	}
	return a.ClusterIPs == b.ClusterIPs && a.Created.Equal(b.Created) && slices.Equal(a.Ports, b.Ports)
}

// enter adds a claim. A claim that is there already changes nothing.
func (a *admission) enter(at place, b bid, told func(*filed)) {
	owner := a.owners[at]
	if owner == nil {
		a.owners[at] = b.by
		return
	}
	bids := a.contests[at]
	if bids == nil {
		if owner == b.by {
			return
		}
		bids = []bid{bidOf(owner, owner.spec, at)}
	}
	i, found := slices.BinarySearchFunc(bids, b, bid.compare)
	if found {
		return
	}
	a.contests[at] = slices.Insert(bids, i, b)
	a.shadowed++
	a.decide(at, told)
}

// withdraw takes a claim back. A claim that is not there changes nothing.
func (a *admission) withdraw(at place, b bid, told func(*filed)) {
	bids, contested := a.contests[at]
	if !contested {
		if a.owners[at] == b.by {
			delete(a.owners, at)
		}
		return
	}
	i, found := slices.BinarySearchFunc(bids, b, bid.compare)
	if !found {
		return
	}
	a.shadowed--
	a.contests[at] = slices.Delete(bids, i, i+1)
	a.decide(at, told)
	if len(bids) == 2 {
		delete(a.contests, at)
	}
}

// decide gives a frontend to the best claim.
func (a *admission) decide(at place, told func(*filed)) {
	bids := a.contests[at]
	before, now := a.owners[at], bids[0].by
	if before == now {
		return
	}
	a.owners[at] = now
	told(before)
	told(now)
	if len(bids) <= contestMax {
		for _, b := range bids[1:] {
			told(b.by)
		}
	}
}

// denied returns the frontends that a Service claims and other Services have.
func (a *admission) denied(f *filed) (all service.PerFamily[[]service.Denial]) {
	if len(a.contests) == 0 {
		return all
	}
	f.spec.Claims(func(family service.Family, at service.Frontend, _ service.FrontendKind) {
		if owner := a.owners[place{family, at}]; owner != f {
			all[family] = append(all[family], service.Denial{Frontend: at, By: owner.spec.Key})
		}
	})
	for family := range all {
		slices.SortFunc(all[family], func(a, b service.Denial) int { return a.Frontend.Compare(b.Frontend) })
		all[family] = slices.Compact(all[family])
	}
	return all
}
