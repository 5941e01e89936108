package ipvs

import (
	"fmt"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/kernel"
	"github.com/sluice-proxy/sluice/service"
)

// The sets by their names in IPv4, which are kube-proxy's: people and scripts look for
// them, and kube-proxy adopts them when a user goes back to it.
const (
	setLoopBack          = "KUBE-LOOP-BACK"
	setClusterIP         = "KUBE-CLUSTER-IP"
	setExternalIP        = "KUBE-EXTERNAL-IP"
	setExternalIPLocal   = "KUBE-EXTERNAL-IP-LOCAL"
	setLoadBalancer      = "KUBE-LOAD-BALANCER"
	setLoadBalancerLocal = "KUBE-LOAD-BALANCER-LOCAL"
	setLoadBalancerFW    = "KUBE-LOAD-BALANCER-FW"
	setSourceCIDR        = "KUBE-LOAD-BALANCER-SOURCE-CIDR"
	setSourceIP          = "KUBE-LOAD-BALANCER-SOURCE-IP"
	setNodePortTCP       = "KUBE-NODE-PORT-TCP"
	setNodePortLocalTCP  = "KUBE-NODE-PORT-LOCAL-TCP"
	setNodePortUDP       = "KUBE-NODE-PORT-UDP"
	setNodePortLocalUDP  = "KUBE-NODE-PORT-LOCAL-UDP"
	setNodePortSCTP      = "KUBE-NODE-PORT-SCTP-HASH"
	setNodePortLocalSCTP = "KUBE-NODE-PORT-LOCAL-SCTP-HASH"
	setHealthCheckPort   = "KUBE-HEALTH-CHECK-NODE-PORT"
	setIPs               = "KUBE-IPVS-IPS"
	// setNoLocalEndpoints is Sluice's own: frontends that may reach endpoints of this node
	// only, while there are none.
	setNoLocalEndpoints = "KUBE-NO-LOCAL-ENDPOINTS"
)

// company is what the entries of a set go with.
type company bool

const (
	// alone entries are ports and addresses, which name no Service, and endpoints that
	// reach themselves through any Service.
	alone company = false
	// withServer entries begin with the address, protocol and port of a virtual server, as
	// "10.0.0.1,tcp:80,203.0.113.0/25", and go with it.
	withServer company = true
)

// kinds are all sets, with their types, what their entries go with, and the comments of the
// rules that look them up.
var kinds = []struct {
	name  string
	kind  kernel.SetType
	goes  company
	about string
}{
	{setLoopBack, kernel.HashIPPortIP, alone, "endpoints that reach themselves"},
	{setClusterIP, kernel.HashIPPort, withServer, "cluster IPs"},
	{setExternalIP, kernel.HashIPPort, withServer, "external IPs"},
	{setExternalIPLocal, kernel.HashIPPort, withServer, "external IPs with local endpoints only"},
	{setLoadBalancer, kernel.HashIPPort, withServer, "load balancer IPs"},
	{setLoadBalancerLocal, kernel.HashIPPort, withServer, "load balancer IPs with local endpoints only"},
	{setLoadBalancerFW, kernel.HashIPPort, withServer, "load balancer IPs with source ranges"},
	{setSourceCIDR, kernel.HashIPPortNet, withServer, "source ranges"},
	{setSourceIP, kernel.HashIPPortIP, withServer, "source ranges that this node is in"},
	{setNodePortTCP, kernel.BitmapPort, alone, "TCP node ports"},
	{setNodePortLocalTCP, kernel.BitmapPort, alone, "TCP node ports with local endpoints only"},
	{setNodePortUDP, kernel.BitmapPort, alone, "UDP node ports"},
	{setNodePortLocalUDP, kernel.BitmapPort, alone, "UDP node ports with local endpoints only"},
	{setNodePortSCTP, kernel.HashIPPort, withServer, "SCTP node ports"},
	{setNodePortLocalSCTP, kernel.HashIPPort, withServer, "SCTP node ports with local endpoints only"},
	{setHealthCheckPort, kernel.BitmapPort, alone, "health check node ports"},
	{setIPs, kernel.HashIP, alone, "IPs of " + Device},
	{setNoLocalEndpoints, kernel.HashIPPort, withServer, "no local endpoints"},
}

// Sets returns all sets of a family.
func Sets(family service.Family) []kernel.SetSpec {
	sets := make([]kernel.SetSpec, len(kinds))
	for i, k := range kinds {
		sets[i] = newSet(family, setName(family, k.name), k.kind)
	}
	return sets
}

// setNameMax is the longest name of a set, in bytes (IPSET_MAXNAMELEN).
const setNameMax = 31

// setName returns the kernel's name of a set. In IPv6 it is truncated to what the kernel
// accepts.
func setName(family service.Family, name string) string {
	if family == service.IPv4 {
		return name
	}
	name = "KUBE-6-" + strings.TrimPrefix(name, "KUBE-")
	return name[:min(len(name), setNameMax)]
}

// setPlace is where the entries of a set belong.
type setPlace struct {
	// name is the kernel's, container that of the entries' identities.
	name, container string
	// links lead to the set itself.
	links *dataplane.Links
}

func placeOf(name string) setPlace {
	return setPlace{name: name, container: entriesPrefix + name, links: dataplane.LinkTo(SetID(name))}
}

// placesOf returns the places of one family's sets by their names in IPv4.
func placesOf(family service.Family) map[string]setPlace {
	places := make(map[string]setPlace, len(kinds))
	for _, k := range kinds {
		places[k.name] = placeOf(setName(family, k.name))
	}
	return places
}

// The tables of iptables that hold rules of ours.
const (
	tableMangle = "mangle"
	tableNAT    = "nat"
	tableFilter = "filter"
)

// The chains, with kube-proxy's names.
const (
	chainServices      = "KUBE-SERVICES"
	chainPostrouting   = "KUBE-POSTROUTING"
	chainNodePort      = "KUBE-NODE-PORT" // nat and filter
	chainLoadBalancer  = "KUBE-LOAD-BALANCER"
	chainMarkMasq      = "KUBE-MARK-MASQ"
	chainForward       = "KUBE-FORWARD"
	chainProxyFirewall = "KUBE-PROXY-FIREWALL" // filter and mangle, as the next
	chainSourceRanges  = "KUBE-SOURCE-RANGES-FIREWALL"
	chainFilter        = "KUBE-IPVS-FILTER"
	chainOutFilter     = "KUBE-IPVS-OUT-FILTER"
)

// Hook is one jump from a built-in chain. Those of tables nat and filter are the same, match
// for match, as kube-proxy's: on an upgrade or a return each finds the other's rule and adds
// no second one.
type Hook struct {
	// Row orders the hooks, from 1. Each is inserted at position 1 of its chain if it is
	// missing, so that on an empty node a later row stands above.
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

// HookRows returns all hooks in the order of their rows, which is that of insertion.
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
		// IPVS translates what the node sends before table filter sees it, and after
		// table mangle. kube-proxy has no rule here.
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
		ID:    dataplane.ID{Container: h.Table + "/" + h.Chain, Name: fmt.Sprintf("%02d %s", h.Row, h.Text())},
		Kind:  dataplane.Owned,
		Body:  h.Text(),
		Links: dataplane.LinkTo(dataplane.ID{Container: h.Table, Name: h.Target}),
	}
}

// OwnsChain reports whether a chain belongs to this mode, so that it may be removed when it
// is not wanted. That includes what kube-proxy in IPVS mode left behind.
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
