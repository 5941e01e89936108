package ipvs

import (
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/ipset"
	"github.com/sluice-proxy/sluice/service"
)

// The sets by their names in IPv4, which are kube-proxy's: people and scripts look
// for them, and kube-proxy takes them over on the way back.
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
	// setNoLocalEndpoints is Sluice's own: frontends that are to reach endpoints of
	// this node only, and have none.
	setNoLocalEndpoints = "KUBE-NO-LOCAL-ENDPOINTS"
)

// company is what the entries of a set go with.
type company bool

const (
	// alone are ports and addresses, which have no Service in them, and endpoints that
	// reach themselves, whichever Service they are of.
	alone company = false
	// withServer entries begin with the address, protocol and port of a virtual server,
	// as "10.0.0.1,tcp:80,203.0.113.0/25", and go with that.
	withServer company = true
)

// kinds are all sets, with their types, what their entries go with, and the comments
// of rules that ask them.
var kinds = []struct {
	name  string
	kind  ipset.Type
	goes  company
	about string
}{
	{setLoopBack, ipset.HashIPPortIP, alone, "endpoints that reach themselves"},
	{setClusterIP, ipset.HashIPPort, withServer, "cluster IPs"},
	{setExternalIP, ipset.HashIPPort, withServer, "external IPs"},
	{setExternalIPLocal, ipset.HashIPPort, withServer, "external IPs with local endpoints only"},
	{setLoadBalancer, ipset.HashIPPort, withServer, "load balancer IPs"},
	{setLoadBalancerLocal, ipset.HashIPPort, withServer, "load balancer IPs with local endpoints only"},
	{setLoadBalancerFW, ipset.HashIPPort, withServer, "load balancer IPs with source ranges"},
	{setSourceCIDR, ipset.HashIPPortNet, withServer, "source ranges"},
	{setSourceIP, ipset.HashIPPortIP, withServer, "source ranges that this node is in"},
	{setNodePortTCP, ipset.BitmapPort, alone, "TCP node ports"},
	{setNodePortLocalTCP, ipset.BitmapPort, alone, "TCP node ports with local endpoints only"},
	{setNodePortUDP, ipset.BitmapPort, alone, "UDP node ports"},
	{setNodePortLocalUDP, ipset.BitmapPort, alone, "UDP node ports with local endpoints only"},
	{setNodePortSCTP, ipset.HashIPPort, withServer, "SCTP node ports"},
	{setNodePortLocalSCTP, ipset.HashIPPort, withServer, "SCTP node ports with local endpoints only"},
	{setHealthCheckPort, ipset.BitmapPort, alone, "health check node ports"},
	{setIPs, ipset.HashIP, alone, "IPs of " + Device},
	{setNoLocalEndpoints, ipset.HashIPPort, withServer, "no local endpoints"},
}

// Sets gives all sets of a family.
func Sets(family service.Family) []ipset.Spec {
	sets := make([]ipset.Spec, len(kinds))
	for i, k := range kinds {
		sets[i] = newSet(family, setName(family, k.name), k.kind)
	}
	return sets
}

// setNameMax is the longest name of a set, in bytes (IPSET_MAXNAMELEN).
const setNameMax = 31

// setName gives the kernel's name of a set. In IPv6 it is cut to what the kernel
// takes.
func setName(family service.Family, name string) string {
	if family == service.IPv4 {
		return name
	}
	name = "KUBE-6-" + strings.TrimPrefix(name, "KUBE-")
	return name[:min(len(name), setNameMax)]
}

// setPlace is where the entries of a set go.
type setPlace struct {
	// name is the kernel's, container that of the entries' identities.
	name, container string
	// refs is the set itself.
	refs []dataplane.ID
}

func placeOf(name string) setPlace {
	return setPlace{name: name, container: entriesPrefix + name, refs: []dataplane.ID{SetID(name)}}
}

// placesOf gives the places of one family's sets by their names in IPv4.
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
