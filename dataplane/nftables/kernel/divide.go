package kernel

import (
	"cmp"
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/dataplane/nftables/rules"
	"github.com/sluice-proxy/sluice/service"
)

// stage is the part of a divided batch that an operation belongs to.
type stage uint8

const (
	// stageShared adds what the Services' elements need. Nothing leads there yet.
	stageShared stage = iota
	// stageFirst has the Services that the node itself needs to come up.
	stageFirst
	// stageScaffold is the scaffold of a node that has none. From here on Services are
	// served, and each transaction completes some.
	stageScaffold
	// stageChanged has the Services that are served and lose something, such as an
	// endpoint: clients meet what is gone until it is written.
	stageChanged
	stageServices
	// stageTakeover changes the rules of a node that serves by those of another proxy or
	// release, and what Services share. The old rules stay applied until everything that
	// the new ones refer to is complete.
	stageTakeover
	// stageRemoval deletes what nothing leads to any more.
	stageRemoval
)

// divide divides operations into parts by stage and owner.
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
		if x == stageRemoval {
			if c := cmp.Compare(p.removalRank(a), p.removalRank(b)); c != 0 {
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

// The containers of elements that lead to others.
var (
	inFrontends  = render.ContainerOf(render.SetName("frontends"))
	inNodePorts  = render.ContainerOf(render.SetName("nodeports"))
	inFirewalled = render.ContainerOf(render.SetName("firewalled"))
)

// removalRank orders the removal of what a former process has left and no Service wants: a
// frontend goes first, then the rules of the chains that it led to, then the mark that its
// sources are limited, then everything else. In another order, all clients or none could reach
// it between two transactions, and a process that ends there would leave a frontend that leads
// to an emptied chain.
func (p *plan) removalRank(o operation) int {
	in := p.changes[o.number].ID.Container
	switch {
	case o.step == stepDeleteElement && (in == inFrontends || in == inNodePorts):
		return 0
	case o.step == stepFlushChain:
		return 1
	case o.step == stepDeleteElement && in == inFirewalled:
		return 2
	default:
		return 3
	}
}

// separable reports whether a transaction may end between two consecutive operations.
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

// noteLosers records the Services of which something goes or is replaced.
func (p *plan) noteLosers() {
	p.losers = make(map[service.Key]bool)
	for i := range p.changes {
		if c := &p.changes[i]; c.Before != nil && c.ID.Container != render.ContainerSet {
			p.losers[c.Owner] = true
		}
	}
}

// serving reports whether the node has a scaffold, ours or another program's, that will
// change.
func (p *plan) serving() bool {
	for i := range p.changes {
		c := &p.changes[i]
		if c.Owner == service.Node && c.ID.Container == render.ContainerChain && c.Before != nil && c.After != nil {
			return true
		}
	}
	return false
}

func (p *plan) stageOf(o operation, serving bool) stage {
	c := &p.changes[o.number]
	fixed := c.Owner == service.Node
	chain := c.ID.Container == render.ContainerChain
	switch {
	case o.step == stepDeleteTable, o.step == stepDeleteSet, o.step == stepGoWithSet, o.step == stepDeleteChain:
		return stageRemoval
	case chain && c.After == nil && isBase(c.Before):
		return stageTakeover // what it leads to changes there
	case chain && c.After == nil:
		return stageRemoval
	case chain && !fixed && c.Before != nil && isEmptied(c.Before):
		// An interrupted removal left it. Nothing may lead there before it has its rules.
		return stageShared
	case chain && c.Before != nil && !ofOneService(c):
		return stageTakeover
	case fixed && serving && o.step == stepRules && !rejects(c):
		return stageTakeover
	case chain && c.Before != nil:
		return p.stageOfService(c.Owner)
	case o.step <= stepNewChain, chain && !fixed:
		return stageShared
	case fixed && c.After == nil:
		return stageRemoval
	case fixed:
		return stageScaffold
	default:
		return p.stageOfService(c.Owner)
	}
}

// rejects reports whether a chain that does not exist yet will reject packets without an endpoint. Its rules
// come early, because the release before it rejected in chains that may change early.
func rejects(c *dataplane.Change) bool {
	return c.Before == nil && (c.ID.Name == render.ChainRejectPrerouting || c.ID.Name == render.ChainRejectOutput)
}

// stageOfService returns the stage of what belongs to one Service alone.
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
	_, list := rules.Parts([]byte(chain.Body))
	return len(list) == 0
}

// ofOneService reports whether a chain belongs to one Service, whose name is in the chain's
// (see renderAffinity). Any number of Services share the others.
func ofOneService(c *dataplane.Change) bool {
	return c.Owner != service.Node && strings.Contains(c.ID.Name, "/")
}

// needed reports whether the cluster cannot come up without a Service: the API server's own,
// and DNS.
func needed(key service.Key) bool {
	switch key {
	case service.Key{Namespace: "default", Name: "kubernetes"},
		service.Key{Namespace: "kube-system", Name: "kube-dns"},
		service.Key{Namespace: "kube-system", Name: "coredns"}:
		return true
	}
	return false
}
