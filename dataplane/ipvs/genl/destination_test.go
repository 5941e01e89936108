package genl

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
)

// described gives a real server as a little-endian kernel (Linux 6.1) describes it,
// without what is not read.
const described = `
	1400 0100 0a000002 00000000 00000000 00000000
	0600 0200 1f90 0000
	0800 0300 00010000      # masquerading, and the kernel's mark of no connections
	0800 0400 07000000      # weight
	0800 0700 03000000      # active
	0800 0800 04000000      # inactive
	0800 0900 05000000      # persistent
	0600 0b00 0200 0000     # AF_INET
	1800 0a00               # narrow counters
	0800 0100 09000000
	0c00 0400 0001000000000000
`

func TestDestinationIsRead(t *testing.T) {
	want := Destination{
		Addr: netip.MustParseAddrPort("10.0.0.2:8080"), Weight: 7, Forwarding: Masquerading,
		ActiveConns: 3, InactiveConns: 4, PersistConns: 5,
		Stats: Stats{Connections: 9, BytesIn: 256},
	}
	attrs := unhex(t, described)
	if got, ok := parseDestination(attrs, unix.AF_INET6); !ok || got != want {
		t.Errorf("got %+v, %v, want %+v", got, ok, want)
	}
	wide, mark := wire.Nest(attrs, destinationStats64)
	for kind, data := range map[uint16]byte{statsConnections: 1, statsPacketsIn: 2, statsPacketsOut: 3, statsBytesIn: 4, statsBytesOut: 5} {
		wide = wire.AppendBytes(wide, kind, []byte{0, 0, 0, 0, data, 0, 0, 0})
	}
	want.Stats = Stats{Connections: 1 << 32, PacketsIn: 2 << 32, PacketsOut: 3 << 32, BytesIn: 4 << 32, BytesOut: 5 << 32}
	if got, ok := parseDestination(wire.End(wide, mark), unix.AF_INET); !ok || got != want {
		t.Errorf("with wide counters: got %+v, %v, want %+v", got, ok, want)
	}
}

// TestDestinationOfTheServicesFamily: kernels before 3.18 do not say one's family.
func TestDestinationOfTheServicesFamily(t *testing.T) {
	addr := netip.MustParseAddrPort("[fd10::2]:53")
	attrs := wire.Find(appendDestination(nil, Destination{Addr: addr, Weight: 1}, true), commandDestination).Data
	if got, ok := parseDestination(attrs, unix.AF_INET6); !ok || got != (Destination{Addr: addr, Weight: 1}) {
		t.Errorf("got %+v, %v", got, ok)
	}
	if got, ok := parseDestination(nil, unix.AF_INET6); ok {
		t.Errorf("nothing is %+v", got)
	}
}
