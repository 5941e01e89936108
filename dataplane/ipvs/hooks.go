package ipvs

import (
	"fmt"

	"github.com/sluice-proxy/sluice/dataplane"
)

// Hook is one jump from a built-in chain. Those of tables nat and filter are the
// same, match for match, as kube-proxy's: on an upgrade or on the way back each
// finds the other's rule and adds no second one.
type Hook struct {
	// Row orders the hooks, from 1. Each is inserted at position 1 of its chain
	// if it is missing, so that on an empty node a later row stands above.
	Row   int
	Table string
	// Chain is the built-in chain.
	Chain string
	// Target is the chain jumped to, in the same table.
	Target string
	// Comment is part of the rule.
	Comment string
}

const (
	commentPortals   = "kubernetes service portals"
	commentTranslate = "kubernetes postrouting rules"
	commentForward   = "kubernetes forwarding rules"
	commentHealth    = "kubernetes health check rules"
	commentFirewall  = "kube-proxy firewall rules"
	commentAccess    = "kubernetes ipvs access filter"
)

// HookRows gives all hooks in the order of their rows, which is that of insertion.
func HookRows() []Hook {
	hooks := []Hook{
		{Table: tableNAT, Chain: "OUTPUT", Target: chainServices, Comment: commentPortals},
		{Table: tableNAT, Chain: "PREROUTING", Target: chainServices, Comment: commentPortals},
		{Table: tableNAT, Chain: "POSTROUTING", Target: chainPostrouting, Comment: commentTranslate},
		{Table: tableFilter, Chain: "FORWARD", Target: chainForward, Comment: commentForward},
		{Table: tableFilter, Chain: "INPUT", Target: chainNodePort, Comment: commentHealth},
		{Table: tableFilter, Chain: "INPUT", Target: chainProxyFirewall, Comment: commentFirewall},
		{Table: tableFilter, Chain: "FORWARD", Target: chainProxyFirewall, Comment: commentFirewall},
		{Table: tableFilter, Chain: "INPUT", Target: chainFilter, Comment: commentAccess},
		{Table: tableFilter, Chain: "OUTPUT", Target: chainOutFilter, Comment: commentAccess},
		// IPVS translates what the node sends before table filter sees it, and
		// after table mangle did. kube-proxy has no rule here.
		{Table: tableMangle, Chain: "OUTPUT", Target: chainProxyFirewall, Comment: commentFirewall},
	}
	for i := range hooks {
		hooks[i].Row = i + 1
	}
	return hooks
}

// Text is the rule as iptables-save prints it, without "-A CHAIN".
func (h Hook) Text() string { return rule(comment(h.Comment), "-j "+h.Target) }

// Object is the hook as package iptables knows it: ID{Container: "filter/INPUT",
// Name: "05 RULE"}, with the row in front, so that hooks sort by row.
func (h Hook) Object() dataplane.Object {
	return dataplane.Object{
		ID:   dataplane.ID{Container: h.Table + "/" + h.Chain, Name: fmt.Sprintf("%02d %s", h.Row, h.Text())},
		Kind: dataplane.Owned,
		Body: h.Text(),
		Refs: []dataplane.ID{{Container: h.Table, Name: h.Target}},
	}
}

// OwnsChain tells whether a chain is Sluice's alone, so that a sweep may remove it
// when nobody wants it. That includes what kube-proxy in IPVS mode left behind.
func OwnsChain(table, name string) bool {
	switch table {
	case tableNAT:
		return name == chainServices || name == chainPostrouting || name == chainNodePort ||
			name == chainLoadBalancer || name == chainMarkMasq
	case tableFilter:
		return name == chainForward || name == chainNodePort || name == chainProxyFirewall ||
			name == chainSourceRanges || name == chainFilter || name == chainOutFilter
	case tableMangle:
		return name == chainProxyFirewall || name == chainSourceRanges
	default:
		return false
	}
}
