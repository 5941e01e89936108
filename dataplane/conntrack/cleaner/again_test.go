// SPDX-License-Identifier: Apache-2.0

package cleaner

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/service"
)

// TestSweep_FlowsBegunByAnswer: a sweep deletes a flow that began with an untranslated answer from a frontend, unless
// the node or an endpoint may serve at this address, and the cleaner looks for it again.
func TestSweep_FlowsBegunByAnswer(t *testing.T) {
	const stranger = "192.0.2.2:40000"
	for _, protocol := range []service.Protocol{service.TCP, service.UDP, service.SCTP} {
		for name, tt := range map[string]struct {
			from    string
			change  func(*service.PortView, *flow)
			deleted bool
		}{
			"ClusterIP":                       {from: clusterIP, deleted: true},
			"another port of it":              {from: "10.96.0.10:54"},
			"external IP":                     {from: external, deleted: true},
			"another port of the external IP": {from: "198.51.100.7:54"},
			"load balancer IP":                {from: vip, deleted: true},
			"node port":                       {from: onNode},
			"an address of the node as external IP": {from: "192.0.2.77:53", change: func(p *service.PortView, _ *flow) {
				p.ExternalIPs = append(p.ExternalIPs, at("192.0.2.77:53").Addr())
			}},
			"loopback as external IP": {from: "127.0.0.1:53", change: func(p *service.PortView, _ *flow) {
				p.ExternalIPs = append(p.ExternalIPs, at("127.0.0.1:53").Addr())
			}},
			"an endpoint at the frontend": {from: external, change: func(p *service.PortView, _ *flow) {
				p.Serving = []service.Endpoint{{AddrPort: at(external)}}
			}},
			"packets are left to others": {from: external, change: func(p *service.PortView, _ *flow) {
				p.NoEndpoints = service.NoEndpointsPass
			}},
			"another protocol": {from: clusterIP, change: func(_ *service.PortView, f *flow) { f.Protocol = unix.IPPROTO_ICMP }},
			"translated":       {from: clusterIP, change: func(_ *service.PortView, f *flow) { f.Answerer = at(endpointA) }},
		} {
			view := guardedView(protocol)
			f := *flowOf(name, protocol.Number(), stranger, stranger)
			f.From, f.Replied = at(tt.from), true
			if tt.change != nil {
				tt.change(&view.Ports[service.IPv4][0], &f)
			}
			table := newTable()
			table.apply(view.Key, newPicture(context.Background(), service.IPv4, &view, false))
			host := newFake()
			host.host = []netip.Addr{at(onNode).Addr(), at("192.0.2.77:53").Addr()}
			host.held[name] = f
			astray := map[destination]service.Key{}
			s := newSweep(table, host, service.IPv4, service.NodePortAddresses{All: true}, astray)
			if err := s.run(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := len(host.names()) == 0; got != tt.deleted {
				t.Errorf("%v, %s: deleted %t, want %t", protocol, name, got, tt.deleted)
			}
			if strays := len(astray) > 0; strays != tt.deleted {
				t.Errorf("%v, %s: looked at again: %t", protocol, name, strays)
			}
		}
	}
}

// TestAgain: looks for flows that began with an answer continue, with growing pauses, until they find no more.
func TestAgain(t *testing.T) {
	d, by := to(clusterIP), named("dns")
	looks := func(found int) (at []int) {
		a := again{}
		start := time.Unix(1, 0)
		a.swept(start, map[destination]service.Key{d: by})
		for ms := range 20000 {
			now := start.Add(time.Duration(ms) * time.Millisecond)
			if len(a.due(now)) == 0 {
				continue
			}
			at = append(at, ms)
			astray := map[destination]service.Key{}
			if len(at) <= found {
				astray[d] = by
			}
			a.swept(now, astray)
		}
		if len(a) > 0 || !a.next().IsZero() {
			t.Errorf("%d finds: left are %+v", found, a)
		}
		return at
	}
	if got, want := looks(0), []int{10, 30, 70, 150, 310, 630, 1270}; !slices.Equal(got, want) {
		t.Errorf("nothing is found: looks at %v, want %v", got, want)
	}
	if got, want := looks(2), []int{10, 20, 30, 50, 90, 170, 330, 650, 1290}; !slices.Equal(got, want) {
		t.Errorf("two looks find something: looks at %v, want %v", got, want)
	}
	if got := looks(1000); len(got) != looksMax {
		t.Errorf("a flow that always comes back: %d looks, want %d", len(got), looksMax)
	}
}
