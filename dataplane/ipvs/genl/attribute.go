package genl

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
)

// Numbers of IPVS are in host byte order, unlike those of nf_tables, but for
// ports. What is read from an attribute of another size is 0.

func appendUint16(b []byte, kind, n uint16) []byte {
	var data [2]byte
	binary.NativeEndian.PutUint16(data[:], n)
	return wire.AppendBytes(b, kind, data[:])
}

func appendUint32(b []byte, kind uint16, n uint32) []byte {
	var data [4]byte
	binary.NativeEndian.PutUint32(data[:], n)
	return wire.AppendBytes(b, kind, data[:])
}

func appendPort(b []byte, kind, port uint16) []byte {
	return wire.AppendBytes(b, kind, []byte{byte(port >> 8), byte(port)})
}

func uint16At(data []byte) uint16 {
	if len(data) != 2 {
		return 0
	}
	return binary.NativeEndian.Uint16(data)
}

// uint32At reads the first 4 bytes: flags are followed by a mask.
func uint32At(data []byte) uint32 {
	if len(data) < 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(data)
}

func portAt(data []byte) uint16 {
	if len(data) != 2 {
		return 0
	}
	return binary.BigEndian.Uint16(data)
}

// addressAt reads an address, which has 16 bytes in either family; an invalid one
// when it cannot be read.
func addressAt(family uint16, data []byte) netip.Addr {
	switch {
	case family == unix.AF_INET && len(data) >= 4:
		return netip.AddrFrom4([4]byte(data))
	case family == unix.AF_INET6 && len(data) >= 16:
		return netip.AddrFrom16([16]byte(data))
	default:
		return netip.Addr{}
	}
}
