// SPDX-License-Identifier: Apache-2.0

package cleaner

import (
	"context"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/service"
)

// Where the Service of the tests is, and others.
const (
	clusterIP = "10.96.0.10:53"
	external  = "198.51.100.7:53"
	onNode    = "192.0.2.1:30053"
	loopback  = "127.0.0.1:30053"
	endpointA = "10.0.2.2:5353"
	endpointB = "10.0.2.3:5353"
)

// isNode knows the addresses on which node ports answer in the tests.
func isNode(a netip.Addr) bool { return a == at(onNode).Addr() || a == at(loopback).Addr() }

// TestTable_Judge: flows of one changed Service are stale by kube-proxy's rules, except where the name of a case says
// otherwise.
func TestTable_Judge(t *testing.T) {
	frontends := []string{clusterIP, external, ":30053"}
	both, none := []string{endpointA, endpointB}, []string(nil)
	tests := []struct {
		name                  string
		serving               []string
		destination, answerer string
		stale                 bool
	}{
		{"to a serving endpoint", both, clusterIP, endpointA, false},
		{"to the other serving endpoint", both, clusterIP, endpointB, false},
		{"to an endpoint that has gone", []string{endpointB}, clusterIP, endpointA, true},
		{"by the external IP", []string{endpointB}, external, endpointA, true},
		{"by the node port", []string{endpointB}, onNode, endpointA, true},
		{"by the node port, serving", both, onNode, endpointA, false},
		{"target port changed", []string{"10.0.2.2:5354"}, clusterIP, endpointA, true},
		{"not translated, from before the first endpoint", both, clusterIP, clusterIP, true},
		{"not translated, on a node port", both, onNode, onNode, true},
		{"another port of the ClusterIP", []string{endpointB}, "10.96.0.10:54", endpointA, false},
		{"another address", []string{endpointB}, "10.96.0.11:53", endpointA, false},

		{"foreign host on the number of a node port (kube-proxy cuts it)", both, "203.0.113.9:30053", "203.0.113.9:30053", false},
		{"the same, translated by others", both, "203.0.113.9:30053", "10.9.9.9:30053", false},
		{"no endpoint left (kube-proxy keeps it)", none, clusterIP, endpointA, true},
		{"no endpoint left, node port", none, onNode, endpointA, true},
		{"no endpoint, not translated", none, clusterIP, clusterIP, false},
		{"no endpoint, foreign host on the node port's number", none, "203.0.113.9:30053", "10.9.9.9:1", false},
		{"loopback, translated, gone", []string{endpointB}, loopback, endpointA, true},
		{"loopback, to a process of this host", both, loopback, loopback, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			table := newTable()
			table.put(named("dns"), pictured(frontends, tt.serving))
			f := flowOf("", unix.IPPROTO_UDP, tt.destination, tt.answerer)
			by, stale := table.judge(f, isNode)
			if stale != tt.stale || stale && by != named("dns") {
				t.Errorf("stale %v because of %v, want %v", stale, by, tt.stale)
			}
			clear(table.pending)
			if _, stale := table.judge(f, isNode); stale {
				t.Error("stale, though nothing has changed")
			}
		})
	}
}

// TestTable_JudgeAfterRemoval: after a Service is deleted, its translated flows are stale, and those without
// translation are not.
func TestTable_JudgeAfterRemoval(t *testing.T) {
	tests := []struct {
		name                  string
		destination, answerer string
		stale                 bool
	}{
		{"translated", clusterIP, endpointA, true},
		{"translated, external", external, endpointA, true},
		{"translated, node port", onNode, endpointA, true},
		{"translated, foreign host on the node port's number", "203.0.113.9:30053", endpointA, false},
		{"to the owner of the external IP", external, external, false},
		{"to a process of this host on the node port's number", onNode, onNode, false},
	}
	for _, tt := range tests {
		table := newTable()
		table.put(named("dns"), pictured([]string{clusterIP, external, ":30053"}, []string{endpointA}))
		clear(table.pending)
		table.put(named("dns"), flowPicture{})
		f := flowOf("", unix.IPPROTO_UDP, tt.destination, tt.answerer)
		if by, stale := table.judge(f, isNode); stale != tt.stale || stale && by != named("dns") {
			t.Errorf("%s: stale %v because of %v, want %v", tt.name, stale, by, tt.stale)
		}
		if len(table.services)+len(table.frontends) > 0 {
			t.Errorf("the table still holds %v and %v", table.services, table.frontends)
		}
	}
}

// TestTable_OwnFrontendBeforeNodePort: a flow to an external IP that is an address of the node is judged by this
// external IP, and not by another Service's node port with the same number.
func TestTable_OwnFrontendBeforeNodePort(t *testing.T) {
	table := newTable()
	table.put(named("external"), pictured([]string{onNode}, []string{endpointA}))
	clear(table.pending)
	table.put(named("other"), pictured([]string{":30053"}, []string{endpointB}))
	f := flowOf("", unix.IPPROTO_UDP, onNode, endpointA)
	if _, stale := table.judge(f, isNode); stale {
		t.Error("the node port has cut a flow of the external IP")
	}
	table.put(named("external"), flowPicture{})
	if by, stale := table.judge(f, isNode); !stale || by != named("external") {
		t.Errorf("when the external IP has gone: stale %v because of %v", stale, by)
	}
	f.Answerer = at(endpointB)
	if _, stale := table.judge(f, isNode); stale {
		t.Error("a flow that the node port serves was cut")
	}
}

// TestTable_TwoServicesOnOneFrontend: a flow to a frontend of two Services is stale when neither serves its endpoint.
func TestTable_TwoServicesOnOneFrontend(t *testing.T) {
	table := newTable()
	table.put(named("one"), pictured([]string{external}, []string{endpointA}))
	table.put(named("two"), pictured([]string{external}, []string{endpointB}))
	expect := func(when string, want map[string]bool) {
		t.Helper()
		for answerer, stale := range want {
			f := flowOf("", unix.IPPROTO_UDP, external, answerer)
			if _, got := table.judge(f, isNode); got != stale {
				t.Errorf("%s: flow to %s: stale %v", when, answerer, got)
			}
		}
	}
	expect("both", map[string]bool{endpointA: false, endpointB: false, external: true})
	table.put(named("one"), flowPicture{})
	expect("one has gone", map[string]bool{endpointA: true, endpointB: false, external: true})
	table.put(named("two"), flowPicture{})
	expect("both have gone", map[string]bool{endpointA: true, endpointB: true, external: false})
}

// TestTable_Pending: each change makes the frontends before and after it pending, and those of overtaken pictures.
func TestTable_Pending(t *testing.T) {
	table := newTable()
	expect := func(when string, want ...string) {
		t.Helper()
		got := slices.SortedFunc(maps.Keys(table.pending), netip.AddrPort.Compare)
		if !slices.Equal(got, slices.SortedFunc(slices.Values(ats(want...)), netip.AddrPort.Compare)) {
			t.Errorf("%s: %v are pending, want %v", when, got, want)
		}
		clear(table.pending)
	}
	first := pictured([]string{clusterIP, ":30053"}, []string{endpointA})
	table.put(named("dns"), first)
	expect("first picture", clusterIP, ":30053")
	table.put(named("dns"), first)
	expect("the same picture again: another may have been in between", clusterIP, ":30053")
	table.put(named("dns"), pictured([]string{clusterIP, external}, []string{endpointA}))
	expect("other frontends", clusterIP, ":30053", external)
	table.put(named("web"), flowPicture{})
	expect("a Service without UDP")
	overtaken := flowPicture{overtaken: ats(onNode)}
	table.put(named("dns"), overtaken)
	expect("deleted, after one that nobody has seen", clusterIP, external, onNode)
}

// TestTable_NothingServes: when the last endpoint stops serving, or its frontend or Service is removed, its flows by
// every kind of frontend are stale immediately. A flow without translation is not.
func TestTable_NothingServes(t *testing.T) {
	table := newTable()
	stale := func(destination, answerer string) bool {
		_, stale := table.judge(flowOf("", unix.IPPROTO_UDP, destination, answerer), isNode)
		return stale
	}
	frontends := []string{clusterIP, external, ":30053"}
	for _, last := range []flowPicture{pictured(frontends, nil), pictured([]string{"10.96.0.99:53"}, nil), {}} {
		table.put(named("dns"), pictured(frontends, []string{endpointA}))
		for _, to := range []string{clusterIP, external, onNode} {
			if stale(to, endpointA) {
				t.Errorf("a flow by %s to a serving endpoint is stale", to)
			}
		}
		table.put(named("dns"), last)
		for _, to := range []string{clusterIP, external, onNode} {
			if !stale(to, endpointA) {
				t.Errorf("%+v: a flow by %s stays", last, to)
			}
		}
		if stale(clusterIP, clusterIP) {
			t.Errorf("%+v: a flow without translation is stale", last)
		}
	}
	if len(table.frontends) > 0 {
		t.Errorf("left: %v", table.frontends)
	}
}

// TestTable_Doubt: after a repair, untranslated flows to frontends with endpoints are stale, and flows to other
// addresses are not.
func TestTable_Doubt(t *testing.T) {
	table := newTable()
	table.put(named("dns"), pictured([]string{clusterIP, ":30053"}, []string{endpointA}))
	table.put(named("empty"), pictured([]string{external}, nil))
	clear(table.pending)
	table.doubt()
	for _, tt := range []struct {
		destination, answerer string
		stale                 bool
	}{
		{clusterIP, clusterIP, true},
		{clusterIP, endpointA, false},
		{onNode, onNode, true},
		{external, external, false},
		{"203.0.113.9:53", "203.0.113.9:53", false},
		{"203.0.113.9:30053", "203.0.113.9:30053", false},
		{loopback, loopback, false},
	} {
		f := flowOf("", unix.IPPROTO_UDP, tt.destination, tt.answerer)
		if by, stale := table.judge(f, isNode); stale != tt.stale || stale && by != named("dns") {
			t.Errorf("a flow to %s, answered by %s: stale %v because of %v", tt.destination, tt.answerer, stale, by)
		}
	}
}

func TestNewPicture(t *testing.T) {
	serving := []service.Endpoint{{AddrPort: at("10.0.2.10:5353")}, {AddrPort: at("10.0.2.9:5353"), Local: true}}
	addrs := func(texts ...string) (all []netip.Addr) {
		for _, text := range texts {
			all = append(all, netip.MustParseAddr(text))
		}
		return all
	}
	ranges := []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}
	view := service.View{Key: named("dns")}
	view.Ports[service.IPv4] = []service.PortView{
		{Name: "tcp", Protocol: service.TCP, Port: 53, ClusterIP: at(clusterIP).Addr(), NodePort: 30001, SourceRanges: ranges},
		{
			Name: "udp", Protocol: service.UDP, Port: 53, ClusterIP: at(clusterIP).Addr(), NodePort: 30053,
			LoadBalancerVIPs: addrs("198.51.100.7", "198.51.100.8"), ExternalIPs: addrs("198.51.100.8", "192.0.2.1"),
			SourceRanges: ranges,
			Serving:      serving, Cluster: serving[:1],
		},
		{Name: "more", Protocol: service.UDP, Port: 54, ClusterIP: at(clusterIP).Addr()},
	}
	want := flowPicture{ports: []port{
		{
			frontends: ats(":30053", clusterIP, "192.0.2.1:53", "198.51.100.7:53", "198.51.100.8:53"),
			serving:   ats("10.0.2.9:5353", "10.0.2.10:5353"), // by number, not by text
		},
		{frontends: ats("10.96.0.10:54")},
	}, openings: []opening{
		{destination: destination{Port: 30001, Protocol: unix.IPPROTO_TCP}}, {destination: udpTo(at(":30053"))},
		{destination: destination{Addr: at(clusterIP).Addr()}, internal: true},
		{destination: destination{Addr: at(clusterIP).Addr(), Port: 53, Protocol: unix.IPPROTO_TCP}, internal: true},
		{destination: udpTo(at(clusterIP)), internal: true}, {destination: udpTo(at("10.96.0.10:54")), internal: true},
		{destination: udpTo(at("192.0.2.1:53"))},
		{destination: udpTo(at("198.51.100.7:53")), guarded: true}, {destination: udpTo(at("198.51.100.8:53")), guarded: true},
	}, allowed: ranges}
	got := newPicture(context.Background(), service.IPv4, &view)
	if got.steps = 0; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	for i := range view.Ports[service.IPv4] {
		view.Ports[service.IPv4][i].ClusterIP = netip.Addr{} // another Service has it
	}
	want.ports[0].frontends = slices.Delete(want.ports[0].frontends, 1, 2)
	want.ports[1].frontends = nil
	want.openings = slices.Delete(want.openings, 2, 6)
	got = newPicture(context.Background(), service.IPv4, &view)
	if got.steps = 0; !reflect.DeepEqual(got, want) {
		t.Errorf("without ClusterIPs: got %+v\nwant %+v", got, want)
	}
	if got := newPicture(context.Background(), service.IPv6, &view); len(got.ports) != 0 {
		t.Errorf("in the other family: %+v", got)
	}
}

// TestNewer_KeepsUnseenFrontends: a newer picture keeps each frontend that the family cleaner has not seen, once.
func TestNewer_KeepsUnseenFrontends(t *testing.T) {
	first := pictured([]string{clusterIP, external}, []string{endpointA})
	second := pictured([]string{clusterIP, ":30053"}, []string{endpointB})
	third := pictured([]string{clusterIP}, nil)
	got := newer(newer(first, second), third)
	if !reflect.DeepEqual(got.ports, third.ports) {
		t.Errorf("ports are %v", got.ports)
	}
	if want := ats(":30053", clusterIP, external); !reflect.DeepEqual(got.overtaken, want) {
		t.Errorf("overtaken are %v, want %v", got.overtaken, want)
	}
	if len(first.overtaken)+len(second.overtaken)+len(third.overtaken) > 0 {
		t.Error("a picture was changed after it was handed over")
	}
}
