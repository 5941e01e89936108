// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"net/netip"
	"testing"

	"github.com/moby/ipvs"
	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// counted are the counters of a virtual server as a little-endian kernel describes them.
const counted = `
	1800 0a00               # narrow
	0800 0100 09000000
	0c00 0400 0001000000000000
`

// TestParseStats: parseStats reads narrow and wide counters.
func TestParseStats(t *testing.T) {
	attrs := unhex(t, counted)
	if got, want := parseStats(attrs), (traffic.Counts{Connections: 9, BytesIn: 256}); got != want {
		t.Errorf("narrow counters: got %+v, want %+v", got, want)
	}
	wide, mark := netlink.Nest(attrs, serviceStats64)
	for kind, data := range map[uint16]byte{
		statsConnections: 1, statsPacketsIn: 2, statsPacketsOut: 3, statsBytesIn: 4, statsBytesOut: 5,
	} {
		wide = netlink.AppendBytes(wide, kind, []byte{0, 0, 0, 0, data, 0, 0, 0})
	}
	want := traffic.Counts{Connections: 1 << 32, PacketsIn: 2 << 32, PacketsOut: 3 << 32, BytesIn: 4 << 32, BytesOut: 5 << 32}
	if got := parseStats(netlink.End(wide, mark)); got != want {
		t.Errorf("wide counters: got %+v, want %+v", got, want)
	}
}

// TestParseFrontend: parseFrontend reads frontends of both families, although answers have room for an IPv6 address in
// either, and rejects virtual servers without a frontend.
func TestParseFrontend(t *testing.T) {
	for _, f := range []service.Frontend{
		frontend("10.96.0.1", 65535, service.SCTP), frontend("fd96::1", 443, service.UDP),
		frontend("fd96::ffff:a60:1", 443, service.TCP),
	} {
		attrs := netlink.Find(appendService(nil, Service{Frontend: f}, true), commandService).Data
		var padded []byte
		for a := range netlink.Attrs(attrs) {
			if a.Type == serviceAddress {
				a.Data = append(append([]byte{}, a.Data...), make([]byte, 16-len(a.Data))...)
			}
			padded = netlink.AppendBytes(padded, a.Type, a.Data)
		}
		for _, b := range [][]byte{attrs, padded} {
			if got, ok := parseFrontend(b); !ok || got != f {
				t.Errorf("got %v, %v, want %v", got, ok, f)
			}
		}
	}
	const mark = 5
	marked := netlink.AppendHostUint32(netlink.AppendHostUint16(nil, serviceFamily, unix.AF_INET), mark, 7)
	if f, ok := parseFrontend(marked); ok {
		t.Errorf("a virtual server for packets with a mark is at %v", f)
	}
	strange := netlink.AppendHostUint16(marked, serviceProtocol, 51)
	strange = netlink.AppendBytes(strange, serviceAddress, []byte{10, 96, 0, 1})
	if f, ok := parseFrontend(strange); ok {
		t.Errorf("a virtual server of another protocol is at %v", f)
	}
}

// onePacket is a flag of other programs: it schedules each UDP datagram by itself.
const onePacket = 0x4

// TestService_RoundTrip: a Service that is written as the library has it is read back the same.
func TestService_RoundTrip(t *testing.T) {
	for _, want := range []Service{
		{Frontend: frontend("10.96.0.1", 80, service.TCP), Scheduler: "rr"},
		{Frontend: frontend("10.96.0.1", 1, service.UDP), Scheduler: "wlc", Flags: onePacket, FreeBits: 32},
		{
			Frontend: frontend("10.96.0.1", 65535, service.SCTP), Scheduler: "mh", Flags: Persistent | SchedulerFlag2,
			Timeout: 86400, FreeBits: 8,
		},
		{Frontend: frontend("fd96::1", 443, service.UDP), Scheduler: "sh", Flags: Persistent, Timeout: 1, FreeBits: 127},
	} {
		l := libraryService(want)
		l.Flags |= hashed
		if got, ok := serviceOf(l); !ok || got != want {
			t.Errorf("got %+v, %v, want %+v", got, ok, want)
		}
	}
	if s, ok := serviceOf(&ipvs.Service{AddressFamily: unix.AF_INET, FWMark: 7}); ok {
		t.Errorf("a virtual server for packets with a mark is %+v", s)
	}
	if s, ok := serviceOf(&ipvs.Service{Protocol: 51, Address: []byte{10, 96, 0, 1}}); ok {
		t.Errorf("a virtual server of another protocol is %+v", s)
	}
}

// TestFreeBits_MaskWithGaps: in a mask with gaps, the bits after the first gap do not count.
func TestFreeBits_MaskWithGaps(t *testing.T) {
	addr := netip.MustParseAddr("10.96.0.1")
	for mask, want := range map[uint32]uint8{0xffffffff: 0, 0xffffff00: 8, 0xff00ff00: 24, 0: 32} {
		if got := freeBits(addr, hostOrder(mask)); got != want {
			t.Errorf("%#x leaves %d bits free, want %d", mask, got, want)
		}
	}
}

// FuzzParse reads any bytes as an answer of the kernel: an accepted frontend has an address.
func FuzzParse(f *testing.F) {
	f.Add(netlink.Find(appendService(nil, Service{Frontend: frontend("10.96.0.1", 80, service.TCP)}, true), commandService).Data)
	f.Fuzz(func(t *testing.T, b []byte) {
		if frontend, ok := parseFrontend(b); ok && !frontend.Addr.IsValid() {
			t.Errorf("accepted %+v", frontend)
		}
		_ = parseStats(b)
	})
}
