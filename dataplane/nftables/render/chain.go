// SPDX-License-Identifier: Apache-2.0

package render

import (
	"slices"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables/rules"
)

// chain builds a chain.
type chain struct{ rules.Chain }

func newChain(name string) *chain { return &chain{rules.Chain{Name: name}} }

// newBaseChain builds a chain that the kernel calls.
func newBaseChain(name string, at rules.Base) *chain {
	return &chain{rules.Chain{Name: name, Base: &at}}
}

// natAt returns the hook and priority of a base chain of type nat.
func natAt(hook uint32, priority int32) rules.Base {
	return rules.Base{Kind: "nat", Hook: hook, Priority: priority}
}

// add appends a rule.
func (c *chain) add(r *rule) *chain {
	c.Rules = append(c.Rules, r.Rule)
	return c
}

// object returns the chain as an object, with references to everything that its rules name.
func (c *chain) object() dataplane.Object {
	refs := appendReferences([]dataplane.ID{tableID}, c.Rules)
	return dataplane.Object{ID: chainID(c.Name), Kind: dataplane.Owned, Body: string(c.Encode()), Links: dataplane.LinkTo(refs...)}
}

// appendReferences appends the sets and chains that rules name, each once.
func appendReferences(ids []dataplane.ID, list []rules.Rule) []dataplane.ID {
	add := func(id dataplane.ID) {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	for i := range list {
		list[i].References(func(set string) { add(setID(set)) }, func(chain string) { add(chainID(chain)) })
	}
	return ids
}
