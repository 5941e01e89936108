package conntrack

import (
	"encoding/binary"
	"net/netip"

	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
)

// parseFlow reads the kernel's description of an entry; false when it is not UDP.
func parseFlow(attrs []byte) (flow, bool) {
	f := flow{identity: attrs}
	for attr := range wire.Attrs(attrs) {
		switch attr.Type {
		case attrOriginal:
			t := parseTuple(attr.Data)
			if t.protocol != protocolUDP {
				return flow{}, false
			}
			f.destination = t.destination
		case attrReply:
			f.answerer = parseTuple(attr.Data).source
		}
	}
	return f, f.destination.IsValid() && f.answerer.IsValid()
}

// tuple is one direction of an entry.
type tuple struct {
	source, destination netip.AddrPort
	protocol            uint8
}

func parseTuple(b []byte) tuple {
	var source, destination netip.Addr
	var sourcePort, destinationPort uint16
	var t tuple
	for part := range wire.Attrs(b) {
		for attr := range wire.Attrs(part.Data) {
			switch {
			case part.Type == attrTupleIP && attr.Type%2 == 1: // CTA_IP_V4_SRC, CTA_IP_V6_SRC
				source, _ = netip.AddrFromSlice(attr.Data)
			case part.Type == attrTupleIP:
				destination, _ = netip.AddrFromSlice(attr.Data)
			case part.Type != attrTupleProtocol:
			case attr.Type == attrProtocol && len(attr.Data) == 1:
				t.protocol = attr.Data[0]
			case attr.Type == attrSourcePort && len(attr.Data) == 2:
				sourcePort = binary.BigEndian.Uint16(attr.Data)
			case attr.Type == attrDestinationPort && len(attr.Data) == 2:
				destinationPort = binary.BigEndian.Uint16(attr.Data)
			}
		}
	}
	t.source = netip.AddrPortFrom(source, sourcePort)
	t.destination = netip.AddrPortFrom(destination, destinationPort)
	return t
}
