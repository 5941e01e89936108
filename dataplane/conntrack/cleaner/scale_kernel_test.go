// SPDX-License-Identifier: Apache-2.0

package cleaner

import (
	"context"
	"errors"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/conntrack"
	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/conntracktest"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// crowd is the number of flows in the tests of size. By default the kernel lets each
// namespace have 262,144 on a machine with more than 4 GiB of memory. A namespace cannot
// raise that.
const crowd = 100_000

// crowded is a kernel with many flows through one frontend, half to each of two endpoints,
// and one flow of each kind that the cleaner must not touch.
type crowded struct {
	*testing.T
	family         service.Family
	node           *netns.Namespace
	table          *table
	filterless     bool
	frontend, a, b netip.AddrPort
	bystanders     int
}

func newCrowded(t *testing.T, family service.Family, size int) *crowded {
	t.Helper()
	c := &crowded{T: t, family: family, node: netnstest.New(t, "node"), table: newTable()}
	addresses := service.PerFamily[[4]string]{
		{"10.96.0.10", "10.0.2.2", "10.0.2.3", "192.0.2.0"},
		{"fd96::10", "fd10:2::2", "fd10:2::3", "2001:db8::"},
	}[family]
	c.frontend = netip.AddrPortFrom(netip.MustParseAddr(addresses[0]), 53)
	c.a = netip.AddrPortFrom(netip.MustParseAddr(addresses[1]), 5353)
	c.b = netip.AddrPortFrom(netip.MustParseAddr(addresses[2]), 5353)
	client := netip.MustParseAddr(addresses[3])
	flows := make([]conntracktest.Tracked, 0, size+2)
	for i := range size {
		if i%50_000 == 0 {
			client = client.Next()
		}
		from := netip.AddrPortFrom(client, uint16(10_000+i%50_000))
		endpoint := c.a
		if i%2 == 1 {
			endpoint = c.b
		}
		flows = append(flows, conntracktest.Tracked{Protocol: unix.IPPROTO_UDP, Client: from, Destination: c.frontend, Answerer: endpoint, Source: from})
	}
	from := netip.AddrPortFrom(client.Next(), 5000)
	foreign := netip.AddrPortFrom(c.frontend.Addr().Next(), 53)
	flows = append(flows,
		conntracktest.Tracked{Protocol: unix.IPPROTO_TCP, Client: from, Destination: c.frontend, Answerer: c.a, Source: from},
		conntracktest.Tracked{Protocol: unix.IPPROTO_UDP, Client: from, Destination: foreign, Answerer: c.a, Source: from})
	c.bystanders = 2
	conntracktest.Inject(t, c.node, flows)
	if held := conntracktest.Count(t, c.node); held != len(flows) {
		t.Fatalf("the kernel holds %d flows, want %d", held, len(flows))
	}
	return c
}

// heapPeak returns the peak of the memory in use while something runs.
func heapPeak(run func()) (peak uint64) {
	var before runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			var now runtime.MemStats
			runtime.ReadMemStats(&now)
			if now.HeapAlloc > before.HeapAlloc {
				peak = max(peak, now.HeapAlloc-before.HeapAlloc)
			}
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
			}
		}
	})
	run()
	close(done)
	watching.Wait()
	return peak
}

// TestKernelSweep_MemoryIsBounded: sweeps of many flows, which delete none, then half, then the rest, take at most
// 16 MiB of memory.
func TestKernelSweep_MemoryIsBounded(t *testing.T) {
	type variant struct {
		name       string
		family     service.Family
		filterless bool
		flows      int
	}
	for _, c := range testenv.Variants(
		variant{"IPv4", service.IPv4, false, crowd},
		variant{"IPv6", service.IPv6, false, crowd / 4},
		variant{"as on an old kernel", service.IPv4, true, crowd / 4},
	) {
		t.Run(c.name, func(t *testing.T) {
			w := newCrowded(t, c.family, c.flows)
			w.filterless = c.filterless
			w.sweep([]netip.AddrPort{w.a, w.b}, 0)
			w.sweep([]netip.AddrPort{w.a}, c.flows/2)
			w.sweep(nil, c.flows/2)
			if left := conntracktest.Count(t, w.node); left != w.bystanders {
				t.Errorf("%d flows are left, want the %d that are not ours", left, w.bystanders)
			}
		})
	}
}

// filterless lists all flows, as a kernel without filters does.
type filterless struct{ kernel }

func (k filterless) Each(ctx context.Context, only filter, each func(*flow) error) (honoured bool, err error) {
	honoured = true
	_, err = k.kernel.Each(ctx, filter{}, func(f *flow) error {
		honoured = honoured && only.Lets(f)
		return each(f)
	})
	return honoured, err
}

// sweep changes what serves, and sweeps.
func (c *crowded) sweep(serving []netip.AddrPort, deleted int) {
	const peakMax = 16 << 20 // bytes; the collector alone lets 4 MiB pass
	c.Helper()
	before := conntracktest.Count(c, c.node)
	texts := []string{}
	for _, e := range serving {
		texts = append(texts, e.String())
	}
	c.table.tell(service.Key{Namespace: "ns1", Name: "dns"}, pictured([]string{c.frontend.String()}, texts))
	var k kernel = node{&conntrack.Kernel{Family: c.family, Inside: c.node.Do}}
	if c.filterless {
		k = filterless{k}
	}
	s := newSweep(c.table, k, c.family, service.NodePortAddresses{}, map[destination]service.Key{})
	var err error
	began := time.Now()
	peak := heapPeak(func() { err = errors.Join(s.run(c.Context()), k.Close()) })
	if err != nil {
		c.Fatal(err)
	}
	c.Logf("%d flows, %d shown, %d deleted in %v, %d KiB of memory", before, s.result.Flows, s.result.Deleted, time.Since(began), peak>>10)
	if peak > peakMax {
		c.Errorf("a sweep took %d KiB of memory, want %d KiB at most", peak>>10, peakMax>>10)
	}
	if now := conntracktest.Count(c, c.node); s.result.Deleted != deleted || before-now != deleted {
		c.Errorf("%d deleted, and %d flows fewer, want %d", s.result.Deleted, before-now, deleted)
	}
}
