package iptables

import (
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
)

// StageLimits bound the inputs into which the new chains of a large batch are
// divided; a zero limit does not bound. The nft variant needs that: its user
// space takes time in proportion to the square of the chains in one input, and
// an unprivileged user namespace cannot send more than its socket buffer holds
// in one transaction. The legacy variant must not be staged, for each input
// costs a copy of the whole table. Figures: docs/adr/0001.
type StageLimits struct {
	// Chains and Rules are the most that one input may hold, unless a single
	// chain has more rules.
	Chains, Rules int
}

func (l StageLimits) bounded() bool { return l.Chains > 0 || l.Rules > 0 }

// exceeded tells whether an input of this size is too large.
func (l StageLimits) exceeded(chains, rules int) bool {
	return (l.Chains > 0 && chains > l.Chains) || (l.Rules > 0 && rules > l.Rules)
}

// stages divides the chain changes of a batch into inputs. Only chains of nat
// that are certainly new leave the last input: nothing leads to them before it
// has landed, so wherever a write ends, packets are handled as before. They go
// in the order of their references, a chain after those that it jumps to.
// Everything that changes what packets meet stays together.
func stages(changes []dataplane.Change, limits StageLimits) [][]dataplane.Change {
	if !limits.bounded() || !limits.exceeded(len(changes), rulesIn(changes)) {
		return [][]dataplane.Change{changes}
	}
	fresh, rest := freshChains(changes)
	var all [][]dataplane.Change
	var piece []dataplane.Change
	rules := 0
	for _, c := range fresh {
		more := ruleCount(c.After)
		if len(piece) > 0 && limits.exceeded(len(piece)+1, rules+more) {
			all = append(all, piece)
			piece, rules = nil, 0
		}
		piece, rules = append(piece, *c), rules+more
	}
	if len(piece) > 0 {
		all = append(all, piece)
	}
	if len(rest) > 0 {
		all = append(all, rest)
	}
	return all
}

// freshChains parts the chains of nat that are certainly not in the kernel, in
// the order of their references, from the other changes. A new chain that leads
// to one of unknown state has to wait for it: that one comes with the last input,
// and may not be there before.
func freshChains(changes []dataplane.Change) (fresh []*dataplane.Change, rest []dataplane.Change) {
	var candidates []*dataplane.Change
	late := make(map[dataplane.ID]bool)
	for i := range changes {
		c := &changes[i]
		if c.ID.Container == string(NAT) && c.Before == nil && !c.Unsure && c.After != nil {
			candidates = append(candidates, c)
			continue
		}
		late[c.ID] = c.Unsure
		rest = append(rest, *c)
	}
	for _, c := range byReference(candidates) {
		if slices.ContainsFunc(c.After.Refs, func(id dataplane.ID) bool { return late[id] }) {
			late[c.ID] = true
			rest = append(rest, *c)
		} else {
			fresh = append(fresh, c)
		}
	}
	return fresh, rest
}

// byReference orders chains so that each comes after those it refers to. There
// are no circles: the kernel refuses them.
func byReference(chains []*dataplane.Change) []*dataplane.Change {
	waiting := make(map[dataplane.ID]*dataplane.Change, len(chains))
	for _, c := range chains {
		waiting[c.ID] = c
	}
	ordered := make([]*dataplane.Change, 0, len(chains))
	var visit func(c *dataplane.Change)
	visit = func(c *dataplane.Change) {
		delete(waiting, c.ID)
		for _, ref := range c.After.Refs {
			if to := waiting[ref]; to != nil {
				visit(to)
			}
		}
		ordered = append(ordered, c)
	}
	for _, c := range chains {
		if waiting[c.ID] != nil {
			visit(c)
		}
	}
	return ordered
}

func rulesIn(changes []dataplane.Change) (count int) {
	for i := range changes {
		count += ruleCount(changes[i].After)
	}
	return count
}

// ruleCount is the number of rules in a chain; none in one that goes.
func ruleCount(o *dataplane.Object) int {
	if o == nil || o.Body == "" {
		return 0
	}
	return strings.Count(o.Body, "\n") + 1
}
