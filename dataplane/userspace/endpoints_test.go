package userspace

import (
	"context"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/service"
)

// endpointsOf returns endpoints in the order of a View.
func endpointsOf(n int) (all []service.Endpoint) {
	for at := netip.MustParseAddr("10.128.0.1"); len(all) < n; at = at.Next() {
		all = append(all, service.Endpoint{AddrPort: netip.AddrPortFrom(at, 53)})
	}
	return all
}

// cheapest returns the least CPU time that something took in 20 tries: what other programs do at the
// same time does not count.
func cheapest(t *testing.T, f func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	now := func() time.Duration {
		var at unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &at); err != nil {
			t.Fatal(err)
		}
		return time.Duration(at.Nano())
	}
	least := time.Hour
	for range 20 {
		began := now()
		f()
		least = min(least, now()-began)
	}
	return least
}

// TestADatagramCostsTheSameWithManyEndpoints: whether its session stays is asked with each one.
func TestADatagramCostsTheSameWithManyEndpoints(t *testing.T) {
	client := netip.MustParseAddr("192.0.2.1")
	cost := func(n int) time.Duration {
		table := &Table{}
		for _, e := range endpointsOf(n) {
			table.To = append(table.To, e.AddrPort)
		}
		b := newBalancer(NewRegistry(Bounds{}, nil), PortID{}, table, service.UDP, time.Minute, func(func()) {})
		return cheapest(t, func() {
			for range 1000 {
				if !b.Keeps(client, table.To[n-1]) {
					t.Fatal("a session does not stay")
				}
			}
		})
	}
	few, many := cost(10), cost(10_000)
	t.Logf("1000 datagrams take %v with 10 endpoints, %v with 10,000", few, many)
	if many > 10*few {
		t.Errorf("1000 datagrams take %v with 10 endpoints, %v with 10,000", few, many)
	}
}

// TestSessionsStay with endpoints of their clients, and with those that serve and get no new ones.
func TestSessionsStay(t *testing.T) {
	at := netip.MustParseAddrPort
	to, nearTo, kept, gone := at("10.0.0.1:53"), at("10.0.0.2:53"), at("10.0.0.3:53"), at("10.0.0.4:53")
	near, far, denied := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("192.0.3.1")
	b := newBalancer(NewRegistry(Bounds{}, nil), PortID{}, &Table{
		Allowed: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, Near: []netip.Prefix{single(near)},
		To: []netip.AddrPort{to}, NearTo: []netip.AddrPort{nearTo}, Kept: []netip.AddrPort{kept},
	}, service.UDP, time.Minute, func(func()) {})
	expect := func(client netip.Addr, want map[netip.AddrPort]bool) {
		t.Helper()
		for _, e := range []netip.AddrPort{to, nearTo, kept, gone} {
			if got := b.Keeps(client, e); got != want[e] {
				t.Errorf("%v stays with %v: %v, want %v", client, e, got, want[e])
			}
		}
	}
	expect(far, map[netip.AddrPort]bool{to: true, kept: true})
	expect(near, map[netip.AddrPort]bool{nearTo: true, kept: true})
	expect(denied, nil)
	b.use(&Table{To: []netip.AddrPort{nearTo}})
	expect(far, map[netip.AddrPort]bool{nearTo: true})
	b.retire()
	expect(far, nil)
}

// TestRenderingIsLinear in the endpoints of a UDP port, which are compared with those that serve.
func TestRenderingIsLinear(t *testing.T) {
	cost := func(n int) time.Duration {
		e := endpointsOf(n)
		v := &service.View{Key: service.Key{Namespace: "ns1", Name: "dns"}}
		v.Ports[service.IPv4] = []service.PortView{{Protocol: service.UDP, Port: 53, ClusterIP: netip.MustParseAddr("10.96.0.9"),
			HasAny: true, Cluster: e, Serving: e}}
		return cheapest(t, func() {
			NewRenderer(Addresses, service.IPv4, Settings{}).Service(context.Background(), v, &service.NodeFacts{})
		})
	}
	few, many := cost(1000), cost(10_000)
	t.Logf("rendering takes %v with 1,000 endpoints, %v with 10,000", few, many)
	if many > 40*few {
		t.Errorf("rendering takes %v with 1,000 endpoints, %v with 10,000", few, many)
	}
}
