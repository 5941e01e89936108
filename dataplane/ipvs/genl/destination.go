package genl

import (
	"net/netip"

	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
)

// Destination is a real server of a virtual one.
type Destination struct {
	// Addr identifies it within its virtual server.
	Addr netip.AddrPort
	// Weight is its share; with 0 it gets no new connections.
	Weight uint32
	// Forwarding is Masquerading, the only one that requests ask for, or one of
	// others: IP_VS_CONN_F_….
	Forwarding uint32

	// What the kernel counts; requests do not say it.

	// ActiveConns are established, InactiveConns are all others that it still
	// remembers, PersistConns are the templates that keep clients here.
	ActiveConns, InactiveConns, PersistConns uint32
	Stats                                    Stats
}

// Masquerading forwards by address translation, ports included.
const Masquerading = 0

// Attributes of a real server (IPVS_DEST_ATTR_…).
const (
	destinationAddress    = 1
	destinationPort       = 2
	destinationForwarding = 3
	destinationWeight     = 4
	destinationUpper      = 5
	destinationLower      = 6
	destinationActive     = 7
	destinationInactive   = 8
	destinationPersist    = 9
	destinationStats      = 10
	destinationFamily     = 11
	destinationStats64    = 12

	// forwardingMask is the part of a connection's flags that says how packets
	// are forwarded.
	forwardingMask = 0x7
)

// appendDestination adds what identifies a real server and, if full, the rest.
func appendDestination(b []byte, d Destination, full bool) []byte {
	b, mark := wire.Nest(b, commandDestination)
	b = wire.AppendBytes(b, destinationAddress, d.Addr.Addr().AsSlice())
	b = appendPort(b, destinationPort, d.Addr.Port())
	if full {
		b = appendUint32(b, destinationForwarding, Masquerading)
		b = appendUint32(b, destinationWeight, d.Weight)
		// No bounds on the number of connections.
		b = appendUint32(b, destinationUpper, 0)
		b = appendUint32(b, destinationLower, 0)
	}
	return wire.End(b, mark)
}

// parseDestination reads the attributes of a real server whose virtual server has
// addresses of a family; false when it has no address.
func parseDestination(attrs []byte, family uint16) (Destination, bool) {
	var d Destination
	var address []byte
	var port uint16
	for a := range wire.Attrs(attrs) {
		switch a.Type {
		case destinationAddress:
			address = a.Data
		case destinationPort:
			port = portAt(a.Data)
		case destinationForwarding:
			d.Forwarding = uint32At(a.Data) & forwardingMask
		case destinationWeight:
			d.Weight = uint32At(a.Data)
		case destinationActive:
			d.ActiveConns = uint32At(a.Data)
		case destinationInactive:
			d.InactiveConns = uint32At(a.Data)
		case destinationPersist:
			d.PersistConns = uint32At(a.Data)
		case destinationFamily:
			family = uint16At(a.Data)
		}
	}
	d.Stats = parseStats(attrs, destinationStats64, destinationStats)
	d.Addr = netip.AddrPortFrom(addressAt(family, address), port)
	return d, d.Addr.IsValid()
}
