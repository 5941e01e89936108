// SPDX-License-Identifier: Apache-2.0

package render

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/wire"
	"github.com/sluice-proxy/sluice/service"
)

// The sets, by words in their names.
const (
	setLoopBack          = "LOOP-BACK"
	setClusterIP         = "CLUSTER-IP"
	setExternalIP        = "EXTERNAL-IP"
	SetExternalIPLocal   = "EXTERNAL-IP-LOCAL"
	setLoadBalancer      = "LOAD-BALANCER"
	SetLoadBalancerLocal = "LB-LOCAL"
	SetLoadBalancerFW    = "LB-FIREWALL"
	setSourceCIDR        = "LB-SOURCE-CIDR"
	setSourceIP          = "LB-SOURCE-IP"
	SetNodePortTCP       = "NODE-PORT-TCP"
	SetNodePortLocalTCP  = "LOCAL-PORT-TCP"
	SetNodePortUDP       = "NODE-PORT-UDP"
	SetNodePortLocalUDP  = "LOCAL-PORT-UDP"
	setNodePortSCTP      = "NODE-PORT-SCTP"
	SetNodePortLocalSCTP = "LOCAL-PORT-SCTP"
	setHealthCheckPort   = "HEALTH-CHECK-PORT"
	SetIPs               = "IPVS-IPS"
	// setNoLocalEndpoints are frontends that external clients may use only with local endpoints,
	// while there are none.
	setNoLocalEndpoints = "NO-LOCAL"
)

// company defines whether the entries of a set belong to virtual servers.
type company bool

const (
	// alone entries are ports and addresses, which belong to no virtual server, and endpoints
	// that may connect to themselves through any Service.
	alone company = false
	// withServer entries begin with the address, protocol and port of a virtual server, as
	// "10.0.0.1,tcp:80,203.0.113.0/25", and belong to it.
	withServer company = true
)

// kinds are all sets, with their types, whether their entries belong to virtual servers, the comments of
// the rules that look them up, and the IPv4 names of kube-proxy's sets, which Sluice removes.
var kinds = []struct {
	name      string
	kind      wire.SetType
	goes      company
	about     string
	kubeProxy string
}{
	{setLoopBack, wire.HashIPPortIP, alone, "endpoints that reach themselves", "KUBE-LOOP-BACK"},
	{setClusterIP, wire.HashIPPort, withServer, "cluster IPs", "KUBE-CLUSTER-IP"},
	{setExternalIP, wire.HashIPPort, withServer, "external IPs", "KUBE-EXTERNAL-IP"},
	{SetExternalIPLocal, wire.HashIPPort, withServer, "external IPs with local endpoints only", "KUBE-EXTERNAL-IP-LOCAL"},
	{setLoadBalancer, wire.HashIPPort, withServer, "load balancer IPs", "KUBE-LOAD-BALANCER"},
	{SetLoadBalancerLocal, wire.HashIPPort, withServer, "load balancer IPs with local endpoints only", "KUBE-LOAD-BALANCER-LOCAL"},
	{SetLoadBalancerFW, wire.HashIPPort, withServer, "load balancer IPs with source ranges", "KUBE-LOAD-BALANCER-FW"},
	{setSourceCIDR, wire.HashIPPortNet, withServer, "source ranges", "KUBE-LOAD-BALANCER-SOURCE-CIDR"},
	{setSourceIP, wire.HashIPPortIP, withServer, "source ranges that this node is in", "KUBE-LOAD-BALANCER-SOURCE-IP"},
	{SetNodePortTCP, wire.BitmapPort, alone, "TCP node ports", "KUBE-NODE-PORT-TCP"},
	{SetNodePortLocalTCP, wire.BitmapPort, alone, "TCP node ports with local endpoints only", "KUBE-NODE-PORT-LOCAL-TCP"},
	{SetNodePortUDP, wire.BitmapPort, alone, "UDP node ports", "KUBE-NODE-PORT-UDP"},
	{SetNodePortLocalUDP, wire.BitmapPort, alone, "UDP node ports with local endpoints only", "KUBE-NODE-PORT-LOCAL-UDP"},
	{setNodePortSCTP, wire.HashIPPort, withServer, "SCTP node ports", "KUBE-NODE-PORT-SCTP-HASH"},
	{SetNodePortLocalSCTP, wire.HashIPPort, withServer, "SCTP node ports with local endpoints only", "KUBE-NODE-PORT-LOCAL-SCTP-HASH"},
	{setHealthCheckPort, wire.BitmapPort, alone, "health check node ports", "KUBE-HEALTH-CHECK-NODE-PORT"},
	{SetIPs, wire.HashIP, alone, "IPs of " + Device, "KUBE-IPVS-IPS"},
	{setNoLocalEndpoints, wire.HashIPPort, withServer, "no local endpoints", "KUBE-NO-LOCAL-ENDPOINTS"},
}

// Sets returns all sets of a family.
func Sets(family service.Family) []wire.SetSpec {
	sets := make([]wire.SetSpec, len(kinds))
	for i, k := range kinds {
		sets[i] = newSet(family, SetName(family, k.name), k.kind)
	}
	return sets
}

// The kernel cannot redefine a set. The name of a set therefore contains a digest of its definition: if
// another release defines it differently, that is another set. The plan fills the new set before rules
// look it up, and destroys the old one when no rule does any more. kube-proxy uses no such names.

// digestBytes is how many bytes of the digest a name contains, as hexadecimal digits.
const digestBytes = 3

// digests are the digests of the definitions, by the words in the names.
var digests = func() map[string]string {
	found := make(map[string]string, len(kinds))
	for _, k := range kinds {
		s := newSet(service.IPv4, "", k.kind)
		sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", s.Type, s.MaxElem))
		found[k.name] = hex.EncodeToString(sum[:digestBytes])
	}
	return found
}()

// setPrefixes begin the names of sets.
var setPrefixes = service.PerFamily[string]{"KUBE-", "KUBE-6-"}

// SetName returns the kernel's name of a set, such as KUBE-6-CLUSTER-IP-0a1b2c.
func SetName(family service.Family, word string) string {
	return setPrefixes[family] + word + "-" + digests[word]
}

// kubeProxyName returns the kernel's name of a set of kube-proxy, by that in IPv4. In IPv6 it is
// truncated to what the kernel accepts (IPSET_MAXNAMELEN).
func kubeProxyName(family service.Family, name string) string {
	const most = 31
	name = setPrefixes[family] + strings.TrimPrefix(name, "KUBE-")
	return name[:min(len(name), most)]
}

// WordOf returns the word in the name of a set of a family: Sluice's, of any release, or kube-proxy's.
func WordOf(family service.Family, name string) (word string, ok bool) {
	for _, k := range kinds {
		if name == kubeProxyName(family, k.kubeProxy) {
			return k.name, true
		}
	}
	rest, _ := strings.CutPrefix(name, setPrefixes[family])
	word, digest := rest[:max(0, strings.LastIndexByte(rest, '-'))], rest[strings.LastIndexByte(rest, '-')+1:]
	_, err := hex.DecodeString(digest)
	return word, err == nil && len(digest) == 2*digestBytes && digests[word] != "" && rest != name
}

// setPlace has what the entries of a set have in common as objects.
type setPlace struct {
	// name is the set's name in the kernel, container the Container of the entries' identities.
	name, container string
	// links refer to the set itself.
	links *dataplane.Links
}

func placeOf(name string) setPlace {
	return setPlace{name: name, container: entriesPrefix + name, links: dataplane.LinkTo(SetID(name))}
}

// placesOf returns the places of one family's sets by the words in their names.
func placesOf(family service.Family) map[string]setPlace {
	places := make(map[string]setPlace, len(kinds))
	for _, k := range kinds {
		places[k.name] = placeOf(SetName(family, k.name))
	}
	return places
}

// The tables of iptables that contain Sluice's rules.
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
	chainProxyFirewall = "KUBE-PROXY-FIREWALL" // filter and mangle, like the next one
	chainSourceRanges  = "KUBE-SOURCE-RANGES-FIREWALL"
	chainFilter        = "KUBE-IPVS-FILTER"
	chainOutFilter     = "KUBE-IPVS-OUT-FILTER"
)

// Hook is one jump from a built-in chain. Hooks in tables nat and filter have the same matches as
// kube-proxy's: when one proxy replaces the other, it finds the other's rule and adds no second
// one.
type Hook struct {
	// Row orders the hooks, from 1. A missing hook is inserted at position 1 of its chain, so
	// on an empty node a hook with a higher row precedes one with a lower row.
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
		// IPVS translates packets that the node sends after table mangle and before table
		// filter. kube-proxy has no rule here.
		{Table: tableMangle, Chain: "OUTPUT", Target: chainProxyFirewall, Comment: commentFirewall},
	}
	for i := range hooks {
		hooks[i].Row = i + 1
	}
	return hooks
}

// Text returns the rule as iptables-save prints it, without "-A CHAIN".
func (h Hook) Text() string { return rule(comment(h.Comment), "-j "+h.Target) }

// Object returns the hook in the form of package iptables/render: ID{Container: "filter/INPUT",
// Name: "05 RULE"}. The row comes first, so that hooks sort by row.
func (h Hook) Object() dataplane.Object {
	return dataplane.Object{
		ID:    dataplane.ID{Container: h.Table + "/" + h.Chain, Name: fmt.Sprintf("%02d %s", h.Row, h.Text())},
		Kind:  dataplane.Owned,
		Body:  h.Text(),
		Links: dataplane.LinkTo(dataplane.ID{Container: h.Table, Name: h.Target}),
	}
}

// OwnsChain reports whether a chain belongs to this mode, so that it may be removed when it
// is not desired. That includes chains left by kube-proxy in IPVS mode.
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
