// SPDX-License-Identifier: Apache-2.0

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
	// stageShared adds the objects that the Services' elements need. No rule refers to them yet.
	stageShared stage = iota
	// stageFirst has the Services that the node itself needs to come up.
	stageFirst
	// stageScaffold adds the scaffold to a node without one. From here on Services are
	// served, and each transaction completes some.
	stageScaffold
	// stageChanged has the served Services that lose something, such as an endpoint: clients
	// reach the removed endpoint until the change is written.
	stageChanged
	stageServices
	// stageTakeover changes the rules of a node that another proxy or release served, and
	// rules that Services share. The old rules stay until everything to which the new ones
	// refer is complete.
	stageTakeover
	// stageRemoval deletes objects to which nothing refers any more.
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

// The containers of elements whose removal has an order; see removalRank.
var (
	inFrontends  = render.ContainerOf(render.SetName("frontends"))
	inNodePorts  = render.ContainerOf(render.SetName("nodeports"))
	inFirewalled = render.ContainerOf(render.SetName("firewalled"))
)

// removalRank orders the removal of objects that a previous process left and no Service has: first a
// frontend, then the rules of its chains, then the element that marks its sources as limited, then
// everything else. In another order, all clients or none could reach the frontend between two
// transactions, and a process that ends there would leave a frontend that refers to an emptied chain.
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
		// No rule refers to these objects, and the steps are in order.
		return true
	case x.byOwner():
		return p.changes[a.number].Owner != p.changes[b.number].Owner
	default:
		return false
	}
}

// byOwner reports whether the stage's operations are kept together by Service.
func (s stage) byOwner() bool { return s == stageFirst || s == stageChanged || s == stageServices }

// noteLosers records the Services of which an object is removed or replaced.
func (p *plan) noteLosers() {
	p.losers = make(map[service.Key]bool)
	for i := range p.changes {
		if c := &p.changes[i]; c.Before != nil && c.ID.Container != render.ContainerSet {
			p.losers[c.Owner] = true
		}
	}
}

// serving reports whether the node has a scaffold, of any release or of another program, that the
// batch changes.
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
		return stageTakeover // the chains to which it jumps change in this stage
	case chain && c.After == nil:
		return stageRemoval
	case chain && !fixed && c.Before != nil && isEmptied(c.Before):
		// An interrupted removal left it empty. No rule may jump to it before it has its rules.
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

// rejects reports whether a change adds a chain that rejects packets without an endpoint. Its rules are
// written early, because the previous release rejected them in chains that may change early.
func rejects(c *dataplane.Change) bool {
	return c.Before == nil && (c.ID.Name == render.ChainRejectPrerouting || c.ID.Name == render.ChainRejectOutput)
}

// stageOfService returns the stage of objects that belong to one Service alone.
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

// ofOneService reports whether a chain belongs to one Service, whose name is in the chain's name (see
// renderAffinity). Any number of Services share the other chains.
func ofOneService(c *dataplane.Change) bool {
	return c.Owner != service.Node && strings.Contains(c.ID.Name, "/")
}

// needed reports whether the cluster cannot come up without a Service: that of the API server, or
// DNS.
func needed(key service.Key) bool {
	switch key {
	case service.Key{Namespace: "default", Name: "kubernetes"},
		service.Key{Namespace: "kube-system", Name: "kube-dns"},
		service.Key{Namespace: "kube-system", Name: "coredns"}:
		return true
	}
	return false
}
