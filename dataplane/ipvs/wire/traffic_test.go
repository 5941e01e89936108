// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"net/netip"
	"testing"

	"github.com/moby/ipvs"
	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/service"
)

// TestCountsOf_Connections: connections are extended to 64 bits, although the library reads 32 of them, until the
// counters start again.
func TestCountsOf_Connections(t *testing.T) {
	var got traffic.Counts
	for i, step := range []struct {
		connections uint32
		bytes       uint64
		want        uint64
	}{
		{5, 100, 5}, {3<<30 + 7, 200, 3<<30 + 7}, {7, 300, 1<<32 + 7}, {7, 300, 1<<32 + 7}, {3 << 30, 400, 1<<32 + 3<<30}, {0, 500, 2 << 32},
		{3, 50, 3},  // created again
		{1, 900, 1}, // created again, with more bytes than before
		{3 << 30, 1000, 3 << 30}, {2, 10, 2},
	} {
		got = countsOf(ipvs.SvcStats{Connections: step.connections, BytesIn: 1 << 40, BytesOut: step.bytes}, got)
		if want := (traffic.Counts{Connections: step.want, BytesIn: 1 << 40, BytesOut: step.bytes}); got != want {
			t.Errorf("step %d: got %+v, want %+v", i, got, want)
		}
	}
	if got := countsOf(ipvs.SvcStats{Connections: 1, BytesIn: 6}, traffic.Counts{Connections: 5 << 32, BytesIn: 7}); got.Connections != 1 {
		t.Errorf("fewer bytes from clients: got %+v", got)
	}
}

// onePacket is a flag of other programs: it schedules each UDP datagram by itself.
const onePacket = 0x4

// read returns a virtual server as the library reads it.
func read(s Service) *ipvs.Service {
	l := identify(s.Frontend)
	l.SchedName, l.Flags, l.Timeout, l.Netmask = s.Scheduler, s.Flags|hashed, s.Timeout, netmask(s)
	return l
}

// TestService_RoundTrip: a Service that is written is read back the same.
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
		if got, ok := serviceOf(read(want)); !ok || got != want {
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
