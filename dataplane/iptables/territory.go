package iptables

import (
	"slices"

	"github.com/sluice-proxy/sluice/dataplane"
)

// Territory is what a mode of the proxy has in iptables. A writer looks at nothing
// else, and a clean-up removes it. KUBE-FIREWALL, which is shared with the kubelet,
// is in none.
type Territory struct {
	// Owns reports whether a chain is the mode's alone, so that a sweep may remove it
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

// hasHook reports whether the same rule is among the hooks, in whichever row.
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

// straysIn finds rules of built-in chains that lead to chains of ours by other words
// than our hooks have: another release's, or a stranger's. They stay, unless the chain
// goes that they lead to, which they would keep from going.
func (t Territory) straysIn(s *saved, strays map[dataplane.ID][]hookEdit) {
	for _, chain := range s.chains {
		if !isBuiltIn(chain) {
			continue
		}
		for _, text := range s.rules[chain] {
			target := ruleTarget(text)
			known := slices.ContainsFunc(t.Hooks, func(h Hook) bool {
				return h.Table == s.table && h.Chain == chain && h.Text() == text
			})
			if known || !s.exists[target] || !t.Owns(s.table, target) {
				continue
			}
			id := dataplane.ID{Container: string(s.table), Name: target}
			strays[id] = append(strays[id], hookEdit{
				hookPlace: hookPlace{table: s.table, chain: chain, text: text}, rule: splitRule(text),
			})
		}
	}
}

// isBuiltIn reports whether a chain is the kernel's own.
func isBuiltIn(chain string) bool {
	switch chain {
	case "PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING":
		return true
	}
	return false
}
