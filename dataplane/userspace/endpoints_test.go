// SPDX-License-Identifier: Apache-2.0

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

// growth returns how many times as much CPU time something takes with 100,000 endpoints as with 100. What other
// programs do at the same time does not count, but caches and the collector do: a test needs a wide margin on either
// side, which these sizes give.
func growth(t *testing.T, prepare func(endpoints []service.Endpoint) (run func())) float64 {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	now := func() time.Duration {
		var at unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &at); err != nil {
			t.Fatal(err)
		}
		return time.Duration(at.Nano())
	}
	cheapest := func(n, tries int) time.Duration {
		run, least := prepare(endpointsOf(n)), time.Hour
		for range tries {
			began := now()
			run()
			least = min(least, now()-began)
		}
		return least
	}
	few, many := cheapest(100, 20), cheapest(100_000, 3)
	t.Logf("it takes %v with 100 endpoints, %v with 100,000", few, many)
	return float64(many) / float64(few)
}

// TestBalancer_DatagramCostConstant: the check whether a session stays, made for each datagram, costs the same with
// many endpoints. A search among all endpoints would take 1,000 times as long.
func TestBalancer_DatagramCostConstant(t *testing.T) {
	client := netip.MustParseAddr("192.0.2.1")
	times := growth(t, func(endpoints []service.Endpoint) func() {
		table := &Table{To: addrPorts(endpoints)}
		b := newBalancer(NewRegistry(Bounds{}), PortID{}, table, service.UDP, time.Minute, func(func()) {})
		return func() {
			for range 1000 {
				if !b.Keeps(client, table.To[len(table.To)-1]) {
					t.Fatal("a session does not stay")
				}
			}
		}
	})
	if times > 50 {
		t.Errorf("1,000 times as many endpoints cost a datagram %.0f times as much", times)
	}
}

// TestBalancer_SessionsStay: a session stays with an endpoint that its client can get and with one that still serves,
// and with no other.
func TestBalancer_SessionsStay(t *testing.T) {
	at := netip.MustParseAddrPort
	to, nearTo, kept, gone := at("10.0.0.1:53"), at("10.0.0.2:53"), at("10.0.0.3:53"), at("10.0.0.4:53")
	near, far, denied := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("192.0.3.1")
	b := newBalancer(NewRegistry(Bounds{}), PortID{}, &Table{
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

// TestRenderer_LinearTime: the time to render a UDP port is linear in the number of endpoints. Comparing each endpoint
// with each serving one would take a million times as long.
func TestRenderer_LinearTime(t *testing.T) {
	times := growth(t, func(endpoints []service.Endpoint) func() {
		v := &service.View{Key: service.Key{Namespace: "ns1", Name: "dns"}}
		v.Ports[service.IPv4] = []service.PortView{{Protocol: service.UDP, Port: 53, ClusterIP: netip.MustParseAddr("10.96.0.9"),
			HasAny: true, Cluster: endpoints, Serving: endpoints}}
		return func() {
			NewRenderer(Addresses, service.IPv4, Settings{}).Service(context.Background(), v, &service.NodeFacts{})
		}
	})
	if times > 20_000 {
		t.Errorf("1,000 times as many endpoints cost %.0f times as much", times)
	}
}
