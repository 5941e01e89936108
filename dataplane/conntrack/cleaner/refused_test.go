// SPDX-License-Identifier: Apache-2.0

package cleaner

import (
	"context"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/service"
)

// guardedView is a Service of a protocol without endpoints, whose VIP some sources may reach.
func guardedView(protocol service.Protocol, sources ...string) service.View {
	port := service.PortView{
		Name: "p", Protocol: protocol, Port: 53, ClusterIP: at(clusterIP).Addr(), NodePort: 30053,
		ExternalIPs: []netip.Addr{at(external).Addr()}, LoadBalancerVIPs: []netip.Addr{at(vip).Addr()},
	}
	for _, text := range sources {
		port.SourceRanges = append(port.SourceRanges, netip.MustParsePrefix(text))
	}
	view := service.View{Key: named("dns")}
	view.Ports[service.IPv4] = []service.PortView{port}
	return view
}

const vip = "198.51.100.9:53"

// unanswered is a flow of a client whom the source ranges of these tests allow.
func unanswered(protocol uint8, destination, answerer string) flow {
	f := flowOf(destination, protocol, destination, answerer)
	f.From = netip.MustParseAddrPort("192.0.2.2:40000")
	return *f
}

// judged sweeps some flows and returns the destinations of those that it deletes.
func judged(t *testing.T, table *table, flows ...flow) []string {
	t.Helper()
	f := newFake()
	f.host = []netip.Addr{at(onNode).Addr()}
	for _, one := range flows {
		f.held[string(one.Description)] = one
	}
	before := f.names()
	if _, err := swept(t, table, f); err != nil {
		t.Fatal(err)
	}
	if table.todo.waits() {
		t.Errorf("left to look at: %+v", table.todo)
	}
	after := f.names()
	return slices.DeleteFunc(before, func(name string) bool { return slices.Contains(after, name) })
}

// TestTable_UnansweredClientsOfNewService: a new Service makes exactly the unanswered flows to its own addresses and
// ports stale.
func TestTable_UnansweredClientsOfNewService(t *testing.T) {
	const tcp, udp = unix.IPPROTO_TCP, unix.IPPROTO_UDP
	answered := func(f flow) flow {
		f.Replied = true
		return f
	}
	for name, tt := range map[string]struct {
		flow    flow
		deleted bool
	}{
		"ClusterIP":                       {unanswered(tcp, clusterIP, clusterIP), true},
		"another port of it":              {unanswered(tcp, "10.96.0.10:54", "10.96.0.10:54"), true},
		"another protocol":                {unanswered(udp, clusterIP, clusterIP), true},
		"an echo to it":                   {unanswered(unix.IPPROTO_ICMP, "10.96.0.10:0", "10.96.0.10:0"), true},
		"external IP":                     {unanswered(tcp, external, external), true},
		"another port of the external IP": {unanswered(tcp, "198.51.100.7:54", "198.51.100.7:54"), false},
		"another protocol, external IP":   {unanswered(udp, external, external), false},
		"VIP":                             {unanswered(tcp, vip, vip), true},
		"node port":                       {unanswered(tcp, onNode, onNode), true},
		"node port on loopback":           {unanswered(tcp, loopback, loopback), false},
		"number of the node port, beyond": {unanswered(tcp, "203.0.113.9:30053", "203.0.113.9:30053"), false},
		"another address":                 {unanswered(tcp, "10.96.0.11:53", "10.96.0.11:53"), false},
		"answered":                        {answered(unanswered(tcp, external, external)), false},
		"served":                          {unanswered(tcp, clusterIP, endpointA), false},
	} {
		t.Run(name, func(t *testing.T) {
			table := newTable()
			view := guardedView(service.TCP)
			table.apply(view.Key, newPicture(context.Background(), service.IPv4, &view, false))
			if got := judged(t, table, tt.flow); len(got) == 1 != tt.deleted {
				t.Errorf("deleted: %v, want %t", got, tt.deleted)
			}
			table.apply(view.Key, newPicture(context.Background(), service.IPv4, &view, false))
			if got := judged(t, table, tt.flow); len(got) > 0 {
				t.Error("deleted, though nothing has changed")
			}
		})
	}
}

// TestTable_UnansweredClientsAndSourceRanges: new source ranges make only unanswered flows to the VIP stale.
func TestTable_UnansweredClientsAndSourceRanges(t *testing.T) {
	for _, protocol := range []service.Protocol{service.TCP, service.UDP} {
		table := newTable()
		put := func(view service.View) {
			port := &view.Ports[service.IPv4][0]
			port.Serving = []service.Endpoint{{AddrPort: at(endpointA)}}
			port.Cluster = port.Serving
			table.apply(view.Key, newPicture(context.Background(), service.IPv4, &view, false))
		}
		number := protocol.Number()
		toVIP, others := unanswered(number, vip, endpointA), unanswered(number, external, endpointA)
		answered := unanswered(number, vip, endpointA)
		answered.Replied, answered.Description = true, []byte("answered")
		flows := []flow{toVIP, others, answered}
		for _, step := range []struct {
			sources []string
			deleted []string
		}{
			{nil, nil},
			{[]string{"192.0.2.0/24"}, nil},
			{[]string{"203.0.113.0/24"}, []string{vip}},
			{[]string{"203.0.113.0/24"}, nil},
			{[]string{"203.0.113.0/24", "192.0.2.2/32"}, nil},
			{nil, nil},
		} {
			put(guardedView(protocol, step.sources...))
			if got := judged(t, table, flows...); !slices.Equal(got, step.deleted) {
				t.Errorf("%v, ranges %v: deleted %v, want %v", protocol, step.sources, got, step.deleted)
			}
		}
		put(guardedView(protocol, "203.0.113.0/24"))
		if len(table.todo.checks) != 1 {
			t.Errorf("%v: looks at %v, want the VIP alone", protocol, table.todo.checks)
		}
	}
}

// TestTable_ServiceBrieflyGone: unanswered flows to a Service that was removed and added again are stale, even if the
// cleaner did not see the removal. They may have begun without rules.
func TestTable_ServiceBrieflyGone(t *testing.T) {
	table := newTable()
	view := guardedView(service.TCP)
	picture := newPicture(context.Background(), service.IPv4, &view, false)
	table.apply(view.Key, picture)
	flow := unanswered(unix.IPPROTO_TCP, external, external)
	judged(t, table)
	gone := newPicture(context.Background(), service.IPv4, &service.View{Key: view.Key}, false)
	table.apply(view.Key, gone)
	table.apply(view.Key, picture)
	if got := judged(t, table, flow); len(got) != 1 {
		t.Error("no sweep has seen that it was gone: nothing deleted")
	}
	table.apply(view.Key, gone)
	judged(t, table)
	if len(table.services)+len(table.claims) > 0 {
		t.Errorf("of a Service that is gone there is left %v, %v", table.services, table.claims)
	}
	table.apply(view.Key, picture)
	if got := judged(t, table, flow); len(got) != 1 {
		t.Error("back again: nothing deleted")
	}
	table.doubt()
	if got := judged(t, table, flow); len(got) != 1 {
		t.Error("rules were missing: nothing deleted")
	}
}

// TestTable_ServedWithoutTranslationStays: a flow to an endpoint at the Service's own address and port is not stale.
func TestTable_ServedWithoutTranslationStays(t *testing.T) {
	table := newTable()
	view := guardedView(service.UDP)
	port := &view.Ports[service.IPv4][0]
	port.Serving = []service.Endpoint{{AddrPort: at(external)}}
	port.Cluster = port.Serving
	table.apply(view.Key, newPicture(context.Background(), service.IPv4, &view, false))
	if got := judged(t, table, unanswered(unix.IPPROTO_UDP, external, external)); len(got) > 0 {
		t.Errorf("deleted %v", got)
	}
}

// TestTable_UnansweredClientsDenied: a new deny list makes unanswered flows by all frontends but the ClusterIP stale.
func TestTable_UnansweredClientsDenied(t *testing.T) {
	view := guardedView(service.TCP)
	table := newTable()
	table.apply(view.Key, newPicture(context.Background(), service.IPv4, &view, false))
	if got := judged(t, table); len(got) > 0 {
		t.Fatal(got)
	}
	view.Ports[service.IPv4][0].DenyRanges = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	table.apply(view.Key, newPicture(context.Background(), service.IPv4, &view, false))
	const tcp, endpoint = unix.IPPROTO_TCP, "10.0.0.1:53"
	got := judged(t, table, unanswered(tcp, clusterIP, endpoint), unanswered(tcp, external, endpoint),
		unanswered(tcp, vip, endpoint), unanswered(tcp, onNode, endpoint))
	if want := []string{external, vip, onNode}; len(got) != len(want) {
		t.Errorf("deleted %v, want %v", got, want)
	}
}

// TestTable_UnansweredClientsPassedOn: an unanswered flow that was passed on is stale once the Service has an endpoint.
// Otherwise the rules would not see it again.
func TestTable_UnansweredClientsPassedOn(t *testing.T) {
	view := guardedView(service.TCP)
	port := &view.Ports[service.IPv4][0]
	port.NoEndpoints = service.NoEndpointsPass
	table := newTable()
	table.apply(view.Key, newPicture(context.Background(), service.IPv4, &view, false))
	judged(t, table)
	port.HasAny = true
	table.apply(view.Key, newPicture(context.Background(), service.IPv4, &view, false))
	if got := judged(t, table, unanswered(unix.IPPROTO_TCP, external, external)); len(got) != 1 {
		t.Errorf("deleted %v", got)
	}
}
