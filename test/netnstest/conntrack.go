// SPDX-License-Identifier: Apache-2.0

package netnstest

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/host/netns"
)

// Entry is one connection that a namespace's conntrack table holds.
type Entry struct {
	// ID tells an entry from a later one for the same packets.
	ID uint32
	// Protocol is the protocol's number.
	Protocol uint8
	// Source and Destination are as the client sends. Answerer is where answers come from.
	Source, Destination, Answerer netip.AddrPort
	// Packets counts those of the client, if the kernel counts (net.netfilter.nf_conntrack_acct).
	Packets uint64
	// Offloaded says that a flowtable forwards its packets.
	Offloaded bool
}

// Conntrack lists the conntrack table of a namespace, in both families.
func Conntrack(n *netns.Namespace) ([]Entry, error) {
	var replies [][]byte
	err := n.Do(func() (err error) {
		request := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP)
		request.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, Version: nl.NFNETLINK_V0})
		replies, err = request.Execute(unix.NETLINK_NETFILTER, 0)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("netns %s: list conntrack: %w", n.Name(), err)
	}
	var all []Entry
	for _, reply := range replies {
		entry, err := parseEntry(reply[nl.SizeofNfgenmsg:])
		if err != nil {
			return nil, fmt.Errorf("netns %s: list conntrack: %w", n.Name(), err)
		}
		all = append(all, entry)
	}
	return all, nil
}

// FlushConntrack empties the conntrack table. A datagram sent before there was a rule for it leaves an
// entry that says "not translated", for two minutes. A later flow from the same port, which a
// client is free to use again, would match that entry and not be translated either.
func FlushConntrack(n *netns.Namespace) error {
	err := n.Do(func() error {
		handle, err := netlink.NewHandle(unix.NETLINK_NETFILTER)
		if err != nil {
			return err
		}
		defer handle.Close()
		return handle.ConntrackTableFlush(netlink.ConntrackTable)
	})
	if err != nil {
		return fmt.Errorf("netns %s: flush conntrack: %w", n.Name(), err)
	}
	return nil
}

// Attributes of ctnetlink that nl has no name for, and the part of an attribute's type that is no
// flag.
const (
	attributeStatus   = 3 // CTA_STATUS
	statusOffload     = 1 << 14
	attributeCounters = 9 // CTA_COUNTERS_ORIG
	attributeID       = 12
	counterPackets    = 1
	typeMask          = 0x3fff
)

func parseEntry(b []byte) (Entry, error) {
	var t Entry
	attributes, err := Attributes(b)
	if err != nil {
		return t, err
	}
	if t.Protocol, t.Source, t.Destination, err = parseTuple(attributes[nl.CTA_TUPLE_ORIG]); err != nil {
		return t, err
	}
	if _, t.Answerer, _, err = parseTuple(attributes[nl.CTA_TUPLE_REPLY]); err != nil {
		return t, err
	}
	if id := attributes[attributeID]; len(id) == 4 {
		t.ID = binary.BigEndian.Uint32(id)
	}
	if status := attributes[attributeStatus]; len(status) == 4 {
		t.Offloaded = binary.BigEndian.Uint32(status)&statusOffload != 0
	}
	counters, err := Attributes(attributes[attributeCounters])
	if packets := counters[counterPackets]; len(packets) == 8 {
		t.Packets = binary.BigEndian.Uint64(packets)
	}
	return t, err
}

// parseTuple reads one direction. The ports of a protocol without any are 0.
func parseTuple(b []byte) (protocol uint8, source, destination netip.AddrPort, err error) {
	parts, err := Attributes(b)
	if err != nil {
		return 0, source, destination, err
	}
	addresses, err := Attributes(parts[nl.CTA_TUPLE_IP])
	if err != nil {
		return 0, source, destination, err
	}
	numbers, err := Attributes(parts[nl.CTA_TUPLE_PROTO])
	if err != nil {
		return 0, source, destination, err
	}
	if number := numbers[nl.CTA_PROTO_NUM]; len(number) == 1 {
		protocol = number[0]
	}
	at := func(v4, v6, port uint16) netip.AddrPort {
		address, ok := netip.AddrFromSlice(addresses[v4])
		if !ok {
			address, _ = netip.AddrFromSlice(addresses[v6]) // the zero address where there is none
		}
		number := uint16(0)
		if text := numbers[port]; len(text) == 2 {
			number = binary.BigEndian.Uint16(text)
		}
		return netip.AddrPortFrom(address, number)
	}
	return protocol, at(nl.CTA_IP_V4_SRC, nl.CTA_IP_V6_SRC, nl.CTA_PROTO_SRC_PORT),
		at(nl.CTA_IP_V4_DST, nl.CTA_IP_V6_DST, nl.CTA_PROTO_DST_PORT), nil
}

// Attributes takes netlink attributes apart, by their types without flags.
func Attributes(b []byte) (map[uint16][]byte, error) {
	all, err := nl.ParseRouteAttr(b)
	if err != nil {
		return nil, err
	}
	attributes := make(map[uint16][]byte, len(all))
	for _, a := range all {
		attributes[a.Attr.Type&typeMask] = a.Value
	}
	return attributes, nil
}
