// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"cmp"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/dataplane/nftables/rules"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// step is what a transaction does with one object. The steps are in the order that the kernel
// requires: containers, contents, references; for removals the reverse.
type step uint8

const (
	stepTable step = iota
	// stepNewSharedSet precedes stepNewSet, because each Service with affinity has its own sets:
	// for each message about a set's elements, the kernel walks a list of all sets in the order
	// of their creation.
	stepNewSharedSet
	stepNewSet
	stepDeleteBaseChain
	stepNewChain
	// stepFlushChain also precedes the deletion of a base chain, one transaction earlier. nf_tables_commit
	// (Linux 6.18) makes the new rules of all remaining chains visible, but keeps the rules of deleted
	// chains. Until their hooks are unregistered, a millisecond later, these rules jump to chains that
	// already have their new rules.
	stepFlushChain
	stepDeleteElement
	stepNewElement
	stepRules
	stepNewVerdict
	stepDeleteSet
	// stepGoWithSet is for an element whose set is deleted. It needs no message.
	stepGoWithSet
	stepDeleteChain
	stepDeleteTable
)

// operation is one step with one object. number is the index of the change.
type operation struct {
	step   step
	number int
}

// steps adds the steps of a change. ending has the containers of deleted sets.
func steps(list []step, c *dataplane.Change, ending map[string]bool) []step {
	switch {
	case c.Unsure && c.ID.Container == render.ContainerTable && c.After != nil:
		// It is written even if it exists: the whole scaffold is unsure in a witness, which
		// tests whether the kernel rejects everything.
		return append(list, stepTable)
	case dataplane.Same(c.Before, c.After):
		return list
	case c.ID.Container == render.ContainerTable && c.After == nil:
		return append(list, stepDeleteTable)
	case c.ID.Container == render.ContainerTable:
		return append(list, stepTable)
	case c.ID.Container == render.ContainerSet && c.After == nil:
		return append(list, stepDeleteSet)
	case c.ID.Container == render.ContainerSet && render.IsShared(c.ID.Name):
		return append(list, stepNewSharedSet)
	case c.ID.Container == render.ContainerSet:
		return append(list, stepNewSet)
	case c.ID.Container == render.ContainerChain:
		return chainSteps(list, c)
	case c.After == nil && ending[c.ID.Container]:
		return append(list, stepGoWithSet)
	case c.After == nil:
		return append(list, stepDeleteElement)
	}
	if c.Before != nil {
		list = append(list, stepDeleteElement)
	}
	if isVerdict(c.After) {
		return append(list, stepNewVerdict)
	}
	return append(list, stepNewElement)
}

func chainSteps(list []step, c *dataplane.Change) []step {
	switch {
	case c.After == nil:
		return append(list, stepFlushChain, stepDeleteChain)
	case c.Before == nil:
		return append(list, stepNewChain, stepRules)
	case baseOf(c.Before) != baseOf(c.After):
		// The hook of a base chain cannot be changed. The chain can be deleted and added
		// again, because no rule jumps to a base chain.
		return append(list, stepDeleteBaseChain, stepNewChain, stepRules)
	default:
		return append(list, stepFlushChain, stepRules)
	}
}

func baseOf(o *dataplane.Object) string {
	base, _ := rules.Parts([]byte(o.Body))
	return string(base)
}

// isBase reports whether a chain is a base chain.
func isBase(o *dataplane.Object) bool { return baseOf(o) != "" }

// isVerdict reports whether an element maps to a chain.
func isVerdict(o *dataplane.Object) bool {
	data := netlink.Find([]byte(o.Body), unix.NFTA_SET_ELEM_DATA).Data
	return netlink.Find(data, unix.NFTA_DATA_VERDICT).Data != nil
}

// plan is a batch, divided into the transactions that the writer sends.
type plan struct {
	d       *rules.Header
	changes []dataplane.Change
	// parts are the operations of each transaction.
	parts [][]operation
	// encoded is the last transaction, whose memory the next one reuses.
	encoded *wire.Transaction
	// ordered is set if the changes are in the order of their identities, so that their
	// numbers have the same order.
	ordered bool
	// recounts is set if the plan adds shared sets with counters. Until then, connections are counted in the
	// sets of another release or not at all.
	recounts bool
	// losers are the Services that lose something; see stageChanged.
	losers map[service.Key]bool
	// first and last are, for each change, the parts in which it begins and is complete.
	// first is noPart for a change without a step.
	first, last []int32
	// completes counts the changes that each part completes.
	completes []int
}

// noPart is the first part of a change without a step.
const noPart = -1

// newPlan orders the changes and divides them into transactions of about bytesMax at most. Changes
// of one Service stay together, so that after each transaction every Service is in its previous or in
// its desired state.
//
// The last transactions delete base chains and do nothing else; see stepFlushChain.
func newPlan(d *rules.Header, changes []dataplane.Change, bytesMax int) *plan {
	p := &plan{d: d, changes: changes, ordered: slices.IsSortedFunc(changes, func(a, b dataplane.Change) int {
		return a.ID.Compare(b.ID)
	})}
	all := make([]operation, 0, len(changes))
	var late []operation
	var buf [4]step
	total := 0
	ending := endingSets(changes)
	for i := range changes {
		for _, s := range steps(buf[:0], &changes[i], ending) {
			p.recounts = p.recounts || s == stepNewSharedSet && render.CountedIn(changes[i].ID.Name) != render.CountsNothing
			if s == stepDeleteChain && isBase(changes[i].Before) {
				late = append(late, operation{s, i})
			} else {
				all = append(all, operation{s, i})
			}
		}
		total += cost(&changes[i])
	}
	switch {
	case len(all) == 0:
	case total <= bytesMax:
		p.parts = [][]operation{all}
	default:
		p.divide(all, bytesMax)
	}
	if len(late) > 0 {
		p.divide(late, bytesMax)
	}
	for _, part := range p.parts {
		slices.SortFunc(part, p.compare)
	}
	p.note()
	return p
}

// endingSets returns the containers of deleted sets, whose elements are deleted with them. In a divided
// batch this happens at the end, because until then the applied rules refer to the sets.
func endingSets(changes []dataplane.Change) map[string]bool {
	var ending map[string]bool
	for i := range changes {
		c := &changes[i]
		if c.ID.Container == render.ContainerSet && c.After == nil {
			if ending == nil {
				ending = make(map[string]bool)
			}
			ending[render.ContainerOf(c.ID.Name)] = true
		}
	}
	return ending
}

// note records the parts in which each change is carried out.
func (p *plan) note() {
	p.first, p.last = make([]int32, len(p.changes)), make([]int32, len(p.changes))
	for i := range p.first {
		p.first[i] = noPart
	}
	for i, part := range p.parts {
		for _, o := range part {
			if p.first[o.number] == noPart {
				p.first[o.number] = int32(i)
			}
			p.last[o.number] = int32(i)
		}
	}
	p.noteGoing()
	p.completes = make([]int, len(p.parts))
	for i := range p.changes {
		if p.first[i] != noPart {
			p.completes[p.last[i]]++
		}
	}
}

// noteGoing records that elements of deleted sets are deleted in the set's part, regardless of the part
// of their own step.
func (p *plan) noteGoing() {
	ends := make(map[string]int32)
	for i, part := range p.parts {
		for _, o := range part {
			if o.step == stepDeleteSet {
				ends[render.ContainerOf(p.changes[o.number].ID.Name)] = int32(i)
			}
		}
	}
	for _, part := range p.parts {
		for _, o := range part {
			if end, ok := ends[p.changes[o.number].ID.Container]; ok && o.step == stepGoWithSet {
				p.first[o.number], p.last[o.number] = end, end
			}
		}
	}
}

// certain returns the state of the objects after the first parts landed and the others were not begun.
// It leaves out objects of which only some steps were carried out.
func (p *plan) certain(landed int) map[dataplane.ID]*dataplane.Object {
	certain := make(map[dataplane.ID]*dataplane.Object, len(p.changes))
	for i := range p.changes {
		switch c := &p.changes[i]; {
		case p.first[i] == noPart, int(p.last[i]) < landed:
			certain[c.ID] = c.After
		case int(p.first[i]) >= landed:
			certain[c.ID] = c.Before
		}
	}
	return certain
}

// cost estimates the bytes of a change.
func cost(c *dataplane.Change) int {
	const perObject = 64
	size := perObject
	for _, o := range []*dataplane.Object{c.Before, c.After} {
		if o != nil {
			size += len(o.ID.Name) + len(o.Body)
		}
	}
	return size
}

// compare orders operations within a transaction.
func (p *plan) compare(a, b operation) int {
	if c := cmp.Compare(a.step, b.step); c != 0 {
		return c
	}
	if !p.ordered {
		if c := p.changes[a.number].ID.Compare(p.changes[b.number].ID); c != 0 {
			return c
		}
	}
	return cmp.Compare(a.number, b.number)
}
