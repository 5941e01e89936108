package iptables

import (
	"fmt"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
)

// Hook is one jump from a built-in chain. The rule is the same, match for match,
// as kube-proxy's: on an upgrade or on the way back each finds the other's rule
// and adds no second one.
type Hook struct {
	// Row orders the hooks, from 1. Each is inserted at position 1 of its chain
	// if it is missing, so that on an empty node a later row stands above.
	Row   int
	Table Table
	// Chain is the built-in chain.
	Chain string
	// Rule is the argument list behind "-A CHAIN".
	Rule []string
	// Target is the chain jumped to, in the same table.
	Target string
}

const (
	commentPortals   = "kubernetes service portals"
	commentExternal  = "kubernetes externally-visible service portals"
	commentHealth    = "kubernetes health check service ports"
	commentForward   = "kubernetes forwarding rules"
	commentFirewall  = "kubernetes load balancer firewall"
	commentTranslate = "kubernetes postrouting rules"
)

// HookRows gives all hooks in the order of their rows, which is that of
// insertion.
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
		// The kubelet's rules, too.
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

// Text is the rule as iptables-save prints it, without "-A CHAIN".
func (h Hook) Text() string {
	words := make([]string, len(h.Rule))
	for i, word := range h.Rule {
		// Only comments hold anything but plain words.
		if words[i] = word; i > 0 && h.Rule[i-1] == "--comment" {
			words[i] = string(appendQuoted(nil, word))
		}
	}
	return strings.Join(words, " ")
}

// ID is the identity of the hook's object: container "filter/INPUT", name
// "01 RULE" with the row in front, so that hooks sort by row.
func (h Hook) ID() dataplane.ID {
	return dataplane.ID{
		Container: string(h.Table) + "/" + h.Chain,
		Name:      fmt.Sprintf("%02d %s", h.Row, h.Text()),
	}
}

// Object is the hook as part of the scaffold.
func (h Hook) Object() dataplane.Object {
	return dataplane.Object{
		ID:   h.ID(),
		Kind: dataplane.Owned,
		Body: h.Text(),
		Refs: []dataplane.ID{{Container: string(h.Table), Name: h.Target}},
	}
}
