package iptables

import "slices"

// Territory is what a mode of the proxy has in iptables. A writer looks at nothing
// else, and a clean-up removes it. KUBE-FIREWALL, which is shared with the kubelet,
// is in none.
type Territory struct {
	// Owns tells whether a chain is the mode's alone, so that a sweep may remove it
	// when nobody wants it.
	Owns func(table Table, chain string) bool
	// Hooks are in the order of their rows.
	Hooks []Hook
	// Canaries are chains that a mode always has, by table: when one has gone,
	// somebody has flushed the table.
	Canaries map[Table]string
}

// OwnTerritory is that of mode iptables. Other modes have their own; see WriterConfig.
func OwnTerritory() Territory {
	return Territory{
		Owns: OwnsChain, Hooks: HookRows(),
		Canaries: map[Table]string{Mangle: chainCanary, Filter: chainCanary, NAT: chainCanary},
	}
}

// With gives what either of two modes has, to clean up after both. Nobody can clean
// up after one and then the other: the chains of the one may lead to those of the
// other.
func (t Territory) With(other Territory) Territory {
	hooks := slices.Clone(t.Hooks)
	for _, h := range other.Hooks {
		if !t.hasHook(h) {
			hooks = append(hooks, h)
		}
	}
	return Territory{
		Owns:  func(table Table, chain string) bool { return t.Owns(table, chain) || other.Owns(table, chain) },
		Hooks: hooks,
	}
}

// Without gives what this mode has and another has not, to clean up after this one
// while the other serves.
func (t Territory) Without(other Territory) Territory {
	return Territory{
		Owns:  func(table Table, chain string) bool { return t.Owns(table, chain) && !other.Owns(table, chain) },
		Hooks: slices.DeleteFunc(slices.Clone(t.Hooks), other.hasHook),
	}
}

// hasHook tells whether the same rule is among the hooks, in whichever row.
func (t Territory) hasHook(hook Hook) bool {
	return slices.ContainsFunc(t.Hooks, func(h Hook) bool {
		return h.Table == hook.Table && h.Chain == hook.Chain && h.Text() == hook.Text()
	})
}

// hooksIn finds the hooks that a table holds, each once.
func (t Territory) hooksIn(s *saved) []Hook {
	return slices.DeleteFunc(slices.Clone(t.Hooks), func(h Hook) bool {
		return h.Table != s.table || !s.has(h.Chain, h.Text())
	})
}
