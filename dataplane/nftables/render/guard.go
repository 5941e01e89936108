// SPDX-License-Identifier: Apache-2.0

package render

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables/rules"
	"github.com/sluice-proxy/sluice/service"
)

// The sets of the guard's table.
var (
	guardAddresses = set{name: "guarded", key: []field{fieldDaddr}}
	guardFrontends = set{name: "frontends", key: frontendKey}
	// Two fields, because nft cannot list a set with one padded field.
	guardHealthPorts = set{name: "health-check-ports", key: nodePortKey}
	guardSets        = []set{guardFrontends, guardHealthPorts, guardAddresses}
)

// priorityGuard is after translation, so that an answer already has the frontend as its source.
const priorityGuard = prioritySNAT + 10

// GuardSets returns the definitions of the sets of the guard's table.
func GuardSets(family service.Family) (objects []dataplane.Object) {
	for _, s := range guardSets {
		objects = append(objects, s.object(dialects[family]))
	}
	return objects
}

// GuardChain returns the chain of the guard's table, for packets to the host. Its last two rules do not match a
// fragment without ports, because the first fragment of the datagram decides.
func GuardChain(family service.Family) rules.Chain {
	const (
		synAck, syn   = 0x12, 0x02 // bits of TCP's flags
		flagsAt       = 13
		sourcePort    = 0
		icmp4, icmp6  = unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6
		transportBase = unix.NFT_PAYLOAD_TRANSPORT_HEADER
	)
	d := dialects[family]
	c := newBaseChain("input", rules.Base{Kind: "filter", Hook: unix.NF_INET_LOCAL_IN, Priority: priorityGuard})
	of := func(number byte) *rule { return newRule(d).meta(unix.NFT_META_L4PROTO).cmp([]byte{number}, false) }
	icmp := byte(icmp4)
	if family == service.IPv6 {
		icmp = icmp6
	}
	c.add(newRule(d).load(fieldDaddr).in(guardAddresses.name, true).accept())
	c.add(of(unix.IPPROTO_TCP).payload(transportBase, flagsAt, 1).bitwise([]byte{synAck}, []byte{0}).cmp([]byte{syn}, true).accept())
	c.add(of(icmp).accept())
	if family == service.IPv4 {
		// If a process of the node sends a request to a Service, the source is the Service's own address. From
		// outside the node, the kernel accepts no such source.
		c.add(of(unix.IPPROTO_UDP).load(fieldSaddr).load(fieldProtocol).payload(transportBase, sourcePort, 2).
			in(guardFrontends.name, false).accept())
	}
	c.add(newRule(d).fields(nodePortKey).in(guardHealthPorts.name, false).accept())
	c.add(of(unix.IPPROTO_TCP).fields(frontendKey).in(guardFrontends.name, true).reset())
	return c.add(newRule(d).fields(frontendKey).in(guardFrontends.name, true).reject()).Chain
}

// GuardElement returns the identity of an element: its set, and its key in the set.
func GuardElement(f service.Frontend) dataplane.ID {
	switch {
	case !f.Addr.IsValid():
		return dataplane.ID{Container: elementsOf + guardHealthPorts.name, Name: string(appendPort(appendProtocol(nil, unix.IPPROTO_TCP), f.Port))}
	case f.Port == 0:
		return dataplane.ID{Container: elementsOf + guardAddresses.name, Name: string(appendAddr(nil, f.Addr))}
	default:
		key := appendPort(appendProtocol(appendAddr(nil, f.Addr), f.Protocol.Number()), f.Port)
		return dataplane.ID{Container: elementsOf + guardFrontends.name, Name: string(key)}
	}
}

// ParseGuardElement is the reverse of GuardElement.
func ParseGuardElement(name string, key []byte) (f service.Frontend, ok bool) {
	switch {
	case name == guardFrontends.name:
		return (Naming{}).Frontend(dataplane.ID{Container: ContainerOf(mapFrontends.name), Name: string(key)})
	case name == guardAddresses.name:
		f.Addr, ok = netip.AddrFromSlice(key)
	case len(key) >= 2*registerBytes: // behind the protocol
		f.Port, ok = binary.BigEndian.Uint16(key[registerBytes:]), true
	}
	return f, ok
}
