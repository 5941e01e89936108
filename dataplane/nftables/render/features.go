// SPDX-License-Identifier: Apache-2.0

package render

import (
	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables/rules"
	"github.com/sluice-proxy/sluice/service"
)

// Feature is a feature that the kernel must have.
type Feature struct {
	Name, Need string
	// Chain has rules that need the feature. It has none for a feature of sets.
	Chain rules.Chain
	// Sets are sets to which the rules refer, or that need the feature themselves.
	Sets []dataplane.Object
}

// Features returns the features that a family needs, in an order in which each needs only those before it.
func Features(family service.Family) []Feature {
	d := dialects[family]
	clients, memory := clientsMap("probe"), memorySet("probe")
	return []Feature{
		{Name: "nf_tables for the family", Need: "Linux 3.13 with CONFIG_NF_TABLES and CONFIG_NF_TABLES_IPV4 or _IPV6"},
		{
			Name: "matching of the packet's mark, connection and interface", Need: "CONFIG_NFT_CT",
			Chain: probeChain(newRule(d).translated().marked(1).from("lo", true).drop()),
		},
		{
			Name: "reject", Need: "CONFIG_NFT_REJECT",
			Chain: probeChain(newRule(d).reject()),
		},
		{
			Name: "matching of local addresses (fib)", Need: "Linux 4.10 with CONFIG_NFT_FIB_IPV4 or _IPV6",
			Chain: probeChain(newRule(d).local(fieldDaddr, false).drop()),
		},
		{
			Name: "ranges in concatenations", Need: "Linux 5.6",
			Sets: []dataplane.Object{setAllowed.object(d)},
		},
		{
			Name: "maps that packets fill, with timeouts", Need: "Linux 5.4",
			Sets: []dataplane.Object{clients.object(d), memory.object(d)},
			Chain: probeChain(
				newRule(d).fields([]field{fieldSaddr}).readdress(clients.name), newRule(d).forget(clients.name),
				newRule(d).account(memory.name, 1000).remember(clients.name, 1000),
			),
		},
		{
			Name: "translation of addresses (nat, masquerade)", Need: "Linux 3.18 with CONFIG_NFT_NAT and CONFIG_NFT_MASQ",
			Chain: probeChain(newRule(d).masquerade()),
		},
		{
			Name: "random choice from a map of addresses and ports (numgen)", Need: "Linux 4.9 with CONFIG_NFT_NUMGEN",
			Sets:  []dataplane.Object{mapCluster.object(d)},
			Chain: probeChain(newRule(d).fields(frontendKey).numgen(2).dnatBy(mapCluster.name)),
		},
		{
			Name: "counters of elements and rules", Need: "Linux 5.7 with CONFIG_NFT_COUNTER",
			Sets:  []dataplane.Object{setAdmitted.object(d)},
			Chain: probeChain(newRule(d).fields(frontendKey).in(setAdmitted.name, false).count().drop()),
		},
	}
}

// Hashing returns the additional features that hashing Services need.
func Hashing(family service.Family) []Feature {
	return []Feature{{
		Name: "choice by a hash (jhash)", Need: "CONFIG_NFT_HASH",
		Chain: probeChain(newRule(dialects[family]).numbered(2, service.SourceHash, 0).cmp([]byte{0, 0, 0, 1}, false).drop()),
	}}
}

func probeChain(list ...*rule) rules.Chain {
	c := newChain("probe")
	for _, r := range list {
		c.add(r)
	}
	return c.Chain
}

// EarlyReject returns a base chain that rejects before routing.
func EarlyReject(family service.Family) rules.Chain {
	return newBaseChain("probe", natAt(unix.NF_INET_PRE_ROUTING, priorityDNAT)).
		add(newRule(dialects[family]).reject()).Chain
}
