package nftables

import (
	"cmp"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/service"
)

// step is what a transaction does with one object, in the order in which the
// kernel can do it: containers, contents, references, and backwards for what
// goes.
type step uint8

const (
	stepTable step = iota
	stepNewSet
	stepDeleteBaseChain
	stepNewChain
	stepFlushChain
	stepDeleteElement
	stepNewElement
	stepRules
	stepNewVerdict
	stepDeleteSet
	stepDeleteChain
	stepDeleteTable
)

// operation is one step with one object. Number is the change's index.
type operation struct {
	step   step
	number int
}

// steps adds what a change needs.
func steps(list []step, c *dataplane.Change) []step {
	switch {
	case dataplane.Same(c.Before, c.After):
		return list
	case c.ID.Container == containerTable && c.After == nil:
		return append(list, stepDeleteTable)
	case c.ID.Container == containerTable:
		return append(list, stepTable)
	case c.ID.Container == containerSet && c.After == nil:
		return append(list, stepDeleteSet)
	case c.ID.Container == containerSet:
		return append(list, stepNewSet)
	case c.ID.Container == containerChain:
		return chainSteps(list, c)
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
		// A base chain's hook cannot be changed; nothing refers to a base
		// chain, so it can go and come back.
		return append(list, stepDeleteBaseChain, stepNewChain, stepRules)
	default:
		return append(list, stepFlushChain, stepRules)
	}
}

func baseOf(o *dataplane.Object) string {
	base, _ := chainParts(o.Body)
	return string(base)
}

// isVerdict tells whether an element maps to a chain.
func isVerdict(o *dataplane.Object) bool {
	data := wire.Find([]byte(o.Body), unix.NFTA_SET_ELEM_DATA).Data
	return wire.Find(data, unix.NFTA_DATA_VERDICT).Data != nil
}

// stage says in which part of a divided batch an operation belongs.
type stage uint8

const (
	// stageShared makes what the Services' elements need: nothing leads there
	// yet.
	stageShared stage = iota
	// stageFirst are the Services that the node itself needs to come up.
	stageFirst
	// stageScaffold is the scaffold of a node that has none: from here on,
	// Services are served, and each transaction completes some.
	stageScaffold
	stageServices
	// stageTakeover is the scaffold of a node that serves by other rules: they
	// are in force until the new ones are complete.
	stageTakeover
	// stageRemoval takes away what nothing leads to any more.
	stageRemoval
)

// plan is a batch as the writer carries it out.
type plan struct {
	d       *dialect
	changes []dataplane.Change
	// parts are the operations of each transaction.
	parts [][]operation
	// ordered tells that the changes are in the order of their identities, so
	// that comparing numbers says the same.
	ordered bool
	// first and last hold for each change the parts in which it begins and is
	// complete; a change without a step is in none (first is noPart).
	first, last []int32
	// completes counts for each part the changes that it completes.
	completes []int
}

// noPart is the first part of a change that needs nothing done.
const noPart = -1

// newPlan orders the changes and divides them into transactions of about
// bytesMax at most. Changes of one Service stay together, so that each
// transaction leaves every Service as it was or as it is wanted.
//
// With lateRelease, chains are deleted in transactions of their own, the last ones.
func newPlan(d *dialect, changes []dataplane.Change, bytesMax int, lateRelease bool) *plan {
	p := &plan{d: d, changes: changes, ordered: slices.IsSortedFunc(changes, func(a, b dataplane.Change) int {
		return a.ID.Compare(b.ID)
	})}
	all := make([]operation, 0, len(changes))
	var late []operation
	var buf [4]step
	total := 0
	for i := range changes {
		for _, s := range steps(buf[:0], &changes[i]) {
			if lateRelease && s == stepDeleteChain {
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

// note takes down in which parts each change is carried out.
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
	p.completes = make([]int, len(p.parts))
	for i := range p.changes {
		if p.first[i] != noPart {
			p.completes[p.last[i]]++
		}
	}
}

// certain gives what is in the kernel once some of the parts have landed and the
// others have not been begun. What is half done is missing.
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

// divide cuts by stage and owner.
func (p *plan) divide(all []operation, bytesMax int) {
	serving := p.serving()
	slices.SortFunc(all, func(a, b operation) int {
		x, y := p.stageOf(a, serving), p.stageOf(b, serving)
		if c := cmp.Compare(x, y); c != 0 {
			return c
		}
		if x == stageFirst || x == stageServices {
			if c := p.changes[a.number].Owner.Compare(p.changes[b.number].Owner); c != 0 {
				return c
			}
		}
		return p.compare(a, b)
	})
	size, start := 0, 0
	for i, o := range all {
		if i > start && size > bytesMax && p.separable(all[i-1], o, serving) {
			p.parts = append(p.parts, all[start:i])
			size, start = 0, i
		}
		size += cost(&p.changes[o.number])
	}
	p.parts = append(p.parts, all[start:])
}

// separable tells whether a transaction may end between two operations that
// follow each other.
func (p *plan) separable(a, b operation, serving bool) bool {
	x, y := p.stageOf(a, serving), p.stageOf(b, serving)
	switch {
	case x != y:
		return true
	case x == stageShared || x == stageRemoval:
		// Nothing leads there, and the steps are in order.
		return true
	case x == stageFirst || x == stageServices:
		return p.changes[a.number].Owner != p.changes[b.number].Owner
	default:
		return false
	}
}

// serving tells whether the node has a scaffold, ours or somebody else's, that
// is going to change.
func (p *plan) serving() bool {
	for i := range p.changes {
		c := &p.changes[i]
		if c.Owner == service.Node && c.ID.Container == containerChain && c.Before != nil && c.After != nil {
			return true
		}
	}
	return false
}

func (p *plan) stageOf(o operation, serving bool) stage {
	c := &p.changes[o.number]
	fixed := c.Owner == service.Node
	switch {
	case o.step == stepDeleteTable, o.step == stepDeleteSet, o.step == stepDeleteChain:
		return stageRemoval
	case fixed && (o.step == stepRules || o.step == stepFlushChain || o.step == stepDeleteBaseChain) && c.After == nil:
		return stageRemoval
	case fixed && serving && o.step >= stepDeleteBaseChain && c.ID.Container == containerChain && c.Before != nil:
		return stageTakeover
	case o.step <= stepNewChain, c.ID.Container == containerChain && !fixed:
		return stageShared
	case fixed && c.After == nil && c.ID.Container != containerChain:
		return stageRemoval
	case fixed:
		return stageScaffold
	case needed(c.Owner):
		return stageFirst
	default:
		return stageServices
	}
}

// needed tells whether the rest of the cluster cannot come up without a Service:
// the API server's own, and DNS.
func needed(key service.Key) bool {
	switch key {
	case service.Key{Namespace: "default", Name: "kubernetes"},
		service.Key{Namespace: "kube-system", Name: "kube-dns"},
		service.Key{Namespace: "kube-system", Name: "coredns"}:
		return true
	}
	return false
}

// transaction writes out one part.
func (p *plan) transaction(part []operation) *wire.Transaction {
	size := 0
	for _, o := range part {
		size += cost(&p.changes[o.number])
	}
	e := newEmitter(p.d)
	e.t.Grow(size, len(part))
	for _, o := range part {
		c := &p.changes[o.number]
		if o.step != stepNewElement && o.step != stepNewVerdict && o.step != stepDeleteElement {
			e.finish()
			e.t.Note(o.number)
		}
		switch o.step {
		case stepTable:
			e.addTable(c.After.Body)
		case stepNewSet:
			e.addSet(c.ID.Name, c.After.Body)
		case stepNewChain:
			e.addChain(c.ID.Name, c.After.Body)
		case stepFlushChain:
			e.flushChain(c.ID.Name)
		case stepDeleteElement:
			e.element(unix.NFT_MSG_DELSETELEM, c.ID, "", o.number)
		case stepNewElement, stepNewVerdict:
			e.element(unix.NFT_MSG_NEWSETELEM, c.ID, c.After.Body, o.number)
		case stepRules:
			e.addRules(c.ID.Name, c.After.Body)
		case stepDeleteChain, stepDeleteBaseChain:
			e.deleteChain(c.ID.Name)
		case stepDeleteSet:
			e.deleteSet(c.ID.Name)
		case stepDeleteTable:
			e.deleteTable()
		}
	}
	e.finish()
	return e.t
}
