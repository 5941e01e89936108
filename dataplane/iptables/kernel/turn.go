// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/service"
)

// turns chooses what each write does of batches that may be divided, so that others wait for a part of a large Service
// only. A Service is tied if frontends of it come, leave or change: its changes belong together with those of the chains
// that are composed of several Services' frontends. All tied changes of a batch are one write. Before it, the chains that
// large Services add are written in turns, since nothing leads to them yet. A Service that is not tied changes its
// endpoints only, and each chain by itself is right.
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

// choose returns the changes of one write. It leaves none if the node's own chains change, which serve all, or if the state
// of an object is unsure.
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

// turn is what one turn does of a large Service: the chosen chains, or the whole Service.
type turn struct {
	chosen map[dataplane.ID]bool
	whole  bool
}

// inTurn chooses chains of a Service, up to a size: new ones, each after those that it leads to, and then, unless the
// Service is tied, those with other content.
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

// tiedServices returns the Services with frontends that come, leave or change. One that moves to another chain with the
// same rule is not among them. It reports false if it cannot know them.
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

// collect adds the lines of a composed chain, with their Services. It reports false for any other object.
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
