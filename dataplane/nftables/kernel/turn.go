// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"slices"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/service"
)

// turnMax is the default of WriterConfig.TurnObjects. The kernel writes this many elements in about 30 ms. During this
// time, no other process can change tables.
const turnMax = 10_000

// phase is the part of a large Service that a change belongs to. Changes of any phase but phaseRest may be spread over
// any number of transactions, in the order of phases.
type phase uint8

const (
	// phaseLeaving removes frontends of a Service that adds nothing but slots.
	phaseLeaving phase = iota
	// phaseNew adds slots that no packet looks up until the number of slots of their frontend changes.
	phaseNew
	// phaseChanged replaces the endpoints of single slots.
	phaseChanged
	// phaseRest has the frontends with their numbers of slots, and all other objects.
	phaseRest
	// phaseComing adds frontends of a Service that loses nothing but slots. The chains that they lead to exist by then.
	phaseComing
	// phaseGone removes slots that no packet looks up any more.
	phaseGone
)

// course records whether any changed object of a Service, other than slots, exists before the change, and after it.
type course struct{ before, after bool }

func (s *course) note(c *dataplane.Change) {
	s.before = s.before || c.Before != nil || c.Unsure
	s.after = s.after || c.After != nil
}

func (s *course) phaseOf(c *dataplane.Change) phase {
	switch slot := render.HasSlots(c.ID.Container); {
	case c.Unsure:
		return phaseRest // a packet may look it up
	case slot && c.Before == nil:
		return phaseNew
	case slot && c.After == nil:
		return phaseGone
	case slot:
		return phaseChanged
	case leads(c) && !s.before:
		return phaseComing
	case leads(c) && !s.after:
		return phaseLeaving
	default:
		return phaseRest
	}
}

// turns chooses which of the planned changes each write makes.
type turns struct {
	// most is the number of objects of a turn.
	most int
	last service.Key
	// waited counts the writes in a row in which a Service waited for the Service that takes over its frontend.
	waited int
}

// choose leaves a part of each Service with more than most changes for later writes, so that other Services wait only
// for a part. Large Services take turns in the order of their keys, after last: one that changes all the time does not
// keep the others waiting. A Service that loses a frontend to a waiting Service waits, too. If the node's own rules
// change, it leaves nothing, because all Services depend on them. Into a new table, the node's rules and all small
// Services are written first, and each large Service after them.
func (t *turns) choose(changes []dataplane.Change) (now []dataplane.Change) {
	of, large, found := dataplane.NextLarge(changes, t.most, t.last)
	if !found || of[service.Node] > 0 && !isNew(changes) {
		return changes
	}
	if of[service.Node] > 0 {
		large = t.last // none has a turn yet
	}
	now, left := t.divide(changes, of, large)
	losers := losersOf(now, left)
	if t.tooLong(losers, of) {
		return changes
	}
	t.last = large
	return slices.DeleteFunc(now, func(c dataplane.Change) bool { return losers[c.Owner] })
}

// divide chooses all changes of the node and of small Services, and a part of the changes of the large Service. If
// there are changes of the node, that part is empty.
func (t *turns) divide(changes []dataplane.Change, of map[service.Key]int, large service.Key) (now, left []dataplane.Change) {
	var phases [phaseGone + 1]int
	var its course
	if of[service.Node] == 0 {
		its, phases = phasesOf(changes, large)
	}
	room := t.most
	for p := range phases {
		take := min(phases[p], room)
		if phase(p) == phaseRest && room > 0 {
			take = phases[p] // its changes belong together
		}
		if take < phases[p] {
			room = 0 // later phases wait for the rest of this one
		} else {
			room -= take
		}
		phases[p] = take
	}
	now = make([]dataplane.Change, 0, t.most)
	for i := range changes {
		c := &changes[i]
		p := its.phaseOf(c)
		switch {
		case of[c.Owner] <= t.most || c.Owner == service.Node:
			now = append(now, *c)
		case c.Owner == large && phases[p] > 0:
			phases[p]--
			now = append(now, *c)
		default:
			left = append(left, *c)
		}
	}
	return now, left
}

// tooLong reports whether a batch must not be divided, because a Service has waited too long or two large Services would
// wait for each other. It counts the consecutive writes in which a Service waits.
func (t *turns) tooLong(losers map[service.Key]bool, of map[service.Key]int) bool {
	t.waited++
	long := t.waited > dataplane.WaitedMax
	for key := range losers {
		long = long || of[key] > t.most // two large Services may each wait for a frontend of the other
	}
	if long || len(losers) == 0 {
		t.waited = 0
	}
	return long && len(losers) > 0
}

// losersOf returns the Services that delete a chain although the change of a frontend that leads to it is left for a
// later write: a large Service takes the frontend from them.
func losersOf(now, left []dataplane.Change) map[service.Key]bool {
	led := map[dataplane.ID]bool{}
	for i := range left {
		if c := &left[i]; c.Before != nil && leads(c) {
			for _, ref := range (render.Origin{}).Refs(c.Before) {
				led[ref] = true
			}
		}
	}
	losers := map[service.Key]bool{}
	for i := range now {
		if c := &now[i]; c.After == nil && c.Owner != service.Node && led[c.ID] && c.ID.Container == render.ContainerChain {
			losers[c.Owner] = true
		}
	}
	return losers
}

// leads reports whether a change is about a frontend.
func leads(c *dataplane.Change) bool {
	return c.ID.Container == inFrontends || c.ID.Container == inNodePorts
}

// phasesOf returns what happens to a Service, and how many changes it has in each phase.
func phasesOf(changes []dataplane.Change, key service.Key) (its course, counts [phaseGone + 1]int) {
	for i := range changes {
		if c := &changes[i]; c.Owner == key && !render.HasSlots(c.ID.Container) {
			its.note(c)
		}
	}
	for i := range changes {
		if c := &changes[i]; c.Owner == key {
			counts[its.phaseOf(c)]++
		}
	}
	return its, counts
}

// isNew reports whether a batch fills a new table, in which nothing serves yet.
func isNew(changes []dataplane.Change) bool {
	return !slices.ContainsFunc(changes, func(c dataplane.Change) bool { return c.Before != nil }) &&
		slices.ContainsFunc(changes, func(c dataplane.Change) bool { return c.ID.Container == render.ContainerTable })
}
