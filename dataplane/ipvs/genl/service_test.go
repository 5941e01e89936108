package genl

import (
	"testing"

	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/service"
)

// TestServiceComesBack: what requests say is understood in answers, where IPv4
// addresses have the room of IPv6 ones and the kernel adds its mark.
func TestServiceComesBack(t *testing.T) {
	for _, want := range []Service{
		{Frontend: frontend("10.96.0.1", 80, service.TCP), Scheduler: "rr"},
		{Frontend: frontend("10.96.0.1", 65535, service.SCTP), Scheduler: "mh", Flags: Persistent | SchedulerFlag2, Timeout: 86400, FreeBits: 8},
		{Frontend: frontend("10.96.0.1", 1, service.UDP), Scheduler: "wlc", Flags: OnePacket, FreeBits: 32},
		{Frontend: frontend("fd96::1", 443, service.UDP), Scheduler: "sh", Flags: Persistent, Timeout: 1, FreeBits: 127},
		{Frontend: frontend("fd96::ffff:a60:1", 443, service.TCP), Scheduler: "rr"},
	} {
		sent := want
		sent.Flags |= hashed
		attrs := wire.Find(appendFrontend(nil, sent.Frontend, &sent), commandService).Data
		if got, ok := parseService(attrs); !ok || got != want {
			t.Errorf("got %+v, %v, want %+v", got, ok, want)
		}
		var padded []byte
		for a := range wire.Attrs(attrs) {
			if a.Type == serviceAddress {
				a.Data = append(append([]byte{}, a.Data...), make([]byte, 16-len(a.Data))...)
			}
			padded = wire.AppendBytes(padded, a.Type, a.Data)
		}
		if got, ok := parseService(padded); !ok || got != want {
			t.Errorf("with room: got %+v, %v, want %+v", got, ok, want)
		}
	}
}

// TestServicesWithoutFrontend: those for packets with a mark, and of protocols that
// no Service has.
func TestServicesWithoutFrontend(t *testing.T) {
	const mark = 5
	marked := appendUint32(appendUint16(nil, serviceFamily, 2), mark, 7)
	if s, ok := parseService(marked); ok {
		t.Errorf("one with a mark is %+v", s)
	}
	strange := appendUint16(marked, serviceProtocol, 51)
	strange = wire.AppendBytes(strange, serviceAddress, []byte{10, 96, 0, 1})
	if s, ok := parseService(strange); ok {
		t.Errorf("one of another protocol is %+v", s)
	}
}

// TestMaskWithGaps: only the first gap counts.
func TestMaskWithGaps(t *testing.T) {
	addr := frontend("10.96.0.1", 80, service.TCP).Addr
	for mask, want := range map[[4]byte]uint8{
		{255, 255, 255, 255}: 0, {255, 255, 255, 0}: 8, {255, 0, 255, 0}: 24, {0, 0, 0, 0}: 32,
	} {
		if got := freeBits(addr, mask[:]); got != want {
			t.Errorf("%v leaves %d bits free, want %d", mask, got, want)
		}
	}
}

// FuzzParse reads any bytes as all that the kernel may say: it ends, and what is
// accepted has an address.
func FuzzParse(f *testing.F) {
	s := Service{Frontend: frontend("10.96.0.1", 80, service.TCP), Scheduler: "rr"}
	f.Add(NewService(s).appendTo(nil, 0x1c, 1))
	f.Add(wire.Find(appendFrontend(nil, s.Frontend, &s), commandService).Data)
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, ok := parseService(b); ok && !s.Addr.IsValid() {
			t.Errorf("accepted %+v", s)
		}
		if d, ok := parseDestination(b, 2); ok && !d.Addr.IsValid() {
			t.Errorf("accepted %+v", d)
		}
		total := 0
		for h := range headers(b) {
			total += headerBytes + len(h.payload)
			_ = h.attributes()
			_ = errnoAt(h.payload)
			_, _ = parseAnswer(h)
		}
		if total > len(b) {
			t.Errorf("%d bytes of messages in %d", total, len(b))
		}
	})
}
