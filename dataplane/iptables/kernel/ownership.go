package kernel

import (
	"slices"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/render"
)

// Ownership is what one mode of the proxy owns in iptables. A writer looks at nothing else,
// and a clean-up removes it. KUBE-FIREWALL, which the kubelet shares, is in none.
type Ownership struct {
	// Owns reports whether a chain belongs to the mode alone, so that a sweep may remove it
	// when it is not wanted.
	Owns func(table render.Table, chain string) bool
	// Hooks are in the order of their rows.
	Hooks []render.Hook
}

// DefaultOwnership returns the ownership of iptables mode. For other modes see WriterConfig.
func DefaultOwnership() Ownership {
	return Ownership{Owns: render.OwnsChain, Hooks: render.HookRows()}
}

// With returns what either of two modes owns. A clean-up of both needs it: the chains of one
// may lead to chains of the other, so cleaning up after one and then the other fails.
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

// Without returns what this mode owns and another does not, for cleaning up after this one
// while the other serves.
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

// hooksIn returns the hooks that a table holds, each once.
func (o Ownership) hooksIn(s *saved) []render.Hook {
	return slices.DeleteFunc(slices.Clone(o.Hooks), func(h render.Hook) bool {
		return h.Table != s.table || !s.has(h.Chain, h.Text())
	})
}

// foreignHooksIn adds the rules of built-in chains that lead to our chains and are no hook of ours:
// another release or another program made them. They stay, unless the chain that they lead to
// goes, because they would keep the kernel from deleting it.
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
