// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
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
		if f.protocol != protocolUDP || f.source != at(tt.client) || f.replied {
			t.Errorf("%v: got %+v, want UDP from %s, unanswered", tt.family, f, tt.client)
		}
		answered := netlink.AppendUint32(described(tt.family, unix.IPPROTO_TCP, tt.client, tt.destination, tt.answerer), attrStatus, statusReplied|1)
		if f, ok := parseFlow(answered); !ok || f.protocol != unix.IPPROTO_TCP || !f.replied {
			t.Errorf("%v: got %+v, %v, want an answered flow of TCP", tt.family, f, ok)
		}
		for cut := range len(attrs) {
			if f, ok := parseFlow(attrs[:cut]); ok && (f.destination != at(tt.destination) || f.answerer != at(tt.answerer)) {
				t.Errorf("%v: the first %d bytes give %+v", tt.family, cut, f)
			}
		}
	}
}

// TestAppendIdentity: the identity of a flow consists of its original tuple, its number and its zone, unchanged.
func TestAppendIdentity(t *testing.T) {
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
	tcp, every := func(text string) destination {
		return destination{at(text).Addr(), at(text).Port(), unix.IPPROTO_TCP}
	}, func(text string) destination { return destination{addr: at(text).Addr()} }
	udp := func(text string) destination { return udpTo(at(text)) }
	for _, tt := range []struct {
		of, to destination
		want   bool
	}{
		{udp(clusterIP), udp(clusterIP), true},
		{udp(clusterIP), tcp(clusterIP), false},
		{udp(clusterIP), udp("10.96.0.10:54"), false},
		{udp(clusterIP), udp("10.96.0.11:53"), false},
		{udp(clusterIP), every(clusterIP), false},
		{every(clusterIP), udp(clusterIP), true},
		{every(clusterIP), tcp("10.96.0.10:54"), true},
		{every(clusterIP), udp("10.96.0.11:53"), false},
		{udp(":30053"), udp(onNode), true},
		{udp(":30053"), udp(":30053"), true},
		{udp(":30053"), udp("192.0.2.1:30054"), false},
		{udp(clusterIP), udp(":53"), false},
		{udp("[fd96::10]:53"), udp("[fd96::10]:53"), true},
		{udp("[fd96::10]:53"), udp("[fd96::10]:54"), false},
		{every("[fd96::10]:53"), udp("[fd96::10]:54"), true},
	} {
		if got := filterFor(tt.of).covers(tt.to); got != tt.want {
			t.Errorf("the filter for %v covers %v: %v", tt.of, tt.to, got)
		}
	}
	if !(filter{}).covers(destination{}) {
		t.Error("the filter of all flows leaves something out")
	}
}
