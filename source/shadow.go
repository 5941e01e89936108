// SPDX-License-Identifier: Apache-2.0

package source

import (
	"maps"
	"slices"

	"github.com/sluice-proxy/sluice/service"
)

// Shadowed reports frontends that a Service asks for and another one has. Over says that this has
// ended: the Service has them now, or no longer asks for them.
type Shadowed struct {
	Key, By   service.Key
	Frontends service.Frontends
	Over      bool
}

// news is what a call of a feeder changes.
type news struct {
	// changed are the Services whose spec was replaced, with the previous one; affected are those that
	// have lost a frontend by it, or got one.
	changed  []change
	affected []*filed
	warnings []service.Warning
	shadows  []Shadowed
}

type change struct {
	key         service.Key
	before, now *service.Spec
	of          *filed
}

// note notes a Service before its spec is replaced.
func (n *news) note(f *filed) { n.changed = append(n.changed, change{of: f, before: f.spec}) }

// decide updates the denied frontends in the specs of the changed and the affected Services.
func (c *Cache) decide(n *news) {
	seen := make(map[*filed]bool, len(n.affected))
	if len(n.affected) > 0 {
		for i := range n.changed {
			seen[n.changed[i].of] = true
		}
	}
	for _, f := range n.affected {
		if f.spec != nil && !seen[f] {
			seen[f] = true
			n.note(f)
		}
	}
	kept := n.changed[:0]
	for _, ch := range n.changed {
		if ch.now = ch.of.spec; ch.now == nil {
			ch.key = ch.before.Key
		} else {
			ch.key = ch.now.Key
			denied := c.admitted.denied(ch.of)
			if ch.now == ch.before && equalDenials(denied, ch.now.Denied) {
				continue
			}
			if !equalDenials(denied, ch.now.Denied) {
				spec := *ch.now
				spec.Denied = denied
				ch.now, ch.of.spec = &spec, &spec
			}
		}
		n.shadows = append(n.shadows, shadowsOf(ch)...)
		kept = append(kept, ch)
	}
	n.changed = kept
}

func equalDenials(a, b service.PerFamily[[]service.Denial]) bool {
	for _, family := range service.Families {
		if !slices.Equal(a[family], b[family]) {
			return false
		}
	}
	return true
}

// shadowsOf returns what a change of a spec means for its denials.
func shadowsOf(ch change) (all []Shadowed) {
	all = appendShadows(all, ch.key, ch.before, ch.now, true)
	return appendShadows(all, ch.key, ch.now, ch.before, false)
}

// appendShadows appends the denials of one spec that another one does not have, by Service. A node port of both
// families is reported once: when the first family begins to lack it, and when the last one ends.
func appendShadows(all []Shadowed, key service.Key, of, without *service.Spec, over bool) []Shadowed {
	if of == nil {
		return all
	}
	by := map[service.Key]service.Frontends{}
	for _, family := range service.Families {
		for _, d := range of.Denied[family] {
			if !isDenied(without, d) {
				by[d.By] = append(by[d.By], d.Frontend)
			}
		}
	}
	for _, owner := range slices.SortedFunc(maps.Keys(by), service.Key.Compare) {
		frontends := by[owner]
		slices.SortFunc(frontends, service.Frontend.Compare)
		all = append(all, Shadowed{Key: key, By: owner, Over: over, Frontends: slices.Compact(frontends)})
	}
	return all
}

// isDenied reports whether a spec has a denial in any family.
func isDenied(spec *service.Spec, d service.Denial) bool {
	return slices.ContainsFunc(service.Families[:], func(family service.Family) bool {
		by, denied := spec.DeniedBy(family, d.Frontend)
		return denied && by == d.By
	})
}

// post passes the changes on.
func (c *Cache) post(n *news) {
	for _, ch := range n.changed {
		c.sink.PostSpec(ch.key, ch.now)
	}
	c.tell(n.warnings)
	if c.shadowed == nil {
		return
	}
	for _, s := range n.shadows {
		c.shadowed(s)
	}
}

// Owner returns the Service that has a frontend, and false if none has. It may be called from
// everywhere: no lock is held while anything blocks.
func (c *Cache) Owner(family service.Family, f service.Frontend) (service.Key, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if spec, _ := c.admitted.owner(family, f); spec != nil {
		return spec.Key, true
	}
	return service.Key{}, false
}

// OwnerPort returns the Service of Owner, and the name of the port that has the frontend.
func (c *Cache) OwnerPort(family service.Family, f service.Frontend) (key service.Key, port string, ok bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	spec, f := c.admitted.owner(family, f)
	if spec == nil {
		return key, "", false
	}
	at := slices.IndexFunc(spec.Ports, func(p service.Port) bool {
		return p.Protocol == f.Protocol && (f.Addr.IsValid() && p.Port == f.Port || !f.Addr.IsValid() && p.NodePort == f.Port)
	})
	return spec.Key, spec.Ports[at].Name, true
}
