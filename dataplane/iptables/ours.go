package iptables

import "strings"

// OwnsChain tells whether a chain is Sluice's alone, so that a sweep may remove
// it when nobody wants it. That includes what kube-proxy left behind, whose
// names Sluice has taken over.
func OwnsChain(table Table, name string) bool {
	switch table {
	case NAT:
		return ownedNAT[name] || hasAnyPrefix(name, sweptNAT)
	case Filter:
		return ownedFilter[name] || hasAnyPrefix(name, sweptFilter)
	case Mangle:
		return name == chainCanary
	default:
		return false
	}
}

// Shared tells whether a chain of table filter is kept together with the
// kubelet. Such a chain is never removed. When it is wanted with an empty body,
// it only has to exist: what it holds then is the kubelet's, and a chain line in
// an input would take that away.
func Shared(name string) bool { return name == chainFirewall }

var (
	ownedNAT = map[string]bool{
		chainServices: true, chainNodePorts: true, chainPostrouting: true,
		chainMarkMasq: true, chainCanary: true,
	}
	ownedFilter = map[string]bool{
		chainServices: true, chainExternal: true, chainNodePorts: true,
		chainForward: true, chainProxyFirewall: true, chainCanary: true,
	}
	sweptNAT = []string{
		prefixCluster, prefixLocal, prefixEndpoint, prefixSourceRanges, prefixExternal,
	}
	// The dispatch trees of filter are named as those of nat.
	sweptFilter = []string{prefixCluster, prefixExternal}
)

func hasAnyPrefix(name string, prefixes []string) bool {
	for _, prefix := range prefixes {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
