package iptables

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/rules"
)

// Territory is what one mode of the proxy owns in iptables. A writer looks at nothing else,
// and a clean-up removes it. KUBE-FIREWALL, which the kubelet shares, is in none.
type Territory struct {
	// Owns reports whether a chain belongs to the mode alone, so that a sweep may remove it
	// when it is not wanted.
	Owns func(table Table, chain string) bool
	// Hooks are in the order of their rows.
	Hooks []Hook
}

// OwnTerritory returns the territory of iptables mode. For other modes see WriterConfig.
func OwnTerritory() Territory {
	return Territory{Owns: OwnsChain, Hooks: HookRows()}
}

// With returns what either of two modes owns. A clean-up of both needs it: the chains of one
// may lead to chains of the other, so cleaning up after one and then the other fails.
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

// Without returns what this mode owns and another does not, for cleaning up after this one
// while the other serves.
func (t Territory) Without(other Territory) Territory {
	return Territory{
		Owns:  func(table Table, chain string) bool { return t.Owns(table, chain) && !other.Owns(table, chain) },
		Hooks: slices.DeleteFunc(slices.Clone(t.Hooks), other.hasHook),
	}
}

// hasHook reports whether the same rule is among the hooks, in any row.
func (t Territory) hasHook(hook Hook) bool {
	return slices.ContainsFunc(t.Hooks, func(h Hook) bool {
		return h.Table == hook.Table && h.Chain == hook.Chain && h.Text() == hook.Text()
	})
}

// hooksIn returns the hooks that a table holds, each once.
func (t Territory) hooksIn(s *saved) []Hook {
	return slices.DeleteFunc(slices.Clone(t.Hooks), func(h Hook) bool {
		return h.Table != s.table || !s.has(h.Chain, h.Text())
	})
}

// foreignHooksIn adds the rules of built-in chains that lead to our chains and are no hook of ours:
// another release or another program made them. They stay, unless the chain that they lead to
// goes, because they would keep the kernel from deleting it.
func (t Territory) foreignHooksIn(s *saved, foreignHooks map[dataplane.ID][]Hook) {
	for _, chain := range s.chains {
		if !isBuiltIn(chain) {
			continue
		}
		for _, text := range s.rules[chain] {
			foreign := readHook(s.table, chain, text)
			if s.exists[foreign.Target] && t.Owns(s.table, foreign.Target) && !t.hasHook(foreign) {
				id := chainID(s.table, foreign.Target)
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

// OwnsChain reports whether a chain belongs to iptables mode alone. That includes what
// kube-proxy left, whose names Sluice uses.
func OwnsChain(table Table, name string) bool {
	switch table {
	case NAT:
		return slices.Contains(ownedNAT, name) || hasAnyPrefix(name, sweptNAT)
	case Filter:
		return slices.Contains(ownedFilter, name) || hasAnyPrefix(name, sweptFilter)
	case Mangle:
		return name == chainCanary
	default:
		return false
	}
}

var (
	ownedNAT    = []string{chainServices, chainNodePorts, chainPostrouting, chainMarkMasq, chainCanary}
	ownedFilter = []string{
		chainServices, chainExternal, chainNodePorts, chainForward, chainProxyFirewall, chainCanary,
	}
	sweptNAT = []string{prefixCluster, prefixLocal, prefixEndpoint, prefixSourceRanges, prefixExternal}
	// The dispatch trees of filter are named like those of nat.
	sweptFilter = []string{prefixCluster, prefixExternal}
)

func hasAnyPrefix(name string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// Shared reports whether a chain of table filter is used by the kubelet as well. Such a chain
// is never removed. If it is wanted with an empty body, it only has to exist: its rules are
// then the kubelet's, and a chain line in an input would delete them.
func Shared(name string) bool { return name == chainFirewall }

// isShared is Shared for a chain of any table.
func isShared(table Table, chain string) bool { return table == Filter && Shared(chain) }

// onlyExists reports whether an object is a shared chain in which we want no rules.
func onlyExists(o *dataplane.Object) bool {
	return o.Body == "" && isShared(Table(o.ID.Container), o.ID.Name)
}

// Hook is one jump from a built-in chain. Our rules are the same, match for match, as
// kube-proxy's: when one replaces the other, it finds the other's rule and adds no second one.
type Hook struct {
	// Row orders the hooks, from 1. Each is inserted at position 1 of its chain if it is
	// missing, so on an empty node a later row stands above.
	Row   int
	Table Table
	// Chain is the built-in chain.
	Chain string
	// Rule is the argument list behind "-A CHAIN".
	Rule []string
	// Target is the chain jumped to, in the same table.
	Target string
	// text is the rule as iptables-save printed it, empty for a hook that was not read.
	text string
}

const (
	commentPortals   = "kubernetes service portals"
	commentExternal  = "kubernetes externally-visible service portals"
	commentHealth    = "kubernetes health check service ports"
	commentForward   = "kubernetes forwarding rules"
	commentFirewall  = "kubernetes load balancer firewall"
	commentTranslate = "kubernetes postrouting rules"
)

// HookRows returns all hooks of iptables mode in the order of insertion.
func HookRows() []Hook {
	hooks := []Hook{
		newConnectionHook(Filter, "INPUT", commentExternal, chainExternal),
		newConnectionHook(Filter, "FORWARD", commentExternal, chainExternal),
		hook(Filter, "INPUT", commentHealth, chainNodePorts),
		newConnectionHook(Filter, "FORWARD", commentPortals, chainServices),
		newConnectionHook(Filter, "OUTPUT", commentPortals, chainServices),
		hook(Filter, "FORWARD", commentForward, chainForward),
		newConnectionHook(Filter, "INPUT", commentFirewall, chainProxyFirewall),
		newConnectionHook(Filter, "OUTPUT", commentFirewall, chainProxyFirewall),
		newConnectionHook(Filter, "FORWARD", commentFirewall, chainProxyFirewall),
		hook(NAT, "OUTPUT", commentPortals, chainServices),
		hook(NAT, "PREROUTING", commentPortals, chainServices),
		hook(NAT, "POSTROUTING", commentTranslate, chainPostrouting),
		// The kubelet has these rules as well.
		hook(Filter, "INPUT", "", chainFirewall),
		hook(Filter, "OUTPUT", "", chainFirewall),
	}
	for i := range hooks {
		hooks[i].Row = i + 1
	}
	return hooks
}

func hook(table Table, chain, comment, target string, matches ...string) Hook {
	rule := matches
	if comment != "" {
		rule = append(rule, "-m", "comment", "--comment", comment)
	}
	return Hook{Table: table, Chain: chain, Rule: append(rule, "-j", target), Target: target}
}

func newConnectionHook(table Table, chain, comment, target string) Hook {
	return hook(table, chain, comment, target, "-m", "conntrack", "--ctstate", "NEW")
}

// Text returns the rule as iptables-save prints it, without "-A CHAIN".
func (h Hook) Text() string {
	if h.text != "" {
		return h.text
	}
	words := make([]string, len(h.Rule))
	for i, word := range h.Rule {
		// Only comments hold anything but plain words.
		if words[i] = word; i > 0 && h.Rule[i-1] == "--comment" {
			words[i] = string(rules.AppendQuoted(nil, word))
		}
	}
	return strings.Join(words, " ")
}

func byRow(a, b Hook) int { return a.Row - b.Row }

// ID returns the identity of the hook's object: container "filter/INPUT", name "01 RULE". The
// row comes first, so that hooks sort by row.
func (h Hook) ID() dataplane.ID {
	return dataplane.ID{
		Container: string(h.Table) + "/" + h.Chain,
		Name:      fmt.Sprintf("%02d %s", h.Row, h.Text()),
	}
}

// Object returns the hook as part of the scaffold.
func (h Hook) Object() dataplane.Object {
	return dataplane.Object{
		ID:    h.ID(),
		Kind:  dataplane.Owned,
		Body:  h.Text(),
		Links: dataplane.LinkTo(chainID(h.Table, h.Target)),
	}
}

// parseHook is the reverse of ID.
func parseHook(id dataplane.ID) (Hook, error) {
	table, chain, isHook := strings.Cut(id.Container, "/")
	number, text, hasText := strings.Cut(id.Name, " ")
	row, err := strconv.Atoi(number)
	if !isHook || !hasText || err != nil || !slices.Contains(tables[:], Table(table)) {
		return Hook{}, fmt.Errorf(
			"object %q in %q is neither a chain nor a hook of this backend", id.Name, id.Container)
	}
	hook := readHook(Table(table), chain, text)
	hook.Row = row
	return hook, nil
}

// readHook returns a rule of a built-in chain that iptables-save printed.
func readHook(table Table, chain, text string) Hook {
	return Hook{Table: table, Chain: chain, Rule: rules.Words(text), Target: rules.TargetOf(text), text: text}
}
