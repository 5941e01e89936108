// SPDX-License-Identifier: Apache-2.0

package account

import (
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/conntrack"
	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/conntracktest"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// levels records the levels that a Traffic reports.
type levels struct {
	mu  sync.Mutex
	all []Pressure
}

func (l *levels) add(p Pressure) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, p)
}

// await returns the first report of a level.
func (l *levels) await(t *testing.T, level Level) Pressure {
	t.Helper()
	for began := time.Now(); time.Since(began) < testenv.Patience; time.Sleep(10 * time.Millisecond) {
		l.mu.Lock()
		at := slices.IndexFunc(l.all, func(p Pressure) bool { return p.Level == level })
		if at >= 0 {
			defer l.mu.Unlock()
			return l.all[at]
		}
		l.mu.Unlock()
	}
	t.Fatalf("level %d was not reported: %+v", level, l.all)
	return Pressure{}
}

// TestKernelPressure_AnnouncedBeforeFirstDrop: when one client fills a real table through one Service, both are named
// before the kernel drops a packet. Then real packets meet a full table. The limit is that of the host, which the test
// must not change: 262,144 by default.
func TestKernelPressure_AnnouncedBeforeFirstDrop(t *testing.T) {
	node := conntracktest.NewNode(t)
	usage, err := conntrack.ReadUsage(t.Context(), node.Do)
	if err != nil || usage.Limit == 0 || usage.Entries != uint64(conntracktest.Count(t, node)) {
		t.Fatalf("%+v; %v", usage, err)
	}
	var reported levels
	watch := startTraffic(t, TrafficConfig{Service: dnsService, Exists: func(service.Key) bool { return true }, Changed: reported.add, Inside: node.Do, look: 20 * time.Millisecond})
	limit := int(usage.Limit)
	flows := crowdOf(limit - conntracktest.Count(t, node))
	fill := func(percent int) {
		n := min(max(0, limit*percent/100-conntracktest.Count(t, node)), len(flows))
		conntracktest.Inject(t, node, flows[:n])
		flows = flows[n:]
	}
	fill(79)
	if p := watch.Pressure(); p.Level != Calm || p.Holders != nil {
		t.Errorf("at 79 %%: %+v", p)
	}
	fill(85)
	filling := reported.await(t, Filling)
	busy := service.Key{Namespace: "shop", Name: "busy"}
	keys := filling.Holders.Top(10, func(s *traffic.ServiceFlows) uint64 { return s.Open })
	if len(keys) != 2 || keys[0] != busy || filling.Holders.Clients[0].Key != netip.MustParseAddr("192.0.2.2") {
		t.Fatalf("culprits %v, %+v", keys, filling.Holders.Clients)
	}
	t.Logf("announced at %d of %d entries; the reading took %v; %s has %d, %+v", filling.Entries, filling.Limit,
		filling.Holders.Ended.Sub(filling.Holders.Began), busy, filling.Holders.Services[busy].Open, filling.Holders.Clients[0])
	fill(98)
	full := reported.await(t, Full)
	if filling.Dropped+filling.EarlyDropped+full.Dropped+full.EarlyDropped > 0 || full.Percent() < fullAt {
		t.Errorf("announced after the first drop: %+v, %+v", filling, full)
	}
	fill(100)
	const enough = 100 // a few fail for another reason
	failed := 0
	for port := range 2 * enough {
		if conntracktest.Send(node, uint16(2000+port)) != nil {
			failed++
		}
	}
	p := watch.Pressure()
	seen := func() bool { return p.Dropped >= enough && p.Entries >= p.Limit } // a reading may begin before the table is full
	for began := time.Now(); !seen() && time.Since(began) < testenv.Patience; p = watch.Pressure() {
		time.Sleep(10 * time.Millisecond)
	}
	if !seen() || failed < enough || p.Drops == 0 || p.LastDrop.Before(full.At) || p.Level != Full {
		t.Errorf("%d packets failed: %+v", failed, p)
	}
	if err := netnstest.FlushConntrack(node); err != nil {
		t.Fatal(err)
	}
	reported.await(t, Dropping)
}

// startTraffic runs a Traffic until the test ends.
func startTraffic(t *testing.T, c TrafficConfig) *Traffic {
	t.Helper()
	c.Failed = func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	watch := NewTraffic(c)
	var running sync.WaitGroup
	running.Go(func() { _ = watch.Run(t.Context()) })
	t.Cleanup(running.Wait) // the context ends before
	return watch
}

// dnsService is shop/busy or shop/calm.
func dnsService(_ service.Family, t conntrack.Tuple) (service.Key, bool) {
	name := map[string]string{"10.96.0.10": "busy", "10.96.0.11": "calm"}[t.To.Addr().String()]
	return service.Key{Namespace: "shop", Name: name}, name != "" && t.Protocol == unix.IPPROTO_UDP
}

// crowdOf returns flows of shop/busy, nearly all of one client, and of every hundredth one of shop/calm.
func crowdOf(size int) []conntracktest.Tracked {
	flows := make([]conntracktest.Tracked, size)
	for i := range flows {
		service, endpoint, client := "10.96.0.10", "10.0.2.2", "192.0.2.2"
		if i%100 == 0 {
			service, endpoint, client = "10.96.0.11", "10.0.2.3", "192.0.2.3"
		}
		port := uint16(i / 50_000)
		from := netip.AddrPortFrom(netip.MustParseAddr(client), uint16(10_000+i%50_000))
		flows[i] = conntracktest.Tracked{
			Protocol: unix.IPPROTO_UDP, Client: from, Destination: netip.AddrPortFrom(netip.MustParseAddr(service), 53+port),
			Answerer: netip.AddrPortFrom(netip.MustParseAddr(endpoint), 5353+port), Source: from,
		}
	}
	return flows
}
