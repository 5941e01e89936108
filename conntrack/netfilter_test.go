package conntrack

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// described returns an entry as the kernel describes it.
func described(family service.Family, protocol uint8, client, destination, answerer string) []byte {
	b := appendTuple(nil, attrOriginal, family, protocol, at(client), at(destination))
	b = appendTuple(b, attrReply, family, protocol, at(answerer), at(client))
	b = netlink.AppendUint32(b, attrID, 0xdeadbeef)
	return netlink.AppendBytes(b, attrZone, []byte{0, 7})
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

// TestIdentity: the original tuple, the number and the zone, and nothing that the kernel
// would not understand in a request.
func TestIdentity(t *testing.T) {
	attrs := described(service.IPv4, protocolUDP, "192.0.2.2:1000", clusterIP, endpointA)
	identity := appendIdentity(nil, attrs)
	var kinds []uint16
	for attr := range netlink.Attrs(identity) {
		kinds = append(kinds, attr.Type)
		if string(attr.Data) != string(netlink.Find(attrs, attr.Type).Data) {
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
