package conntrack

import (
	"encoding/binary"

	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/service"
)

// appendFilter asks the kernel to leave out what the filter does (Linux 5.8;
// older kernels overlook it and show every flow of the family).
func appendFilter(b []byte, family service.Family, only filter) []byte {
	flags := uint32(filterProtocol)
	b, tuple := wire.Nest(b, attrOriginal|nested)
	if address := only.to.Addr(); address.IsValid() {
		flags |= filterDestination
		var ip int
		b, ip = wire.Nest(b, attrTupleIP|nested)
		b = wire.AppendBytes(b, layouts[family].destination, address.AsSlice())
		b = wire.End(b, ip)
	}
	b, protocol := wire.Nest(b, attrTupleProtocol|nested)
	b = wire.AppendBytes(b, attrProtocol, []byte{protocolUDP})
	if only.to.Port() != 0 {
		flags |= filterDestinationPort
		b = wire.AppendBytes(b, attrDestinationPort, binary.BigEndian.AppendUint16(nil, only.to.Port()))
	}
	b = wire.End(wire.End(b, protocol), tuple)
	b, parts := wire.Nest(b, attrFilter|nested)
	b = wire.AppendBytes(b, attrFilterOriginal, binary.NativeEndian.AppendUint32(nil, flags))
	return wire.End(b, parts)
}

// appendIdentity adds what makes the kernel delete exactly the entry that it has
// described by these attributes: the tuple by which it finds it, with its zones,
// and the number by which it tells it from a later one of the same tuple.
func appendIdentity(b, attrs []byte) []byte {
	for attr := range wire.Attrs(attrs) {
		switch attr.Type {
		case attrOriginal:
			b = wire.AppendBytes(b, attrOriginal|nested, attr.Data)
		case attrZone, attrID:
			b = wire.AppendBytes(b, attr.Type, attr.Data)
		}
	}
	return b
}
