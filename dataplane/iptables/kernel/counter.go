package kernel

import (
	"encoding/binary"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/dataplane/iptables/rules"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// counter is a rule with its counter. The place has everything that the rule names: the frontend that it
// matches, and the endpoint or the chain that it leads to.
type counter struct {
	place
	packets uint64
}

// at returns what the rule of a chain counts connections or refusals for.
func (c *counter) at(chain dataplane.ID) (at place, counts bool) {
	what, nodePorts := render.CountedIn(chain)
	switch what {
	case render.CountsConnections:
		if !c.endpoint.IsValid() && !render.IsEndpoint(c.chain) {
			return place{}, false // it marks or admits packets
		}
		return place{endpoint: c.endpoint, chain: c.chain}, true
	case render.CountsNoEndpoints, render.CountsOutOfRange:
		at := place{frontend: c.frontend}
		if render.PortOf(c.chain) != "" {
			at.chain, c.chain = c.chain, "" // of denied sources
		}
		if nodePorts {
			c.frontend.Addr, at.frontend.Addr = netip.Addr{}, netip.Addr{}
		}
		return at, c.chain == "" && c.frontend.Port != 0 && c.frontend.Addr.IsValid() != nodePorts
	}
	return place{}, false
}

// dispatches returns the frontend that the rule of a chain leads to a service port.
func (c *counter) dispatches(chain dataplane.ID) (port string, f service.Frontend, ok bool) {
	what, nodePorts := render.CountedIn(chain)
	if f = c.frontend; nodePorts {
		f.Addr = netip.Addr{}
	}
	port = render.PortOf(c.chain)
	return port, f, what == render.CountsDispatch && port != "" && f.Port != 0 && f.Addr.IsValid() != nodePorts
}

// ruleProtocols are the protocols of frontends.
var ruleProtocols = [...]service.Protocol{service.TCP, service.UDP, service.SCTP}

// printedCounter reads a rule as "iptables-save -c" prints it: "[packets:bytes] -A CHAIN rule".
func printedCounter(line string) (chain string, c counter, ok bool) {
	counts, rest, _ := strings.Cut(line, "] -A ")
	packets, _, _ := strings.Cut(strings.TrimPrefix(counts, "["), ":")
	n, err := strconv.ParseUint(packets, 10, 64)
	if err != nil {
		return "", c, false
	}
	chain, text, _ := strings.Cut(rest, " ")
	if c.packets = n; strings.HasPrefix(chain, "KUBE-") {
		c.read(rules.Parse(text))
	}
	return chain, c, true
}

// read notes what a rule names.
func (c *counter) read(r rules.Rule) {
	for _, m := range r.Matches {
		for _, o := range m.Options {
			switch {
			case o.Not:
			case o.Name == "-d":
				if p, err := o.Prefix(); err == nil && p.IsSingleIP() {
					c.frontend.Addr = p.Addr()
				}
			case o.Name == "-p":
				for _, p := range ruleProtocols {
					if p.String() == o.Arg(0) {
						c.frontend.Protocol = p
					}
				}
			case o.Name == "--dport":
				if low, high, err := o.Ports(); err == nil && low == high {
					c.frontend.Port = low
				}
			}
		}
	}
	switch {
	case r.Target.Name == "DNAT":
		c.endpoint, _ = r.Target.DNAT()
	case strings.HasPrefix(r.Target.Name, "KUBE-"):
		c.chain = r.Target.Name
	}
}

// Attributes and values of expressions that x/sys does not name, or names otherwise
// (include/uapi/linux/netfilter/nf_tables.h).
const (
	compatName, compatRevision, compatInfo = 1, 2, 3 // NFTA_TARGET_…, NFTA_MATCH_…
)

// announcedCounter reads the expressions of a rule of the nft variant.
func announcedCounter(attrs []byte) (c counter) {
	// loaded is what the last expression loaded: bytes of a packet or its protocol. Any other expression, such as
	// the mask of a prefix, changes it.
	loaded := loadedNothing
	for e := range netlink.Attrs(netlink.Find(attrs, unix.NFTA_RULE_EXPRESSIONS).Data) {
		data := netlink.Find(e.Data, unix.NFTA_EXPR_DATA).Data
		now := loadedNothing
		switch netlink.Find(e.Data, unix.NFTA_EXPR_NAME).Text() {
		case "counter":
			c.packets = netlink.Find(data, unix.NFTA_COUNTER_PACKETS).Uint64()
		case "meta":
			if netlink.Find(data, unix.NFTA_META_KEY).Uint32() == unix.NFT_META_L4PROTO {
				now = loadedProtocol
			}
		case "payload":
			now = loadedFrom(data)
		case "cmp":
			c.compare(loaded, data)
		case "match":
			c.match(data)
		case "target":
			if netlink.Find(data, compatName).Text() == "DNAT" {
				c.endpoint = natEndpoint(netlink.Find(data, compatRevision).Uint32(), netlink.Find(data, compatInfo).Data)
			}
		case "immediate":
			verdict := netlink.Find(netlink.Find(data, unix.NFTA_IMMEDIATE_DATA).Data, unix.NFTA_DATA_VERDICT).Data
			c.chain = netlink.Find(verdict, unix.NFTA_VERDICT_CHAIN).Text()
		}
		loaded = now
	}
	return c
}

// loaded is a part of a packet.
type loaded uint8

const (
	loadedNothing loaded = iota
	loadedProtocol
	loadedDestination
	loadedPort
)

// loadedFrom reads an expression that loads bytes of a packet: the whole destination address of IPv4 or
// IPv6, the protocol of IPv4 or IPv6 as older programs load it, or the destination port.
func loadedFrom(data []byte) loaded {
	offset, length := netlink.Find(data, unix.NFTA_PAYLOAD_OFFSET).Uint32(), netlink.Find(data, unix.NFTA_PAYLOAD_LEN).Uint32()
	type bytes struct{ base, offset, length uint32 }
	switch (bytes{netlink.Find(data, unix.NFTA_PAYLOAD_BASE).Uint32(), offset, length}) {
	case bytes{unix.NFT_PAYLOAD_NETWORK_HEADER, 16, 4}, bytes{unix.NFT_PAYLOAD_NETWORK_HEADER, 24, 16}:
		return loadedDestination
	case bytes{unix.NFT_PAYLOAD_NETWORK_HEADER, 9, 1}, bytes{unix.NFT_PAYLOAD_NETWORK_HEADER, 6, 1}:
		return loadedProtocol
	case bytes{unix.NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2}:
		return loadedPort
	}
	return loadedNothing
}

// compare reads what a rule compares for equality.
func (c *counter) compare(what loaded, data []byte) {
	if netlink.Find(data, unix.NFTA_CMP_OP).Uint32() != unix.NFT_CMP_EQ {
		return
	}
	value := netlink.Find(netlink.Find(data, unix.NFTA_CMP_DATA).Data, unix.NFTA_DATA_VALUE)
	switch what {
	case loadedProtocol:
		for _, p := range ruleProtocols {
			if p.Number() == value.Uint8() {
				c.frontend.Protocol = p
			}
		}
	case loadedDestination:
		c.frontend.Addr = value.Addr()
	case loadedPort:
		c.frontend.Port = value.Uint16()
	}
}

// match reads the port of a match as programs before 1.8.8 make it: struct xt_tcp and xt_udp have the source
// ports before the destination ports, struct xt_sctp_info the other way round.
func (c *counter) match(data []byte) {
	at := 4
	switch netlink.Find(data, compatName).Text() {
	case "tcp", "udp":
	case "sctp":
		at = 0
	default:
		return
	}
	info := netlink.Find(data, compatInfo).Data
	if len(info) < 8 {
		return
	}
	low, high := binary.NativeEndian.Uint16(info[at:]), binary.NativeEndian.Uint16(info[at+2:])
	if low == high {
		c.frontend.Port = low
	}
}

// natEndpoint reads the address and port of a target DNAT: struct nf_nat_ipv4_multi_range_compat
// (revision 0), or nf_nat_range and nf_nat_range2, of which IPv4 uses 4 bytes of an address.
func natEndpoint(revision uint32, info []byte) netip.AddrPort {
	if len(info) < 40 && (revision != 0 || len(info) < 18) {
		return netip.AddrPort{}
	}
	if revision == 0 {
		addr, _ := netip.AddrFromSlice(info[8:12])
		return netip.AddrPortFrom(addr, binary.BigEndian.Uint16(info[16:]))
	}
	addr := netip.AddrFrom16([16]byte(info[4:20]))
	if [12]byte(info[8:20]) == [12]byte{} {
		addr = netip.AddrFrom4([4]byte(info[4:8]))
	}
	return netip.AddrPortFrom(addr, binary.BigEndian.Uint16(info[36:]))
}
