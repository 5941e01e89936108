// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/conntracktest"
)

// described returns an entry as the kernel describes it.
func described(protocol uint8, client, destination, answerer string) []byte {
	b := conntracktest.AppendTuple(nil, attrOriginal, protocol, at(client), at(destination))
	b = conntracktest.AppendTuple(b, attrReply, protocol, at(answerer), at(client))
	b = netlink.AppendUint32(b, attrID, 0xdeadbeef)
	return netlink.AppendBytes(b, attrZone, []byte{0, 7})
}

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		family                        service.Family
		client, destination, answerer string
	}{
		{service.IPv4, "192.0.2.2:1000", clusterIP, endpointA},
		{service.IPv6, "[2001:db8::2]:1000", "[fd96::10]:53", "[fd10::2]:5353"},
	} {
		attrs := described(unix.IPPROTO_UDP, tt.client, tt.destination, tt.answerer)
		f := parse(attrs)
		if f.To != at(tt.destination) || f.Answerer != at(tt.answerer) || !f.Translated() {
			t.Errorf("%v: got %+v", tt.family, f)
		}
		if f.Protocol != unix.IPPROTO_UDP || f.From != at(tt.client) || f.Replied {
			t.Errorf("%v: got %+v, want UDP from %s, unanswered", tt.family, f, tt.client)
		}
		answered := netlink.AppendUint32(described(unix.IPPROTO_TCP, tt.client, tt.destination, tt.answerer), attrStatus, statusReplied|1)
		if f := parse(answered); f.Protocol != unix.IPPROTO_TCP || !f.Replied {
			t.Errorf("%v: got %+v, want an answered flow of TCP", tt.family, f)
		}
		for cut := range len(attrs) {
			if f := parse(attrs[:cut]); f.To.IsValid() && f.Answerer.IsValid() && (f.To != at(tt.destination) || f.Answerer != at(tt.answerer)) {
				t.Errorf("%v: the first %d bytes give %+v", tt.family, cut, f)
			}
		}
	}
}

// TestAppendIdentity: the identity of a flow consists of its original tuple, its number and its zone, unchanged.
func TestAppendIdentity(t *testing.T) {
	attrs := described(unix.IPPROTO_UDP, "192.0.2.2:1000", clusterIP, endpointA)
	identity := Description(attrs).appendIdentity(nil)
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
	tcp := func(text string) Destination { return destination(at(text), unix.IPPROTO_TCP) }
	every := func(text string) Destination { return Destination{Addr: at(text).Addr()} }
	udp := udpTo
	for _, tt := range []struct {
		of, to Destination
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
		{udpNodePort(30053), udp(onNode), true},
		{udpNodePort(30053), udpNodePort(30053), true},
		{udpNodePort(30053), udp("192.0.2.1:30054"), false},
		{udp(clusterIP), udpNodePort(53), false},
		{udp("[fd96::10]:53"), udp("[fd96::10]:53"), true},
		{udp("[fd96::10]:53"), udp("[fd96::10]:54"), false},
		{every("[fd96::10]:53"), udp("[fd96::10]:54"), true},
	} {
		if got := FilterFor(tt.of).Covers(tt.to); got != tt.want {
			t.Errorf("the filter for %v covers %v: %v", tt.of, tt.to, got)
		}
	}
	if !(Filter{}).Covers(Destination{}) {
		t.Error("the filter of all flows leaves something out")
	}
}
