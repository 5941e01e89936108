// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"slices"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/render"
)

// Ownership defines the chains and hooks that one mode of the proxy owns in iptables. A writer reads
// nothing else, and a cleanup removes them. Owns excludes KUBE-FIREWALL, which the kubelet shares.
type Ownership struct {
	// Owns reports whether a chain belongs to the mode alone, so that a writer may remove it when it
	// is not desired.
	Owns func(table render.Table, chain string) bool
	// Hooks are in the order of their rows.
	Hooks []render.Hook
}

// DefaultOwnership returns the ownership of iptables mode. For other modes see WriterConfig.
func DefaultOwnership() Ownership {
	return Ownership{Owns: render.OwnsChain, Hooks: render.HookRows()}
}

// With returns everything that either of two modes owns. A cleanup of both needs it: the chains of one
// may jump to chains of the other, so cleaning up one mode after the other fails.
func (o Ownership) With(other Ownership) Ownership {
	hooks := slices.Clone(o.Hooks)
	for _, h := range other.Hooks {
		if !o.hasHook(h) {
			hooks = append(hooks, h)
		}
	}
	return Ownership{
		Owns:  func(table render.Table, chain string) bool { return o.Owns(table, chain) || other.Owns(table, chain) },
		Hooks: hooks,
	}
}

// Without returns everything that this mode owns and the other does not, to clean up this mode while
// the other serves.
func (o Ownership) Without(other Ownership) Ownership {
	return Ownership{
		Owns:  func(table render.Table, chain string) bool { return o.Owns(table, chain) && !other.Owns(table, chain) },
		Hooks: slices.DeleteFunc(slices.Clone(o.Hooks), other.hasHook),
	}
}

// hasHook reports whether the same rule is among the hooks, in any row.
func (o Ownership) hasHook(hook render.Hook) bool {
	return slices.ContainsFunc(o.Hooks, func(h render.Hook) bool {
		return h.Table == hook.Table && h.Chain == hook.Chain && h.Text() == hook.Text()
	})
}

// hooksIn returns the hooks that a table contains, each once.
func (o Ownership) hooksIn(s *saved) []render.Hook {
	return slices.DeleteFunc(slices.Clone(o.Hooks), func(h render.Hook) bool {
		return h.Table != s.table || !s.has(h.Chain, h.Text())
	})
}

// foreignHooksIn adds rules of built-in chains that jump to owned chains, but are not in Hooks: another
// release or another program created them. They stay until their target chain is removed, because the
// kernel would not delete the chain otherwise.
func (o Ownership) foreignHooksIn(s *saved, foreignHooks map[dataplane.ID][]render.Hook) {
	for _, chain := range s.chains {
		if !isBuiltIn(chain) {
			continue
		}
		for _, text := range s.rules[chain] {
			foreign := render.ReadHook(s.table, chain, text)
			if s.exists[foreign.Target] && o.Owns(s.table, foreign.Target) && !o.hasHook(foreign) {
				id := render.ChainID(s.table, foreign.Target)
				foreignHooks[id] = append(foreignHooks[id], foreign)
			}
		}
	}
}

func isBuiltIn(chain string) bool {
	switch chain {
	case "PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING":
		return true
	}
	return false
}
