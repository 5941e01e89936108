// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/service"
)

// turns chooses which of the planned changes each write makes, so that other Services wait only for a part of a large
// one. A Service is tied if some of its frontends are added, removed or changed: its changes must land together with
// those of the composed chains, which contain frontends of several Services. One write makes all tied changes. Earlier
// writes add the new chains of large tied Services in turns, because no rule jumps to them yet. A Service that is not
// tied changes only its endpoints, so its chains may change one by one.
type turns struct {
	// most is the size of a turn; 0 means that nothing is divided.
	most int
	last service.Key
	// waited counts the writes in a row that left tied changes.
	waited int
}

// TurnSize is the size of a turn in the nft variant: some 4,000 rules. On an idle node they take 60 ms if they are
// new, and 100 ms if they replace others.
const TurnSize = 1500

// choose returns the changes of one write; the others are left for later ones. It leaves none if the node's own chains
// change, which serve all Services, or if the state of an object is unsure.
func (t *turns) choose(changes []dataplane.Change) (now []dataplane.Change) {
	if t.most <= 0 {
		return changes
	}
	sizes, large, found := dataplane.NextLarge(changes, t.most, t.last)
	var tied map[service.Key]bool
	if found {
		tied, found = tiedServices(changes)
	}
	if !found || t.waited >= dataplane.WaitedMax {
		t.waited = 0
		return changes
	}
	t.last = large
	its := inTurn(changes, large, tied[large], t.most)
	waits := tied[large] && !its.whole
	for key := range tied {
		waits = waits || key != large && sizes[key] > t.most
	}
	for i := range changes {
		c := &changes[i]
		chosen := !waits
		switch {
		case its.chosen[c.ID]:
			chosen = true
		case c.Owner == service.Node || tied[c.Owner]:
		case c.Owner == large:
			chosen = its.whole
		default:
			chosen = sizes[c.Owner] <= t.most
		}
		if chosen {
			now = append(now, *c)
		}
	}
	t.waited++
	if !waits {
		t.waited = 0
	}
	return now
}

// turn is the part of a large Service that one write makes: the chosen chains, or the whole Service.
type turn struct {
	chosen map[dataplane.ID]bool
	whole  bool
}

// inTurn chooses chains of a Service, up to a size: new chains, each after the chains that it jumps to, and then,
// unless the Service is tied, chains with changed content.
func inTurn(changes []dataplane.Change, key service.Key, tied bool, most int) turn {
	var own []dataplane.Change
	for i := range changes {
		if changes[i].Owner == key {
			own = append(own, changes[i])
		}
	}
	chains, others := freshChains(own)
	for i := range others {
		if others[i].After != nil && !tied {
			chains = append(chains, &others[i])
		}
	}
	t := turn{chosen: map[dataplane.ID]bool{}, whole: true}
	for _, c := range chains {
		if most -= c.Size(); most < 0 && len(t.chosen) > 0 {
			t.whole = false
			break
		}
		t.chosen[c.ID] = true
	}
	return t
}

// line is a rule of a composed chain.
type line struct{ table, text string }

// tiedServices returns the Services with added, removed or changed frontends. A rule that only moves to another
// composed chain does not count. known is false if an object is unsure, or if it is the node's and not composed.
func tiedServices(changes []dataplane.Change) (tied map[service.Key]bool, known bool) {
	before, after := map[line]service.Key{}, map[line]service.Key{}
	for i := range changes {
		c := &changes[i]
		if c.Unsure || c.Owner == service.Node && !(collect(c.Before, before) && collect(c.After, after)) {
			return nil, false
		}
	}
	tied = map[service.Key]bool{}
	note := func(lines, others map[line]service.Key) {
		for l, owner := range lines {
			if _, both := others[l]; !both && owner != service.Node {
				tied[owner] = true
			}
		}
	}
	note(before, after)
	note(after, before)
	return tied, true
}

// collect adds the lines of a composed chain, with their Services. It returns false for any other object.
func collect(o *dataplane.Object, owners map[line]service.Key) (composed bool) {
	if o == nil {
		return true
	}
	lines := render.RuleLines(o)
	parts := partsOf(o, lines)
	for i := range parts {
		owners[line{o.ID.Container, lines[i]}] = parts[i].Owner
	}
	return parts != nil || len(lines) == 0
}
