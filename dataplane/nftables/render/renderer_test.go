// SPDX-License-Identifier: Apache-2.0

package render

import (
	"context"
	"math"
	"net/netip"
	"testing"

	"github.com/sluice-proxy/sluice/service"
)

func TestLastOf(t *testing.T) {
	for in, want := range map[string]string{
		"10.0.0.0/8": "10.255.255.255", "192.0.2.7/32": "192.0.2.7", "192.0.2.128/25": "192.0.2.255",
		"fd00::/120": "fd00::ff", "0.0.0.0/0": "255.255.255.255",
	} {
		if got := lastOf(netip.MustParsePrefix(in)); got.String() != want {
			t.Errorf("%s ends with %s, want %s", in, got, want)
		}
	}
}

// TestRenderer_LoopbackNotTranslated: node port addresses omit loopback addresses. The kernel would lose a packet to
// one before it reached a listener (docs/adr/0007).
func TestRenderer_LoopbackNotTranslated(t *testing.T) {
	for family, addrs := range map[service.Family][2]string{
		service.IPv4: {"127.0.0.1", "192.0.2.10"}, service.IPv6: {"::1", "2001:db8::10"},
	} {
		facts := &service.NodeFacts{}
		for _, a := range addrs {
			facts.NodePorts[family].Addresses = append(facts.NodePorts[family].Addresses, netip.MustParseAddr(a))
		}
		var listed []string
		for _, o := range NewRenderer(family, Options{}).Node(facts) {
			if o.ID.Container == elementsOf+setNodePortAddresses.name {
				listed = append(listed, o.ID.Name)
			}
		}
		if want := string(netip.MustParseAddr(addrs[1]).AsSlice()); len(listed) != 1 || listed[0] != want {
			t.Errorf("%s: listed %x, want %x alone", family, listed, want)
		}
	}
}

// TestClass_NamesHaveOneLength: the name of a chain has the same length with and without detection of local pods, since
// each element of a frontend contains the name.
func TestClass_NamesHaveOneLength(t *testing.T) {
	without := class{kind: classExternalLocal, cluster: pool{size: 4}, local: pool{size: 1}, shard: "h"}
	if got, want := without.name(), "external-4h-local-1"; got != want {
		t.Errorf("the chain is called %s, want %s", got, want)
	}
	names := map[string]bool{without.name(): true}
	for _, detect := range []service.LocalDetector{
		{CIDR: netip.MustParsePrefix("10.0.0.0/24")}, {CIDR: netip.MustParsePrefix("10.0.0.0/16")}, {Interface: "cali+"},
	} {
		with := without
		with.detect = detect
		if names[with.name()] = true; len(with.name()) != len(without.name()) {
			t.Errorf("%+v: the chain is called %s", detect, with.name())
		}
	}
	if len(names) != 4 {
		t.Errorf("four detectors have the chains %v", names)
	}
}

// TestRenderer_ConstantAllocationCount: rendering allocates about as often for many endpoints as for few, so that a
// change leaves few blocks for the garbage collector.
func TestRenderer_ConstantAllocationCount(t *testing.T) {
	r := NewRenderer(service.IPv4, Options{MasqueradeBit: 14})
	count := func(endpoints int) float64 {
		port := service.PortView{Protocol: service.TCP, Port: 80, ClusterIP: netip.MustParseAddr("10.96.0.1"), HasAny: true}
		for i := range endpoints {
			addr := netip.AddrFrom4([4]byte{10, 128, byte(i >> 8), byte(i)})
			port.Cluster = append(port.Cluster, service.Endpoint{AddrPort: netip.AddrPortFrom(addr, 8080)})
		}
		view := &service.View{Key: service.Key{Namespace: "ns", Name: "web"}}
		view.Ports[service.IPv4] = []service.PortView{port}
		least := math.Inf(1)
		for range 20 { // with the race detector, a sync.Pool drops one buffer in four
			least = min(least, testing.AllocsPerRun(1, func() { r.Service(context.Background(), view, &service.NodeFacts{}) }))
		}
		return least
	}
	few, many := count(10), count(1000)
	if t.Logf("%v and %v allocations", few, many); many > few+8 {
		t.Errorf("%v allocations for 1,000 endpoints, %v for 10", many, few)
	}
}
