package network

import (
	"encoding/binary"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/service"
)

// Entry is one connection that the node's kernel tracks.
type Entry struct {
	// ID tells an entry from another one for the same packets, made when it had
	// been deleted.
	ID uint32
	// Protocol is its number.
	Protocol uint8
	// Source and Destination are as the client sends. Answerer is where answers
	// come from.
	Source, Destination, Answerer netip.AddrPort
}

// Entries lists what the node's kernel tracks in a family.
func (w *World) Entries(family service.Family) ([]Entry, error) {
	var replies [][]byte
	err := w.Node().Do(func() (err error) {
		request := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP)
		request.AddData(&nl.Nfgenmsg{NfgenFamily: []uint8{unix.AF_INET, unix.AF_INET6}[family], Version: nl.NFNETLINK_V0})
		replies, err = request.Execute(unix.NETLINK_NETFILTER, 0)
		return err
	})
	if err != nil {
		return nil, err
	}
	var all []Entry
	for _, reply := range replies {
		e, err := parseEntry(reply[nl.SizeofNfgenmsg:])
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, nil
}

// What nl has no name for: the number of an entry, and the part of an attribute's
// type that is no flag.
const (
	attributeID = 12
	typeMask    = 0x3fff
)

func parseEntry(b []byte) (Entry, error) {
	var e Entry
	attributes, err := attributesOf(b)
	if err != nil {
		return e, err
	}
	if e.Protocol, e.Source, e.Destination, err = parseTuple(attributes[nl.CTA_TUPLE_ORIG]); err != nil {
		return e, err
	}
	if _, e.Answerer, _, err = parseTuple(attributes[nl.CTA_TUPLE_REPLY]); err != nil {
		return e, err
	}
	if id := attributes[attributeID]; len(id) == 4 {
		e.ID = binary.BigEndian.Uint32(id)
	}
	return e, nil
}

// parseTuple reads one direction. Ports of protocols without any are 0.
func parseTuple(b []byte) (protocol uint8, source, destination netip.AddrPort, err error) {
	parts, err := attributesOf(b)
	if err != nil {
		return 0, source, destination, err
	}
	addresses, err := attributesOf(parts[nl.CTA_TUPLE_IP])
	if err != nil {
		return 0, source, destination, err
	}
	numbers, err := attributesOf(parts[nl.CTA_TUPLE_PROTO])
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

// attributesOf takes netlink attributes apart, by their types without flags.
func attributesOf(b []byte) (map[uint16][]byte, error) {
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
