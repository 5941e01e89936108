//go:build ipvs

package genl

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/moby/ipvs"
	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/service"
)

// Each round adds so many virtual servers, with so many real servers each.
const (
	benchServices     = 1000
	benchDestinations = 10
)

// BenchmarkRequests compares sizes of a send with one call of the judge for each
// request. Figures are in docs/adr/0011-ipvs.md.
func BenchmarkRequests(b *testing.B) {
	frontends := many(service.IPv4, benchServices)
	addr := func(i int) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 8080)
	}
	perRequest := func(b *testing.B) {
		requests := float64(b.N) * benchServices * (1 + benchDestinations)
		b.ReportMetric(float64(b.Elapsed().Microseconds())/requests, "µs/request")
	}
	for _, most := range []int{1, 16, 64, 256, 1024} {
		b.Run(fmt.Sprintf("sends of %d", most), func(b *testing.B) {
			w := newWorld(b)
			w.bounds.requests = most
			for b.Loop() {
				var requests []Request
				for _, f := range frontends {
					requests = append(requests, NewService(Service{Frontend: f, Scheduler: "rr"}))
					for i := range benchDestinations {
						requests = append(requests, NewDest(f, addr(i), 1))
					}
				}
				w.do(requests...)
				w.empty(b)
			}
			perRequest(b)
		})
	}
	b.Run("judge", func(b *testing.B) {
		w := newWorld(b)
		for b.Loop() {
			for _, f := range frontends {
				s := &ipvs.Service{
					AddressFamily: unix.AF_INET, Protocol: unix.IPPROTO_TCP, Address: f.Addr.AsSlice(), Port: f.Port,
					SchedName: "rr", Netmask: 0xffffffff,
				}
				if err := w.judge.NewService(s); err != nil {
					b.Fatal(err)
				}
				for i := range benchDestinations {
					d := &ipvs.Destination{AddressFamily: unix.AF_INET, Address: addr(i).Addr().AsSlice(), Port: addr(i).Port(), Weight: 1}
					if err := w.judge.NewDestination(s, d); err != nil {
						b.Fatal(err)
					}
				}
			}
			w.empty(b)
		}
		perRequest(b)
	})
}

// BenchmarkServers reads everything back.
func BenchmarkServers(b *testing.B) {
	w := newWorld(b)
	for _, f := range many(service.IPv4, benchServices) {
		w.do(NewService(Service{Frontend: f, Scheduler: "rr"}), NewDest(f, netip.MustParseAddrPort("10.0.0.1:80"), 1))
	}
	for b.Loop() {
		if servers, err := w.Servers(b.Context(), nil); err != nil || len(servers) != benchServices {
			b.Fatalf("%d virtual servers, %v", len(servers), err)
		}
	}
}

// empty makes room for the next round, outside of what is measured.
func (w *world) empty(b *testing.B) {
	b.StopTimer()
	if err := w.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.StartTimer()
}
