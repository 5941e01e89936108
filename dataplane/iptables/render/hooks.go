// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/rules"
)

// OwnsChain reports whether a chain belongs to iptables mode alone. That includes chains left by
// kube-proxy, because Sluice uses the same names.
func OwnsChain(table Table, name string) bool {
	switch table {
	case NAT:
		return slices.Contains(ownedNAT, name) || hasAnyPrefix(name, sweptNAT)
	case Filter:
		return slices.Contains(ownedFilter, name) || hasAnyPrefix(name, sweptFilter)
	case Mangle:
		return name == ChainCanary
	default:
		return false
	}
}

var (
	ownedNAT    = []string{ChainServices, ChainNodePorts, ChainPostrouting, ChainMarkMasq, ChainCanary}
	ownedFilter = []string{
		ChainServices, ChainExternal, ChainNodePorts, ChainForward, ChainProxyFirewall, ChainCanary,
	}
	sweptNAT = []string{prefixCluster, prefixLocal, prefixEndpoint, prefixSourceRanges, prefixExternal}
	// The dispatch trees of filter are named like those of nat.
	sweptFilter = []string{prefixCluster, prefixExternal}
)

func hasAnyPrefix(name string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// Shared reports whether a chain of table filter is used by the kubelet, too. Such a chain is never
// removed. If the desired body is empty, the chain only has to exist: its rules are then the kubelet's,
// and a chain line in an input would delete them.
func Shared(name string) bool { return name == ChainFirewall }

// IsShared is Shared for a chain of any table.
func IsShared(table Table, chain string) bool { return table == Filter && Shared(chain) }

// OnlyExists reports whether an object is a shared chain in which Sluice has no rules.
func OnlyExists(o *dataplane.Object) bool {
	return o.Body == "" && IsShared(Table(o.ID.Container), o.ID.Name)
}

// Hook is one jump from a built-in chain. Sluice's hooks have the same matches as kube-proxy's: when one
// proxy replaces the other, it finds the other's rule and adds no second one.
type Hook struct {
	// Row orders the hooks, from 1. A missing hook is inserted at position 1 of its chain, so on an
	// empty node a hook with a higher row precedes one with a lower row.
	Row   int
	Table Table
	// Chain is the built-in chain.
	Chain string
	// Rule is the argument list that follows "-A CHAIN".
	Rule []string
	// Target is the chain jumped to, in the same table.
	Target string
	// text is the rule as iptables-save printed it, empty for a hook that was not read.
	text string
}

const (
	CommentPortals   = "kubernetes service portals"
	commentExternal  = "kubernetes externally-visible service portals"
	commentHealth    = "kubernetes health check service ports"
	commentForward   = "kubernetes forwarding rules"
	commentFirewall  = "kubernetes load balancer firewall"
	commentTranslate = "kubernetes postrouting rules"
)

// HookRows returns all hooks of iptables mode in the order of insertion.
func HookRows() []Hook {
	hooks := []Hook{
		newConnectionHook(Filter, "INPUT", commentExternal, ChainExternal),
		newConnectionHook(Filter, "FORWARD", commentExternal, ChainExternal),
		NewHook(Filter, "INPUT", commentHealth, ChainNodePorts),
		newConnectionHook(Filter, "FORWARD", CommentPortals, ChainServices),
		newConnectionHook(Filter, "OUTPUT", CommentPortals, ChainServices),
		NewHook(Filter, "FORWARD", commentForward, ChainForward),
		newConnectionHook(Filter, "INPUT", commentFirewall, ChainProxyFirewall),
		newConnectionHook(Filter, "OUTPUT", commentFirewall, ChainProxyFirewall),
		newConnectionHook(Filter, "FORWARD", commentFirewall, ChainProxyFirewall),
		NewHook(NAT, "OUTPUT", CommentPortals, ChainServices),
		NewHook(NAT, "PREROUTING", CommentPortals, ChainServices),
		NewHook(NAT, "POSTROUTING", commentTranslate, ChainPostrouting),
		// The kubelet writes these rules, too.
		NewHook(Filter, "INPUT", "", ChainFirewall),
		NewHook(Filter, "OUTPUT", "", ChainFirewall),
	}
	for i := range hooks {
		hooks[i].Row = i + 1
	}
	return hooks
}

// HookedChains returns the built-in chains of a table to which iptables mode writes hooks.
func HookedChains(table Table) (chains []string) {
	for _, h := range HookRows() {
		if h.Table == table && !slices.Contains(chains, h.Chain) {
			chains = append(chains, h.Chain)
		}
	}
	return chains
}

// NewHook returns a hook without a row: a rule in a built-in chain with these matches and this comment, if any, that
// jumps to target.
func NewHook(table Table, chain, comment, target string, matches ...string) Hook {
	rule := matches
	if comment != "" {
		rule = append(rule, "-m", "comment", "--comment", comment)
	}
	return Hook{Table: table, Chain: chain, Rule: append(rule, "-j", target), Target: target}
}

func newConnectionHook(table Table, chain, comment, target string) Hook {
	return NewHook(table, chain, comment, target, "-m", "conntrack", "--ctstate", "NEW")
}

// Text returns the rule as iptables-save prints it, without "-A CHAIN".
func (h Hook) Text() string {
	if h.text != "" {
		return h.text
	}
	words := make([]string, len(h.Rule))
	for i, word := range h.Rule {
		// Only comments need quoting.
		if words[i] = word; i > 0 && h.Rule[i-1] == "--comment" {
			words[i] = string(rules.AppendQuoted(nil, word))
		}
	}
	return strings.Join(words, " ")
}

// ByRow compares two hooks by their rows.
func ByRow(a, b Hook) int { return a.Row - b.Row }

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
		Links: dataplane.LinkTo(ChainID(h.Table, h.Target)),
	}
}

// ParseHook is the reverse of ID.
func ParseHook(id dataplane.ID) (Hook, error) {
	table, chain, isHook := strings.Cut(id.Container, "/")
	number, text, hasText := strings.Cut(id.Name, " ")
	row, err := strconv.Atoi(number)
	if !isHook || !hasText || err != nil || !slices.Contains(Tables[:], Table(table)) {
		return Hook{}, fmt.Errorf(
			"object %q in %q is neither a chain nor a hook of this backend", id.Name, id.Container)
	}
	hook := ReadHook(Table(table), chain, text)
	hook.Row = row
	return hook, nil
}

// ReadHook returns a rule of a built-in chain that iptables-save printed.
func ReadHook(table Table, chain, text string) Hook {
	return Hook{Table: table, Chain: chain, Rule: rules.Words(text), Target: rules.TargetOf(text), text: text}
}
