//go:build ipvs

package genl

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/moby/ipvs"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
)

func TestAvailable(t *testing.T) {
	if err := Available(); err != nil {
		t.Error(err)
	}
}

// TestListsOfThousands: 10,000 virtual servers of two families with real servers
// come back as they were written.
func TestListsOfThousands(t *testing.T) {
	w := newWorld(t)
	want := map[dataplane.Frontend]Service{}
	var requests []Request
	for i, f := range slices.Concat(many(service.IPv4, 5000), many(service.IPv6, 5000)) {
		s := Service{Frontend: f, Scheduler: "rr"}
		if i%2 == 0 {
			s.Flags, s.Timeout, s.FreeBits = Persistent, uint32(i+60), 8
		}
		want[f] = s
		requests = append(requests, NewService(s), NewDest(f, netip.AddrPortFrom(f.Addr.Next(), 8080), uint32(i)))
	}
	w.do(requests...)
	services, err := w.Services(t.Context())
	if err != nil || len(services) != len(want) {
		t.Fatalf("%d virtual servers, %v", len(services), err)
	}
	for _, s := range services {
		if s != want[s.Frontend] {
			t.Fatalf("got %+v, want %+v", s, want[s.Frontend])
		}
	}
	if judged, err := w.judge.GetServices(); err != nil || len(judged) != len(want) {
		t.Errorf("the judge sees %d, %v", len(judged), err)
	}
	servers, err := w.Servers(t.Context(), func(s Service) bool { return s.Addr.Is6() })
	if err != nil || len(servers) != 5000 {
		t.Fatalf("%d virtual servers, %v", len(servers), err)
	}
	for _, s := range servers {
		if len(s.Destinations) != 1 || s.Destinations[0].Addr != netip.AddrPortFrom(s.Addr.Next(), 8080) {
			t.Fatalf("%s has %+v", s.Frontend, s.Destinations)
		}
	}
	if stats, err := w.Stats(t.Context()); err != nil || len(stats) != len(want) {
		t.Errorf("%d counters, %v", len(stats), err)
	}
}

// TestListOfThousandsOfRealServers takes several datagrams for one virtual server.
func TestListOfThousandsOfRealServers(t *testing.T) {
	w := newWorld(t)
	f := frontend("10.96.0.1", 80, service.TCP)
	requests := []Request{NewService(Service{Frontend: f, Scheduler: "rr"})}
	want := map[netip.AddrPort]uint32{}
	for i, at := range many(service.IPv4, 10_000) {
		addr := netip.AddrPortFrom(at.Addr, 8080)
		want[addr] = uint32(i)
		requests = append(requests, NewDest(f, addr, uint32(i)))
	}
	w.do(requests...)
	destinations, err := w.Destinations(t.Context(), f)
	if err != nil || len(destinations) != len(want) {
		t.Fatalf("%d real servers, %v", len(destinations), err)
	}
	for _, d := range destinations {
		if weight, ok := want[d.Addr]; !ok || d.Weight != weight || d.Forwarding != Masquerading {
			t.Fatalf("got %+v", d)
		}
		delete(want, d.Addr)
	}
	judged, err := w.judge.GetDestinations(&ipvs.Service{
		AddressFamily: unix.AF_INET, Protocol: unix.IPPROTO_TCP, Address: f.Addr.AsSlice(), Port: f.Port,
	})
	if err != nil || len(judged) != 10_000 {
		t.Errorf("the judge sees %d, %v", len(judged), err)
	}
}

// TestOne looks at single virtual servers, also at some that are not there.
func TestOne(t *testing.T) {
	w := newWorld(t)
	s := Service{Frontend: frontend("fd96::1", 443, service.UDP), Scheduler: "sh", Flags: OnePacket | SchedulerFlag1, Timeout: 0}
	w.do(NewService(s))
	if got, err := w.Service(t.Context(), s.Frontend); err != nil || got != s {
		t.Errorf("got %+v, %v", got, err)
	}
	absent := frontend("fd96::2", 443, service.UDP)
	if _, err := w.Service(t.Context(), absent); !Missing(err) || !strings.Contains(err.Error(), absent.String()) {
		t.Errorf("one that is not there: %v", err)
	}
	for _, f := range []dataplane.Frontend{s.Frontend, absent} {
		if got, err := w.Destinations(t.Context(), f); err != nil || len(got) != 0 {
			t.Errorf("real servers of %s: %+v, %v", f, got, err)
		}
	}
}

// TestOthersServers: what somebody else made is given as it is, and what has no
// frontend is left out.
func TestOthersServers(t *testing.T) {
	w := newWorld(t)
	made := &ipvs.Service{
		AddressFamily: unix.AF_INET, Protocol: unix.IPPROTO_TCP, Address: netip.MustParseAddr("10.96.0.1").AsSlice(), Port: 80,
		SchedName: "wlc", Flags: Persistent, Timeout: 300, Netmask: 0x00ffffff, // /24 in network byte order
	}
	marked := &ipvs.Service{AddressFamily: unix.AF_INET, FWMark: 7, SchedName: "rr", Netmask: 0xffffffff}
	routed := &ipvs.Destination{
		AddressFamily: unix.AF_INET, Address: netip.MustParseAddr("10.0.0.1").AsSlice(), Port: 80, Weight: 3,
		ConnectionFlags: ipvs.ConnFwdDirectRoute,
	}
	err := errors.Join(w.judge.NewService(made), w.judge.NewService(marked), w.judge.NewDestination(made, routed))
	if err != nil {
		t.Fatal(err)
	}
	want := Service{Frontend: frontend("10.96.0.1", 80, service.TCP), Scheduler: "wlc", Flags: Persistent, Timeout: 300, FreeBits: 8}
	servers, err := w.Servers(t.Context(), nil)
	if err != nil || len(servers) != 1 || servers[0].Service != want {
		t.Fatalf("got %+v, %v", servers, err)
	}
	destinations := servers[0].Destinations
	if len(destinations) != 1 || destinations[0].Forwarding != ipvs.ConnFwdDirectRoute || destinations[0].Weight != 3 {
		t.Errorf("got %+v", destinations)
	}
	// A change of ours makes it masquerade.
	w.do(SetDest(want.Frontend, destinations[0].Addr, 1))
	if got, err := w.Destinations(t.Context(), want.Frontend); err != nil || len(got) != 1 || got[0].Forwarding != Masquerading {
		t.Errorf("got %+v, %v", got, err)
	}
	if err := w.Flush(t.Context()); err != nil {
		t.Error(err)
	}
	w.expect()
}

// TestListUntilTheEndOfAContext: a list that is given up leaves nothing behind that
// could be taken for the next answer.
func TestListUntilTheEndOfAContext(t *testing.T) {
	w := newWorld(t)
	frontends := many(service.IPv4, 2000)
	for _, f := range frontends {
		w.do(NewService(Service{Frontend: f, Scheduler: "rr"}))
	}
	ctx, cancel := context.WithCancel(t.Context())
	heard := 0
	err := w.eachService(ctx, func(Service, []byte) { heard++; cancel() })
	if !errors.Is(err, context.Canceled) || heard != 1 {
		t.Errorf("%v after %d", err, heard)
	}
	if got, err := w.Services(t.Context()); err != nil || len(got) != len(frontends) {
		t.Errorf("%d virtual servers, %v", len(got), err)
	}
}

// TestTimeouts: 0 keeps what is; parts of a second are rounded up.
func TestTimeouts(t *testing.T) {
	w := newWorld(t)
	before, err := w.Timeouts(t.Context())
	if err != nil || before.TCP == 0 || before.UDP == 0 {
		t.Fatalf("%+v, %v", before, err)
	}
	if err := w.SetTimeouts(t.Context(), Timeouts{}); err != nil {
		t.Error(err)
	}
	if err := w.SetTimeouts(t.Context(), Timeouts{TCP: 77 * time.Second, UDP: 1500 * time.Millisecond}); err != nil {
		t.Error(err)
	}
	judged, err := w.judge.GetConfig()
	if err != nil {
		t.Fatal(err)
	}
	want := ipvs.Config{TimeoutTCP: 77 * time.Second, TimeoutTCPFin: before.TCPFin, TimeoutUDP: 2 * time.Second}
	if *judged != want {
		t.Errorf("the judge sees %+v, want %+v", *judged, want)
	}
}

// TestConnectionsAreCounted: a connection through a virtual server is seen at its
// real server, and in the counters of both.
func TestConnectionsAreCounted(t *testing.T) {
	w := newWorld(t)
	backend, err := netns.StartBackend(w.node, "b", netip.MustParseAddrPort("127.0.0.1:8080"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := backend.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
	})
	f, addr := frontend("127.0.0.2", 80, service.TCP), netip.MustParseAddrPort("127.0.0.1:8080")
	w.do(NewService(Service{Frontend: f, Scheduler: "rr", Flags: Persistent, Timeout: 600}), NewDest(f, addr, 1))
	session, err := w.node.Connect(t.Context(), netip.AddrPortFrom(f.Addr, f.Port))
	if err != nil {
		t.Fatal(err)
	}
	got, err := w.Destinations(t.Context(), f)
	if err != nil || len(got) != 1 || got[0].ActiveConns != 1 || got[0].InactiveConns != 0 || got[0].PersistConns != 1 {
		t.Errorf("got %+v, %v", got, err)
	}
	w.awaitStats(f)
	if err := session.Close(); err != nil {
		t.Error(err)
	}
}

// awaitStats waits for the kernel to sum up what one connection has made it count.
func (w *world) awaitStats(f dataplane.Frontend) {
	w.Helper()
	counted := func(s Stats) bool {
		return s.Connections == 1 && s.PacketsIn >= 2 && s.PacketsOut >= 1 && s.BytesIn >= 80 && s.BytesOut >= 40
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		stats, err := w.Stats(w.Context())
		if err != nil {
			w.Fatal(err)
		}
		destinations, err := w.Destinations(w.Context(), f)
		if err != nil || len(destinations) != 1 {
			w.Fatalf("got %+v, %v", destinations, err)
		}
		if counted(stats[f]) && counted(destinations[0].Stats) {
			return
		}
		if time.Now().After(deadline) {
			w.Fatalf("counted %+v, and %+v at the real server", stats[f], destinations[0].Stats)
		}
	}
}
