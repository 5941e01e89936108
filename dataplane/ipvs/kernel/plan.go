// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"maps"
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/render"
	"github.com/sluice-proxy/sluice/service"
)

// plan is a batch, divided into steps that are written in this order, so that every prefix is a
// correct state:
//
//	 1 new sets                a rule cannot look up a missing set
//	 2 new entries             before servers and addresses, and before rules look them up; first
//	   stale entries are removed from sets that no rule looks up yet
//	 3 new and changed rules
//	 4 the device
//	 5 removed shaping entries of existing servers; see shaping
//	 6 new addresses
//	 7 virtual servers: additions, then removals
//	 8 new shaping entries of existing servers
//	 9 removed addresses
//	10 removed entries
//	11 removed rules, then sets and the device
//
// It has no side effects, and exists for one write.
type plan struct {
	setsCome, setsGo           []*dataplane.Change
	device                     *dataplane.Change
	entriesStale               []*dataplane.Change
	entriesCome, entriesGo     [entryRanks][]*dataplane.Change
	addressesCome, addressesGo []*dataplane.Change
	servers                    []*dataplane.Change
	rulesCome, rulesGo         []*dataplane.Change
}

// The ranks of new entries, in the order of writing. Removed entries have the reverse order.
const (
	// plain entries state what exists.
	plain = iota
	// guarding entries restrict access to what plain entries name.
	guarding
	// shaping entries preserve client addresses. Their servers must not have endpoints on
	// other nodes, whose replies would not return through this node. For existing servers,
	// they are added after such endpoints were removed, and removed before any is added.
	// Without them clients are masqueraded, which always works.
	shaping
	entryRanks
)

// setRanks are the ranks other than plain, by the words in the names of the sets.
var setRanks = map[string]int{
	render.SetLoadBalancerFW:    guarding,
	render.SetIPs:               guarding,
	render.SetExternalIPLocal:   shaping,
	render.SetLoadBalancerLocal: shaping,
	render.SetNodePortLocalTCP:  shaping,
	render.SetNodePortLocalUDP:  shaping,
	render.SetNodePortLocalSCTP: shaping,
}

// ranksOf returns the ranks of one family's sets by their kernel names.
func ranksOf(family service.Family) map[string]int {
	ranks := make(map[string]int, len(setRanks))
	for name, rank := range setRanks {
		ranks[render.SetName(family, name)] = rank
	}
	return ranks
}

// newPlan divides a batch. The ranks are those of ranksOf.
func newPlan(changes []dataplane.Change, ranks map[string]int) *plan {
	p := &plan{}
	edited := editedOwners(changes)
	for i := range changes {
		c := &changes[i]
		switch c.ID.Container {
		case render.ContainerDevice:
			p.device = c
		case render.ContainerAddress:
			put(c, &p.addressesCome, &p.addressesGo)
		case render.ContainerSet:
			put(c, &p.setsCome, &p.setsGo)
		case render.ContainerServer:
			p.servers = append(p.servers, c)
		default:
			set, isEntry := render.EntrySet(c.ID)
			if !isEntry {
				put(c, &p.rulesCome, &p.rulesGo)
				continue
			}
			rank := ranks[set]
			if rank == shaping && c.After != nil && !edited[c.Owner] {
				rank = plain // its servers are new
			}
			put(c, &p.entriesCome[rank], &p.entriesGo[rank])
		}
	}
	idle := idleSets(p.rulesCome)
	for rank := range p.entriesGo {
		p.entriesGo[rank] = slices.DeleteFunc(p.entriesGo[rank], func(c *dataplane.Change) bool {
			set, _ := render.EntrySet(c.ID)
			if idle[set] {
				p.entriesStale = append(p.entriesStale, c)
			}
			return idle[set]
		})
	}
	return p
}

// idleSets returns the sets that rules look up after the batch, but not before it. They may have entries
// that an earlier process, which used them, left.
func idleSets(rules []*dataplane.Change) map[string]bool {
	idle := make(map[string]bool)
	for _, c := range rules {
		for _, ref := range c.After.Refs() {
			if ref.Container == render.ContainerSet {
				idle[ref.Name] = true
			}
		}
	}
	maps.DeleteFunc(idle, func(name string, _ bool) bool {
		return slices.ContainsFunc(rules, func(c *dataplane.Change) bool {
			return c.Unsure || c.Before != nil && strings.Contains(c.Before.Body, "--match-set "+name+" ")
		})
	})
	return idle
}

func put(c *dataplane.Change, come, goes *[]*dataplane.Change) {
	if c.After != nil {
		*come = append(*come, c)
	} else {
		*goes = append(*goes, c)
	}
}

// editedOwners returns the Services with an existing virtual server that the batch changes.
func editedOwners(changes []dataplane.Change) map[service.Key]bool {
	owners := make(map[service.Key]bool)
	for i := range changes {
		c := &changes[i]
		if c.ID.Container == render.ContainerServer && c.After != nil && (c.Before != nil || c.Unsure) {
			owners[c.Owner] = true
		}
	}
	return owners
}
