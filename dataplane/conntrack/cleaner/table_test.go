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
			table.tell(named("dns"), pictured(frontends, tt.serving))
			f := flowOf("", unix.IPPROTO_UDP, tt.destination, tt.answerer)
			by, stale := table.judge(f)
			if stale != tt.stale || stale && by != named("dns") {
				t.Errorf("stale %v because of %v, want %v", stale, by, tt.stale)
			}
			clear(table.todo.flows)
			if _, stale := table.judge(f); stale {
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
		table.tell(named("dns"), pictured([]string{clusterIP, external, ":30053"}, []string{endpointA}))
		clear(table.todo.flows)
		table.tell(named("dns"), &picture{})
		f := flowOf("", unix.IPPROTO_UDP, tt.destination, tt.answerer)
		if by, stale := table.judge(f); stale != tt.stale || stale && by != named("dns") {
			t.Errorf("%s: stale %v because of %v, want %v", tt.name, stale, by, tt.stale)
		}
		if len(table.services)+len(table.claims) > 0 {
			t.Errorf("the table still holds %v and %v", table.services, table.claims)
		}
	}
}

// TestTable_OwnFrontendBeforeNodePort: a flow to an external IP that is an address of the node is judged by this
// external IP, and not by another Service's node port with the same number.
func TestTable_OwnFrontendBeforeNodePort(t *testing.T) {
	table := newTable()
	table.tell(named("external"), pictured([]string{onNode}, []string{endpointA}))
	clear(table.todo.flows)
	table.tell(named("other"), pictured([]string{":30053"}, []string{endpointB}))
	f := flowOf("", unix.IPPROTO_UDP, onNode, endpointA)
	if _, stale := table.judge(f); stale {
		t.Error("the node port has cut a flow of the external IP")
	}
	table.tell(named("external"), &picture{})
	if by, stale := table.judge(f); !stale || by != named("external") {
		t.Errorf("when the external IP has gone: stale %v because of %v", stale, by)
	}
	f.Answerer = at(endpointB)
	if _, stale := table.judge(f); stale {
		t.Error("a flow that the node port serves was cut")
	}
}

// TestTable_TwoServicesOnOneFrontend: a flow to a frontend of two Services is stale when neither serves its endpoint.
func TestTable_TwoServicesOnOneFrontend(t *testing.T) {
	table := newTable()
	table.tell(named("one"), pictured([]string{external}, []string{endpointA}))
	table.tell(named("two"), pictured([]string{external}, []string{endpointB}))
	expect := func(when string, want map[string]bool) {
		t.Helper()
		for answerer, stale := range want {
			f := flowOf("", unix.IPPROTO_UDP, external, answerer)
			if _, got := table.judge(f); got != stale {
				t.Errorf("%s: flow to %s: stale %v", when, answerer, got)
			}
		}
	}
	expect("both", map[string]bool{endpointA: false, endpointB: false, external: true})
	table.tell(named("one"), &picture{})
	expect("one has gone", map[string]bool{endpointA: true, endpointB: false, external: true})
	table.tell(named("two"), &picture{})
	expect("both have gone", map[string]bool{endpointA: true, endpointB: true, external: false})
}

// TestTable_Pending: each change makes the frontends before and after it pending, and those of overtaken pictures.
func TestTable_Pending(t *testing.T) {
	table := newTable()
	expect := func(when string, want ...string) {
		t.Helper()
		wanted := map[destination]service.Key{}
		for _, text := range want {
			wanted[to(text)] = named("dns")
		}
		if !maps.Equal(table.todo.flows, wanted) {
			t.Errorf("%s: %v are pending, want %v", when, table.todo.flows, want)
		}
		clear(table.todo.flows)
	}
	first := pictured([]string{clusterIP, ":30053"}, []string{endpointA})
	table.tell(named("dns"), first)
	expect("first picture", clusterIP, ":30053")
	table.tell(named("dns"), first)
	expect("the same picture again: another may have been in between", clusterIP, ":30053")
	table.tell(named("dns"), pictured([]string{clusterIP, external}, []string{endpointA}))
	expect("other frontends", clusterIP, ":30053", external)
	table.tell(named("web"), &picture{})
	expect("a Service without UDP")
	table.tell(named("dns"), pictured([]string{onNode}, nil))
	table.tell(named("dns"), &picture{})
	expect("deleted, after one that no sweep has seen", clusterIP, external, onNode)
}

// TestTable_NothingServes: when the last endpoint stops serving, or its frontend or Service is removed, its flows by
// every kind of frontend are stale immediately. A flow without translation is not.
func TestTable_NothingServes(t *testing.T) {
	table := newTable()
	stale := func(destination, answerer string) bool {
		_, stale := table.judge(flowOf("", unix.IPPROTO_UDP, destination, answerer))
		return stale
	}
	frontends := []string{clusterIP, external, ":30053"}
	for _, last := range []*picture{pictured(frontends, nil), pictured([]string{"10.96.0.99:53"}, nil), {}} {
		table.tell(named("dns"), pictured(frontends, []string{endpointA}))
		for _, to := range []string{clusterIP, external, onNode} {
			if stale(to, endpointA) {
				t.Errorf("a flow by %s to a serving endpoint is stale", to)
			}
		}
		table.tell(named("dns"), last)
		for _, to := range []string{clusterIP, external, onNode} {
			if !stale(to, endpointA) {
				t.Errorf("%+v: a flow by %s stays", last, to)
			}
		}
		if stale(clusterIP, clusterIP) {
			t.Errorf("%+v: a flow without translation is stale", last)
		}
	}
	if len(table.claims) > 0 {
		t.Errorf("left: %v", table.claims)
	}
}

// TestTable_Doubt: after a repair, untranslated flows to frontends with endpoints are stale, and flows to other
// addresses are not.
func TestTable_Doubt(t *testing.T) {
	table := newTable()
	table.tell(named("dns"), pictured([]string{clusterIP, ":30053"}, []string{endpointA}))
	table.tell(named("empty"), pictured([]string{external}, nil))
	clear(table.todo.flows)
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
		if by, stale := table.judge(f); stale != tt.stale || stale && by != named("dns") {
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
	udp := &port{portID: portID{unix.IPPROTO_UDP, 53}, serving: ats("10.0.2.9:5353", "10.0.2.10:5353")} // by number, not by text
	more := &port{portID: portID{unix.IPPROTO_UDP, 54}}
	want := &picture{ports: []*port{udp, more}, openings: []opening{
		{destination: destination{Port: 30001, Protocol: unix.IPPROTO_TCP}}, {destination: to(":30053"), port: udp},
		{destination: destination{Addr: at(clusterIP).Addr()}, internal: true},
		{destination: destination{Addr: at(clusterIP).Addr(), Port: 53, Protocol: unix.IPPROTO_TCP}, internal: true},
		{destination: to(clusterIP), port: udp, internal: true}, {destination: to("10.96.0.10:54"), port: more, internal: true},
		{destination: to("192.0.2.1:53"), port: udp},
		{destination: to("198.51.100.7:53"), port: udp, guarded: true}, {destination: to("198.51.100.8:53"), port: udp, guarded: true},
	}, allowed: ranges}
	got := newPicture(context.Background(), service.IPv4, &view, false)
	if got.steps = 0; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	for i := range view.Ports[service.IPv4] {
		view.Ports[service.IPv4][i].ClusterIP = netip.Addr{} // another Service has it
	}
	want.openings = slices.Delete(want.openings, 2, 6)
	got = newPicture(context.Background(), service.IPv4, &view, false)
	if got.steps = 0; !reflect.DeepEqual(got, want) {
		t.Errorf("without ClusterIPs: got %+v\nwant %+v", got, want)
	}
	if got := newPicture(context.Background(), service.IPv6, &view, false); len(got.openings) != 0 {
		t.Errorf("in the other family: %+v", got)
	}
}
