// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/listeners"
	"github.com/sluice-proxy/sluice/dataplane/relay"
	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/service"
)

// TestRegistry_LeastConnections: the next client gets the endpoint with the fewest connections over all frontends of
// the port.
func TestRegistry_LeastConnections(t *testing.T) {
	r := NewRegistry(Bounds{})
	table := &Table{LeastConnections: true, To: []netip.AddrPort{a, b, c}}
	x, other := balanceFor(r, portID, table, never), balanceFor(r, portID, table, never)
	ends := map[netip.AddrPort]func(){}
	for range 3 { // with equal loads, they go round
		to := x.Targets(netip.AddrPortFrom(client, 40000))[0]
		if ends[to] != nil {
			t.Fatalf("%v has two connections, and another one none", to)
		}
		ends[to] = x.connect(client, to, nil)
	}
	defer other.connect(client, a, nil)()
	ends[b]()
	if got := firsts(x, client, 6); got[b] != 6 {
		t.Errorf("%v is idle, got %v", b, got)
	}
	defer x.connect(client, b, nil)()
	if got := firsts(other, client, 10); got[a] != 0 || got[b] != 5 || got[c] != 5 {
		t.Errorf("%v has two connections, the others one, got %v", a, got)
	}
	if got := x.Targets(netip.AddrPortFrom(client, 40000)); got[2] != a {
		t.Errorf("to try: %v, want %v last", got, a)
	}
	ends[a]()
	ends[c]()
}

// TestRegistry_AffinityPerServicePort: affinity belongs to the Service port: a client gets the same endpoint at every
// frontend of the port, and not at another port.
func TestRegistry_AffinityPerServicePort(t *testing.T) {
	r := NewRegistry(Bounds{})
	table := &Table{Affinity: 10, To: []netip.AddrPort{a, b, c}}
	id := portID
	id.Name = "other"
	x, same, other := balanceFor(r, portID, table, never), balanceFor(r, portID, table, never), balanceFor(r, id, table, never)
	x.connect(client, b, nil)()
	if got := firsts(same, client, 30); got[b] != 30 {
		t.Errorf("another frontend: %v, want %v", got, b)
	}
	if got := firsts(other, client, 30); got[b] != 10 {
		t.Errorf("another port: %v", got)
	}
	x.retire()
	if got := firsts(same, client, 30); got[b] != 30 {
		t.Errorf("a frontend has gone: %v, want %v", got, b)
	}
	same.use(&Table{To: table.To})
	same.use(table)
	if got := firsts(same, client, 30); got[b] != 10 {
		t.Errorf("affinity was off: %v", got)
	}
}

// TestRegistry_Traffic: traffic of a Service is still counted after its endpoints are removed, and forgotten after its
// last connection and listener.
func TestRegistry_Traffic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry(Bounds{})
		x := balanceFor(r, portID, &Table{To: []netip.AddrPort{a, b}}, time.Minute)
		expect := func(when string, want traffic.Tally, endpoints int) {
			t.Helper()
			got := r.Traffic(portID.Service)[service.IPv4]
			if got == nil || got.Tally != want || len(got.Endpoints) != endpoints {
				t.Errorf("%s: %+v, want %+v at %d endpoints", when, got, want, endpoints)
			}
		}
		expect("no client", traffic.Tally{}, 0)
		first := &relay.Connection{Client: netip.AddrPortFrom(client, 1), Target: a, Began: time.Now()}
		ended := x.Connected(first)
		first.Also.ToTargets.Add(3)
		first.Also.ToClients.Add(5)
		x.Failed(b, nil, true)
		x.Failed(b, nil, false)
		want := traffic.Tally{Open: 1, Failures: 2, Retries: 1}
		want.Counts = traffic.Counts{Connections: 1, BytesIn: 3, BytesOut: 5}
		expect("one connection", want, 2)
		x.use(&Table{To: []netip.AddrPort{c}})
		expect("both have left", want, 1)
		if found := listed(r); len(found) != 1 || found[0].Connection != first || found[0].Port != portID {
			t.Errorf("open: %+v", found)
		}
		x.retire()
		expect("the listener has gone", want, 1)
		again := balanceFor(r, portID, &Table{}, time.Minute)
		ended()
		want.Open = 0
		expect("the connection has ended", want, 0)
		again.retire()
		if got := r.Traffic(portID.Service)[service.IPv4]; got != nil || len(r.services)+len(listed(r)) != 0 {
			t.Errorf("left: %+v", got)
		}
	})
}

// listed returns the open connections.
func listed(r *Registry) []*Open {
	found, _ := r.Connections(0, 10, func(*Open) bool { return true })
	return found
}

// TestListener_ServiceTakeover: when another Service takes a listener over, connections of the previous Service drain
// and are still counted for it.
func TestListener_ServiceTakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewForwarder(Addresses, service.IPv4, Config{DrainDeadline: time.Minute})
		one, two := service.Key{Namespace: "ns", Name: "one"}, service.Key{Namespace: "ns", Name: "two"}
		table := &Table{Service: one, To: []netip.AddrPort{a}}
		l, err := f.open(relay.Place{Protocol: service.TCP, At: at("127.0.0.1:0")}, table)
		if err != nil {
			t.Fatal(err)
		}
		cut := make(chan struct{}, 1)
		ended := l.balancer.Connected(&relay.Connection{Target: a, Began: time.Now(), Cut: func() { cut <- struct{}{} }})
		l.switchTable(&Table{Service: two, To: []netip.AddrPort{a}})
		if got := f.registry.Traffic(two)[service.IPv4]; got == nil || got.Connections != 0 {
			t.Errorf("the new one: %+v", got)
		}
		if got := f.registry.Traffic(one)[service.IPv4]; got == nil || got.Open != 1 {
			t.Errorf("the former one: %+v", got)
		}
		time.Sleep(time.Minute)
		<-cut
		ended()
		if got := f.registry.Traffic(one)[service.IPv4]; got != nil {
			t.Errorf("the former one is left: %+v", got)
		}
		l.Retire()
		f.Close()
	})
}

// TestListener_DeadReleasesSlot: a dead listener leaves its slot to its replacement, and holds no Service port once the
// replacement is closed.
func TestListener_DeadReleasesSlot(t *testing.T) {
	f := NewForwarder(Addresses, service.IPv4, Config{Registry: NewRegistry(Bounds{Listeners: 1})})
	defer f.Close()
	id := listeners.ID(relay.Place{Protocol: service.TCP, At: at("127.0.0.1:0")})
	write := func(after *dataplane.Object) {
		t.Helper()
		if r := f.listeners.Write(t.Context(), &dataplane.Batch{Changes: []dataplane.Change{{ID: id, After: after}}}); r.Outcome != dataplane.Landed {
			t.Fatalf("got %v", r)
		}
	}
	wanted := &dataplane.Object{ID: id, Kind: dataplane.Element, Body: (&Table{Service: portID.Service, To: []netip.AddrPort{a}}).body()}
	write(wanted)
	f.Each(func(l *relay.Listener) {
		if err := l.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) }); err != nil { // the death shows whether it did
			t.Error(err)
		}
	})
	ctx, stop := context.WithCancel(t.Context())
	_ = f.listeners.Watch(ctx, func(dataplane.ForeignProcess) { stop() }) // it ends with the context
	if o := f.listeners.Object(id); o != nil {
		t.Errorf("a dead listener is %v", o)
	}
	write(wanted)
	write(nil)
	if got := f.registry.Traffic(portID.Service)[service.IPv4]; got != nil || len(f.registry.services) != 0 {
		t.Errorf("left: %+v", got)
	}
}

// TestRegistry_ConnectionPages: the pages of open connections are ordered, complete and limited in size.
func TestRegistry_ConnectionPages(t *testing.T) {
	r := NewRegistry(Bounds{})
	for range 10 {
		r.opened(&relay.Connection{}, portID)
	}
	var seen []uint64
	for more, above := true, uint64(0); more; above = seen[len(seen)-1] {
		var page []*Open
		if page, more = r.Connections(above, 4, func(o *Open) bool { return o.Number != 5 }); len(page) > 4 {
			t.Fatalf("a page of %d", len(page))
		}
		for _, o := range page {
			seen = append(seen, o.Number)
		}
	}
	if len(seen) != 9 || seen[0] != 1 || seen[4] != 6 || seen[8] != 10 {
		t.Errorf("seen %v", seen)
	}
}
