package nftables

import (
	"cmp"
	"slices"
	"strings"

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
	// stepDropSet and stepRedefineSet are one definition's end and the next one's
	// beginning: between the rules that go and those that come.
	stepDropSet
	stepRedefineSet
	stepDeleteElement
	stepNewElement
	stepRules
	stepNewVerdict
	stepDeleteSet
	// stepGoWithSet is an element's, whose set goes: nothing has to be said.
	stepGoWithSet
	stepDeleteChain
	stepDeleteTable
)

// operation is one step with one object. Number is the change's index.
type operation struct {
	step   step
	number int
}

// steps adds what a change needs, where ending are the containers of sets that go,
// or make room for others of the same name.
func steps(list []step, c *dataplane.Change, ending map[string]bool) []step {
	switch {
	case dataplane.Same(c.Before, c.After) && (c.After == nil || !ending[c.ID.Container]):
		return list
	case c.ID.Container == containerTable && c.After == nil:
		return append(list, stepDeleteTable)
	case c.ID.Container == containerTable:
		return append(list, stepTable)
	case c.ID.Container == containerSet && c.After == nil:
		return append(list, stepDeleteSet)
	case c.ID.Container == containerSet && c.Before != nil:
		return append(list, stepDropSet, stepRedefineSet)
	case c.ID.Container == containerSet:
		return append(list, stepNewSet)
	case c.ID.Container == containerChain:
		return chainSteps(list, c)
	case c.After == nil && ending[c.ID.Container]:
		return append(list, stepGoWithSet)
	case c.After == nil:
		return append(list, stepDeleteElement)
	}
	if c.Before != nil && !ending[c.ID.Container] {
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

// isVerdict reports whether an element maps to a chain.
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
	// stageChanged are the Services that are served and lose something, an endpoint
	// perhaps: clients meet what is gone until it is written.
	stageChanged
	stageServices
	// stageTakeover is the scaffold of a node that serves by other rules, another
	// proxy's or another release's, and what Services share: they are in force
	// until everything is complete that the new ones ask for.
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
	// losers are the Services that lose something; see stageChanged.
	losers map[service.Key]bool
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
	ending := endingSets(changes)
	for i := range changes {
		for _, s := range steps(buf[:0], &changes[i], ending) {
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

// endingSets gives the containers of sets whose elements go with them. In a divided
// batch that is at the end: until then, the rules in force ask for them.
func endingSets(changes []dataplane.Change) map[string]bool {
	var ending map[string]bool
	for i := range changes {
		c := &changes[i]
		if c.ID.Container == containerSet && c.Before != nil && !dataplane.Same(c.Before, c.After) {
			if ending == nil {
				ending = make(map[string]bool)
			}
			ending[containerOf(c.ID.Name)] = true
		}
	}
	return ending
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
	p.noteGoing()
	p.completes = make([]int, len(p.parts))
	for i := range p.changes {
		if p.first[i] != noPart {
			p.completes[p.last[i]]++
		}
	}
}

// noteGoing notes that elements which go with their set go in the part in which that
// does, wherever their own steps stand.
func (p *plan) noteGoing() {
	ends := make(map[string]int32)
	for i, part := range p.parts {
		for _, o := range part {
			if o.step == stepDeleteSet {
				ends[containerOf(p.changes[o.number].ID.Name)] = int32(i)
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
	p.noteLosers()
	slices.SortFunc(all, func(a, b operation) int {
		x, y := p.stageOf(a, serving), p.stageOf(b, serving)
		if c := cmp.Compare(x, y); c != 0 {
			return c
		}
		if x.byOwner() {
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

// separable reports whether a transaction may end between two operations that
// follow each other.
func (p *plan) separable(a, b operation, serving bool) bool {
	x, y := p.stageOf(a, serving), p.stageOf(b, serving)
	switch {
	case x != y:
		return true
	case x == stageShared || x == stageRemoval:
		// Nothing leads there, and the steps are in order.
		return true
	case x.byOwner():
		return p.changes[a.number].Owner != p.changes[b.number].Owner
	default:
		return false
	}
}

// byOwner reports whether the stage's operations are kept together by Service.
func (s stage) byOwner() bool { return s == stageFirst || s == stageChanged || s == stageServices }

// noteLosers takes down the Services of which something goes or is replaced.
func (p *plan) noteLosers() {
	p.losers = make(map[service.Key]bool)
	for i := range p.changes {
		if c := &p.changes[i]; c.Before != nil && c.ID.Container != containerSet {
			p.losers[c.Owner] = true
		}
	}
}

// serving reports whether the node has a scaffold, ours or somebody else's, that
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
	chain := c.ID.Container == containerChain
	switch {
	case o.step == stepDeleteTable, o.step == stepDeleteSet, o.step == stepGoWithSet, o.step == stepDeleteChain:
		return stageRemoval
	case chain && c.After == nil:
		return stageRemoval
	case chain && !fixed && c.Before != nil && isEmptied(c.Before):
		// An interrupted removal has left it. Nothing may lead there before it is filled.
		return stageShared
	case chain && c.Before != nil && !ofOneService(c):
		return stageTakeover
	case fixed && serving && o.step == stepRules:
		return stageTakeover
	case chain && c.Before != nil:
		return p.stageOfService(c.Owner)
	case o.step <= stepNewChain, chain && !fixed:
		return stageShared
	case fixed && c.After == nil:
		return stageRemoval
	case fixed && strings.HasSuffix(c.ID.Container, besideSuffix):
		return stageShared
	case fixed:
		return stageScaffold
	default:
		return p.stageOfService(c.Owner)
	}
}

// stageOfService is the stage of all that belongs to one Service alone.
func (p *plan) stageOfService(owner service.Key) stage {
	switch {
	case needed(owner):
		return stageFirst
	case p.losers[owner]:
		return stageChanged
	default:
		return stageServices
	}
}

// isEmptied reports whether a chain has no rules.
func isEmptied(chain *dataplane.Object) bool {
	_, rules := chainParts(chain.Body)
	return len(rules) == 0
}

// ofOneService reports whether a chain is a Service's own (see renderAffinity), whose
// name is in the chain's. Any number of Services share the others.
func ofOneService(c *dataplane.Change) bool {
	return c.Owner != service.Node && strings.Contains(c.ID.Name, "/")
}

// needed reports whether the rest of the cluster cannot come up without a Service:
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
		case stepNewSet, stepRedefineSet:
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
		case stepDeleteSet, stepDropSet:
			e.deleteSet(c.ID.Name)
		case stepDeleteTable:
			e.deleteTable()
		}
	}
	e.finish()
	return e.t
}
