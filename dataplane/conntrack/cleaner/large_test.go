// SPDX-License-Identifier: Apache-2.0

package cleaner

import (
	"context"
	"math/bits"
	"net/netip"
	"testing"

	"github.com/sluice-proxy/sluice/service"
)

// largeView is a Service of UDP with so many external IPs and ports, and one ClusterIP.
func largeView(addresses, ports int) *service.View {
	v := &service.View{Key: named("large")}
	var all []netip.Addr
	for a := netip.MustParseAddr("198.18.0.1"); len(all) < addresses; a = a.Next() {
		all = append(all, a)
	}
	for n := range ports {
		v.Ports[service.IPv4] = append(v.Ports[service.IPv4], service.PortView{
			Protocol: service.UDP, Port: uint16(1 + n), ClusterIP: at(clusterIP).Addr(), ExternalIPs: all, LoadBalancerVIPs: all,
			Serving: []service.Endpoint{{AddrPort: at(endpointA)}},
		})
	}
	return v
}

// TestTable_LargeServiceWorkIsLinear: the work for a large Service grows linearly, except for sorting. A tenant may ask
// for 32,001 destinations with 12 KB of YAML, and a walk over pairs of them would delay every actor.
func TestTable_LargeServiceWorkIsLinear(t *testing.T) {
	const addresses, ports = 200, 160
	const destinations = addresses*ports + ports + 1
	small, large := largeView(addresses, ports/2), largeView(addresses, ports)
	// Each VIP is an external IP as well, so twice as many are sorted.
	bound := 4 * destinations * bits.Len(2*destinations)
	within := func(what string, steps, most int) {
		t.Helper()
		if steps == 0 || steps > most {
			t.Errorf("%s: %d steps for %d destinations, want 1 to %d", what, steps, destinations, most)
		}
	}
	before, p := newPicture(context.Background(), service.IPv4, small, true), newPicture(context.Background(), service.IPv4, large, true)
	if len(p.openings) != destinations {
		t.Fatalf("%d destinations, want %d", len(p.openings), destinations)
	}
	within("a picture", p.steps, bound)

	table := newTable()
	steps := func(do func()) int {
		former := table.steps
		do()
		return table.steps - former
	}
	within("a new Service", steps(func() { table.apply(large.Key, p) }), 4*destinations)
	within("the same again", steps(func() { table.apply(large.Key, p) }), 4*destinations)
	within("half of it", steps(func() { table.apply(large.Key, before) }), 4*destinations)
	asked := func() int {
		s := &sweep{table: table, todo: table.todo}
		s.questions()
		return s.steps
	}
	within("what to list", asked(), filtersMax+1)
	clear(table.todo.checks)
	within("what to list of UDP", asked(), filtersMax+1)
}

// TestPicture_PollsContext: when its context ends, making a picture ends soon, and the cleaner records no incomplete
// picture.
func TestPicture_PollsContext(t *testing.T) {
	large := largeView(100, 100)
	ends := func() context.Context { return &ending{t.Context(), 3} }
	whole, part := newPicture(t.Context(), service.IPv4, large, false), newPicture(ends(), service.IPv4, large, false)
	if part.steps > whole.steps/20 || len(part.ports) > len(whole.ports)/20 {
		t.Errorf("%d of %d steps and %d of %d ports after the context ended",
			part.steps, whole.steps, len(part.ports), len(whole.ports))
	}
	c, err := New(Config{NodePorts: func(service.Family) service.NodePortAddresses { return service.NodePortAddresses{} }})
	if err != nil {
		t.Fatal(err)
	}
	c.Submitted(ends(), service.IPv4, *large)
	c.Programmed(ends(), service.IPv4, *large)
	if k := c.families[service.IPv4]; len(k.table.services) > 0 || len(k.wake) > 0 {
		t.Error("an incomplete picture was recorded")
	}
}

// ending is a context that ends when it has been polled a few times.
type ending struct {
	context.Context
	polls int
}

func (e *ending) Err() error {
	if e.polls--; e.polls < 0 {
		return context.Canceled
	}
	return nil
}
