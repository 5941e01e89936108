package nftables

import (
	"crypto/sha256"
	"encoding/base32"
	"strconv"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// TableName is kube-proxy's table, one per family: when kube-proxy runs in
// another mode it removes this table whoever wrote it, and when it runs in
// nftables mode it replaces the base chains in it, which have its names. So
// switching back leaves nothing of ours in effect.
const TableName = "kube-proxy"

// The base chains, with kube-proxy's names, so that each takes over from the
// other.
const (
	chainFilterPreroutingPreDNAT = "filter-prerouting-pre-dnat"
	chainFilterOutputPreDNAT     = "filter-output-pre-dnat"
	chainFilterInput             = "filter-input"
	chainFilterForward           = "filter-forward"
	chainFilterOutput            = "filter-output"
	chainNATPrerouting           = "nat-prerouting"
	chainNATOutput               = "nat-output"
	chainNATPostrouting          = "nat-postrouting"
)

// The fixed regular chains, with kube-proxy's names.
const (
	chainServices        = "services"
	chainServiceCheck    = "service-endpoints-check"
	chainNodePortCheck   = "nodeport-endpoints-check"
	chainClusterIPsCheck = "cluster-ips-check"
	chainFirewallCheck   = "firewall-check"
	chainMasquerading    = "masquerading"
	chainReject          = "reject-chain"
)

// Services with affinity have chains of their own, with kube-proxy's names, and
// sets and maps with names that it does not have.
const (
	prefixServiceChain  = "service-"
	prefixLocalChain    = "local-"
	prefixExternalChain = "external-"
	prefixEndpointChain = "endpoint-"
	prefixClientsSet    = "clients-"
	prefixPicksMap      = "picks-"
)

// The sets and maps. None of kube-proxy's has one of these names, since a set
// of the same name and another definition would be in the way of either.
const (
	mapFrontends         = "frontends"
	mapNodePorts         = "nodeports"
	mapCluster           = "cluster-endpoints"
	mapLocal             = "local-endpoints"
	mapNodePortCluster   = "nodeport-cluster-endpoints"
	mapNodePortLocal     = "nodeport-local-endpoints"
	setNoEndpoints       = "no-endpoints"
	setNoLocal           = "no-local-endpoints"
	setNodePortNone      = "nodeport-no-endpoints"
	setNodePortNoLocal   = "nodeport-no-local-endpoints"
	setClusterIPs        = "active-cluster-ips"
	setNodePortAddresses = "nodeport-addresses"
	setHairpins          = "hairpins"
	setFirewalled        = "firewalled"
	setAllowed           = "allowed-sources"
)

// shards divide the largest map: the kernel lists a set in pieces and walks over
// all that came before each time (nft_rhash_walk), so that reading it back costs
// the square of its size. One frontend's slots are in one shard.
const shards = "abcdefgh"

// shardOf gives the shard of a frontend, by its address and port.
func shardOf(f frontend) string {
	sum := uint32(f.port)
	for _, b := range f.addr.AsSlice() {
		sum = sum*31 + uint32(b)
	}
	at := sum % uint32(len(shards))
	return shards[at : at+1]
}

// clusterMap names the map of a shard; node ports have one without shards.
func clusterMap(shard string) string {
	if shard == "" {
		return mapNodePortCluster
	}
	return mapCluster + "-" + shard
}

// Containers of identities. Elements are in the container "@" and the name of
// their set, as nft writes a reference to it.
const (
	containerTable = "table"
	containerSet   = "set"
	containerChain = "chain"
	elementsOf     = "@"
)

func chainID(name string) dataplane.ID { return dataplane.ID{Container: containerChain, Name: name} }
func setID(name string) dataplane.ID   { return dataplane.ID{Container: containerSet, Name: name} }

var tableID = dataplane.ID{Container: containerTable, Name: TableName}

// setOf gives the set that a container of elements stands for.
func setOf(container string) (string, bool) { return strings.CutPrefix(container, elementsOf) }

// A name is cut where kube-proxy cuts it, which leaves room for prefixes below
// the kernel's limit of 255.
const (
	baseMax = 240
	cutMark = "..."
)

// portBase names a service port as kube-proxy does in its chains:
// HASH-namespace/name/protocol/port.
func portBase(key service.Key, port *service.PortView) string {
	return hashedName(key.String() + "/" + port.Protocol.String() + "/" + port.Name)
}

// endpointBase names an endpoint of a service port, as kube-proxy does.
func endpointBase(key service.Key, port *service.PortView, e service.Endpoint) string {
	addr := strings.ReplaceAll(e.AddrPort.Addr().String(), ":", ".")
	number := strconv.Itoa(int(e.AddrPort.Port()))
	return hashedName(key.String() + "/" + port.Protocol.String() + "/" + port.Name + "__" + addr + "/" + number)
}

func hashedName(text string) string {
	sum := sha256.Sum256([]byte(text))
	name := base32.StdEncoding.EncodeToString(sum[:])[:8] + "-" + text
	if len(name) > baseMax {
		name = name[:baseMax-len(cutMark)] + cutMark
	}
	return name
}
