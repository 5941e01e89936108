// SPDX-License-Identifier: Apache-2.0

package render

import (
	"encoding/binary"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables/rules"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// The kernel counts the lookups that find an element. Chains of type nat see only the first packet of a
// connection, so each counter counts new connections or refused packets, and established packets pay
// nothing:
//
//	@frontends, @nodeports      connections, except for limited chains, which refuse some of them
//	@admitted …                 connections that a limited chain serves
//	@no-endpoints …             packets refused for lack of an endpoint
//	@out-of-range               packets refused because of the client
//	@cluster-endpoints …        connections by endpoint, if configured
//	@targets-…                  the same, of a service port with affinity
//	chain unallocated           packets to ClusterIPs that no Service has

// Counted is what the counters of a set count.
type Counted uint8

// What counters count.
const (
	CountsNothing Counted = iota
	CountsConnections
	CountsNoEndpoints
	CountsOutOfRange
	CountsEndpoints
)

// counted has the shared sets with counters.
var counted = map[string]Counted{
	mapFrontends.name: CountsConnections, mapNodePorts.name: CountsConnections,
	setAdmitted.name: CountsConnections, setNodePortAdmitted.name: CountsConnections,
	setNoEndpoints.name: CountsNoEndpoints, setNoLocal.name: CountsNoEndpoints,
	setNodePortNone.name: CountsNoEndpoints, setNodePortNoLocal.name: CountsNoEndpoints,
	setOutOfRange.name: CountsOutOfRange, setNodePortOutOfRange.name: CountsOutOfRange,
}

func init() {
	for _, s := range countingMaps.shared() {
		counted[s.name] = CountsEndpoints
	}
}

// CountedIn returns what the counters of a set count, by its name.
func CountedIn(set string) Counted {
	if PortOf(set) != "" {
		return CountsEndpoints
	}
	return counted[set]
}

// Serves reports whether a set is one of those in which frontends have an element while they are served or
// refused. A frontend is in any other set only together with such an element.
func Serves(set string) bool {
	switch set {
	case mapFrontends.name, mapNodePorts.name, setNoEndpoints.name, setNoLocal.name, setNodePortNone.name, setNodePortNoLocal.name:
		return true
	}
	return false
}

// PortOf returns the service port with affinity whose endpoints a set counts; see Count. It is empty for other
// sets.
func PortOf(set string) string {
	if port, ok := strings.CutPrefix(set, countingMaps.targets.name+"-"); ok {
		return port
	}
	return ""
}

// hasCounters is CountedIn for a container of elements.
func hasCounters(container string) bool {
	set, ok := SetOf(container)
	return ok && CountedIn(set) != CountsNothing
}

// UnallocatedChain returns the name of the chain whose first rule counts packets to ClusterIPs that no
// Service has.
func UnallocatedChain() string { return chainUnallocated }

// isLimited reports whether a chain may refuse packets to its frontends.
func isLimited(chain string) bool {
	return strings.HasPrefix(strings.TrimPrefix(chain, prefixNodePort), prefixLimited)
}

// Count is what the counter of one element counted.
type Count struct {
	// Frontend has no port in the sets of a service port with affinity, which have a Port instead.
	Frontend service.Frontend
	// Endpoint is valid in sets of endpoints.
	Endpoint netip.AddrPort
	// Port identifies a service port with affinity: the one of the endpoint, or the target of the frontend. It is
	// empty without affinity.
	Port    string
	Packets uint64
}

// ReadCount reads the count of an element as the kernel describes it. It returns false if the set has no counters.
func ReadCount(set string, attrs []byte) (c Count, ok bool) {
	what := CountedIn(set)
	if what == CountsNothing {
		return c, false
	}
	var key, data []byte
	for a := range netlink.Attrs(attrs) {
		switch a.Type {
		case unix.NFTA_SET_ELEM_KEY:
			key = netlink.Find(a.Data, unix.NFTA_DATA_VALUE).Data
		case unix.NFTA_SET_ELEM_DATA:
			data = a.Data
		case unix.NFTA_SET_ELEM_EXPR:
			c.Packets = ReadCounter(a.Data)
		}
	}
	if c.Port = PortOf(set); c.Port == "" {
		if c.Frontend, ok = (Naming{}).Frontend(dataplane.ID{Container: ContainerOf(set), Name: string(key)}); !ok {
			return c, false
		}
	}
	if what == CountsEndpoints {
		c.Endpoint = readEndpoint(netlink.Find(data, unix.NFTA_DATA_VALUE).Data)
		return c, c.Endpoint.IsValid()
	}
	if v, leads := rules.VerdictIn(data); leads {
		_, c.Port, _ = strings.Cut(strings.TrimPrefix(v.Chain, prefixNodePort), "-")
		if !strings.Contains(c.Port, "/") {
			c.Port = ""
		}
		if isLimited(v.Chain) {
			c.Packets = 0
		}
	}
	return c, true
}

// ReadCounter reads the number of packets of an expression, 0 if that is no counter.
func ReadCounter(expr []byte) uint64 {
	if netlink.Find(expr, unix.NFTA_EXPR_NAME).Text() != "counter" {
		return 0
	}
	data := netlink.Find(expr, unix.NFTA_EXPR_DATA).Data
	return netlink.Find(data, unix.NFTA_COUNTER_PACKETS).Uint64()
}

// readEndpoint reads the data of an element that maps to an endpoint.
func readEndpoint(data []byte) netip.AddrPort {
	at := len(data) - registerBytes
	if at < 0 {
		return netip.AddrPort{}
	}
	addr, _ := netip.AddrFromSlice(data[:at])
	return netip.AddrPortFrom(addr, binary.BigEndian.Uint16(data[at:]))
}
