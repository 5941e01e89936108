// SPDX-License-Identifier: Apache-2.0

//go:build ipvs

package wire

import (
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/ipvs"
	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

func TestAvailable(t *testing.T) {
	if err := Available(); err != nil {
		t.Error(err)
	}
}

// TestServers_ListThousands: 10,000 virtual servers of two families are listed with their real servers as they were
// written.
func TestServers_ListThousands(t *testing.T) {
	w := newServerWorld(t)
	want := map[service.Frontend]Service{}
	var requests []Request
	for i, f := range slices.Concat(many(service.IPv4, 5000), many(service.IPv6, 5000)) {
		s := Service{Frontend: f, Scheduler: "rr"}
		if i%2 == 0 {
			s.Flags, s.Timeout, s.FreeBits = Persistent, uint32(i+60), 8
		}
		want[f] = s
		requests = append(requests, newService(s), newReal(f, netip.AddrPortFrom(f.Addr.Next(), 8080), uint32(i)))
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
	servers, err := w.List(t.Context(), func(s Service) bool { return s.Addr.Is6() })
	if err != nil || len(servers) != 5000 {
		t.Fatalf("%d virtual servers, %v", len(servers), err)
	}
	for _, s := range servers {
		if len(s.Destinations) != 1 || s.Destinations[0].Addr != netip.AddrPortFrom(s.Addr.Next(), 8080) {
			t.Fatalf("%s has %+v", s.Frontend, s.Destinations)
		}
	}
	if stats, err := w.traffic(); err != nil || len(stats) != len(want) {
		t.Errorf("%d counters, %v", len(stats), err)
	}
}

// TestServers_ListThousandsOfRealServers: the 10,000 real servers of one virtual server, which take several datagrams,
// are listed as they were written.
func TestServers_ListThousandsOfRealServers(t *testing.T) {
	w := newServerWorld(t)
	f := frontend("10.96.0.1", 80, service.TCP)
	requests := []Request{newService(Service{Frontend: f, Scheduler: "rr"})}
	want := map[netip.AddrPort]uint32{}
	for i, at := range many(service.IPv4, 10_000) {
		addr := netip.AddrPortFrom(at.Addr, 8080)
		want[addr] = uint32(i)
		requests = append(requests, newReal(f, addr, uint32(i)))
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
}

// TestServers_SingleServer reads, creates and removes single virtual servers, including some that do not exist.
func TestServers_SingleServer(t *testing.T) {
	w := newServerWorld(t)
	s := Service{Frontend: frontend("fd96::1", 443, service.UDP), Scheduler: "sh", Flags: onePacket | SchedulerFlag1, Timeout: 0}
	one := func(r Request) error { return w.Do(t.Context(), []Request{r})[0] }
	if err := one(newService(s)); err != nil {
		t.Fatal(err)
	}
	if err := one(newService(s)); !Exists(err) {
		t.Errorf("made again: %v", err)
	}
	if got, err := w.Service(t.Context(), s.Frontend); err != nil || got != s {
		t.Errorf("got %+v, %v", got, err)
	}
	absent := frontend("fd96::2", 443, service.UDP)
	if _, err := w.Service(t.Context(), absent); !Missing(err) || !strings.Contains(err.Error(), absent.String()) {
		t.Errorf("one that is not there: %v", err)
	}
	none := Service{Frontend: absent, Scheduler: "nonesuch"}
	if err := one(newService(none)); !errors.Is(err, unix.ENOENT) || Missing(err) {
		t.Errorf("without a scheduler: %v", err)
	}
	for _, f := range []service.Frontend{s.Frontend, absent} {
		if got, err := w.Destinations(t.Context(), f); err != nil || len(got) != 0 {
			t.Errorf("real servers of %s: %+v, %v", f, got, err)
		}
		if err := one(delService(f)); Missing(err) != (f == absent) || err != nil && f != absent {
			t.Errorf("delete %s: %v", f, err)
		}
	}
}

// TestServers_ForeignServers: servers of other programs are listed as they are, and those without a frontend are left
// out.
func TestServers_ForeignServers(t *testing.T) {
	w := newServerWorld(t)
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
	servers, err := w.List(t.Context(), nil)
	if err != nil || len(servers) != 1 || servers[0].Service != want {
		t.Fatalf("got %+v, %v", servers, err)
	}
	destinations := servers[0].Destinations
	if len(destinations) != 1 || destinations[0].Forwarding != ipvs.ConnFwdDirectRoute || destinations[0].Weight != 3 {
		t.Errorf("got %+v", destinations)
	}
	// A change of ours makes it masquerade.
	w.do(setReal(want.Frontend, destinations[0].Addr, 1))
	if got, err := w.Destinations(t.Context(), want.Frontend); err != nil || len(got) != 1 || got[0].Forwarding != Masquerading {
		t.Errorf("got %+v, %v", got, err)
	}
	if err := w.judge.Flush(); err != nil {
		t.Error(err)
	}
	w.expect()
}

// TestServers_Timeouts: a timeout of 0 keeps the current one, and fractions of a second are rounded up.
func TestServers_Timeouts(t *testing.T) {
	w := newServerWorld(t)
	before, err := w.judge.GetConfig()
	if err != nil || before.TimeoutTCP == 0 || before.TimeoutUDP == 0 {
		t.Fatalf("%+v, %v", before, err)
	}
	if err := w.SetTimeouts(Timeouts{}); err != nil {
		t.Error(err)
	}
	if err := w.SetTimeouts(Timeouts{TCP: 77 * time.Second, UDP: 1500 * time.Millisecond}); err != nil {
		t.Error(err)
	}
	judged, err := w.judge.GetConfig()
	if err != nil {
		t.Fatal(err)
	}
	want := ipvs.Config{TimeoutTCP: 77 * time.Second, TimeoutTCPFin: before.TimeoutTCPFin, TimeoutUDP: 2 * time.Second}
	if *judged != want {
		t.Errorf("got %+v, want %+v", *judged, want)
	}
}

// TestServers_ConnectionsAreCounted: a connection through a virtual server counts at its real server and in the
// counters.
func TestServers_ConnectionsAreCounted(t *testing.T) {
	w := newServerWorld(t)
	backend, err := netnstest.StartBackend(w.node, "b", netip.MustParseAddrPort("127.0.0.1:8080"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := backend.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
	})
	f, addr := frontend("127.0.0.2", 80, service.TCP), netip.MustParseAddrPort("127.0.0.1:8080")
	w.do(newService(Service{Frontend: f, Scheduler: "rr", Flags: Persistent, Timeout: 600}), newReal(f, addr, 1))
	session, err := netnstest.Connect(t.Context(), w.node, netip.AddrPortFrom(f.Addr, f.Port))
	if err != nil {
		t.Fatal(err)
	}
	got, err := w.Destinations(t.Context(), f)
	if err != nil || len(got) != 1 || got[0].ActiveConns != 1 || got[0].InactiveConns != 0 {
		t.Errorf("got %+v, %v", got, err)
	}
	w.awaitStats(f, addr, 1)
	if err := session.Close(); err != nil {
		t.Error(err)
	}
	w.do(delReal(f, addr)) // its counters go with it, and the totals do not
	w.do(newReal(f, addr, 1))
	for n := range uint64(3) {
		session, err := netnstest.Connect(t.Context(), w.node, netip.AddrPortFrom(f.Addr, f.Port))
		if err != nil {
			t.Fatal(err)
		}
		if w.awaitStats(f, addr, n+2); session.Close() != nil {
			t.Error("the session did not close")
		}
	}
}

func (w *serverWorld) traffic() (stats map[service.Frontend]traffic.Counts, err error) {
	w.Helper()
	err = w.node.Do(func() error {
		var reals map[traffic.Pair]traffic.Counts
		stats, reals, err = w.meter.Read(w.Context(), true)
		w.reals = w.grown.Add(reals)
		return err
	})
	return stats, err
}

// awaitStats waits for the kernel to sum up what connections have made a virtual server and its only real server
// count.
func (w *serverWorld) awaitStats(f service.Frontend, addr netip.AddrPort, connections uint64) {
	w.Helper()
	counted := func(s traffic.Counts) bool {
		n := connections
		return s.Connections == n && s.BytesIn >= 80*n && s.BytesOut >= 40*n
	}
	for deadline := time.Now().Add(testenv.Patience); ; time.Sleep(100 * time.Millisecond) {
		stats, err := w.traffic()
		if err != nil {
			w.Fatal(err)
		}
		real := w.reals[traffic.Pair{Frontend: f, Endpoint: addr}]
		if counted(stats[f]) && counted(real) {
			return
		}
		if time.Now().After(deadline) {
			w.Fatalf("counted %+v, and for the real server %+v", stats[f], real)
		}
	}
}
