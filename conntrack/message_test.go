package conntrack

import (
	"errors"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/service"
)

// described is an entry as the kernel describes it.
func described(family service.Family, protocol uint8, client, destination, answerer string) []byte {
	b := appendTuple(nil, attrOriginal, family, protocol, at(client), at(destination))
	b = appendTuple(b, attrReply, family, protocol, at(answerer), at(client))
	b = wire.AppendUint32(b, attrID, 0xdeadbeef)
	return wire.AppendBytes(b, attrZone, []byte{0, 7})
}

func TestParseFlow(t *testing.T) {
	for _, tt := range []struct {
		family                        service.Family
		client, destination, answerer string
	}{
		{service.IPv4, "192.0.2.2:1000", clusterIP, endpointA},
		{service.IPv6, "[2001:db8::2]:1000", "[fd96::10]:53", "[fd10::2]:5353"},
	} {
		attrs := described(tt.family, protocolUDP, tt.client, tt.destination, tt.answerer)
		f, ok := parseFlow(attrs)
		if !ok || f.destination != at(tt.destination) || f.answerer != at(tt.answerer) || !f.translated() {
			t.Errorf("%v: got %+v, %v", tt.family, f, ok)
		}
		if _, ok := parseFlow(described(tt.family, unix.IPPROTO_TCP, tt.client, tt.destination, tt.answerer)); ok {
			t.Errorf("%v: a TCP flow was accepted", tt.family)
		}
		for cut := range len(attrs) {
			if f, ok := parseFlow(attrs[:cut]); ok && (f.destination != at(tt.destination) || f.answerer != at(tt.answerer)) {
				t.Errorf("%v: the first %d bytes give %+v", tt.family, cut, f)
			}
		}
	}
}

// TestIdentity: the original tuple, the number and the zone; what the kernel would
// not understand in a request stays out.
func TestIdentity(t *testing.T) {
	attrs := described(service.IPv4, protocolUDP, "192.0.2.2:1000", clusterIP, endpointA)
	identity := appendIdentity(nil, attrs)
	var kinds []uint16
	for attr := range wire.Attrs(identity) {
		kinds = append(kinds, attr.Type)
		if string(attr.Data) != string(wire.Find(attrs, attr.Type).Data) {
			t.Errorf("attribute %d is %x", attr.Type, attr.Data)
		}
	}
	if len(kinds) != 3 || kinds[0] != attrOriginal || kinds[1] != attrID || kinds[2] != attrZone {
		t.Errorf("attributes are %v", kinds)
	}
}

func TestFilter(t *testing.T) {
	for _, tt := range []struct {
		frontend, destination string
		want                  bool
	}{
		{clusterIP, clusterIP, true},
		{clusterIP, "10.96.0.10:54", false},
		{clusterIP, "10.96.0.11:53", false},
		{":30053", onNode, true},
		{":30053", ":30053", true},
		{":30053", "192.0.2.1:30054", false},
		{"[fd96::10]:53", "[fd96::10]:53", true},
		{"[fd96::10]:53", "[fd96::10]:54", false},
	} {
		if got := filterFor(at(tt.frontend)).matches(at(tt.destination)); got != tt.want {
			t.Errorf("the filter for %s matches %s: %v", tt.frontend, tt.destination, got)
		}
	}
	if !(filter{}).matches(netip.AddrPort{}) {
		t.Error("the filter of all flows leaves something out")
	}
}

func TestMessages(t *testing.T) {
	b, mark := openMessage(nil, messageGet, unix.NLM_F_DUMP, 7, service.IPv4)
	b = append(shutMessage(b, mark), 0xff) // too short to be another one
	var got []message
	for m := range messages(b) {
		got = append(got, m)
	}
	if len(got) != 1 || got[0].sequence != 7 || got[0].kind != unix.NFNL_SUBSYS_CTNETLINK<<8|messageGet || len(got[0].payload) != genericHeader {
		t.Errorf("got %+v", got)
	}
}

// TestReadingTellsHowItEnded: the ends that the kernel gives a listing.
func TestReadingTellsHowItEnded(t *testing.T) {
	number := func(errno unix.Errno) []byte {
		n := uint32(-int32(errno))
		return []byte{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)}
	}
	for _, tt := range []struct {
		name string
		m    message
		want error
		intr bool
	}{
		{"done", message{kind: unix.NLMSG_DONE, payload: number(0)}, nil, false},
		{"done, interrupted", message{kind: unix.NLMSG_DONE, flags: unix.NLM_F_DUMP_INTR, payload: number(0)}, nil, true},
		{"interrupted by number", message{kind: unix.NLMSG_DONE, payload: number(unix.EINTR)}, nil, true},
		{"refused", message{kind: unix.NLMSG_ERROR, payload: number(unix.EPERM)}, unix.EPERM, false},
	} {
		var r reading
		if err := r.take(tt.m); !errors.Is(err, tt.want) || !r.done || r.interrupted != tt.intr {
			t.Errorf("%s: %v, %+v", tt.name, err, r)
		}
	}
}
