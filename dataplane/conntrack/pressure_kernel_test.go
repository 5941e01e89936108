// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
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
	node := newTracking(t)
	usage, err := readUsage(t.Context(), node.Do)
	if err != nil || usage.Limit == 0 || usage.Entries != uint64(count(t, node)) {
		t.Fatalf("%+v; %v", usage, err)
	}
	var reported levels
	watch := startTraffic(t, TrafficConfig{Service: dnsService, Exists: func(service.Key) bool { return true }, Changed: reported.add, Inside: node.Do, look: 20 * time.Millisecond})
	limit := int(usage.Limit)
	flows := crowdOf(limit - count(t, node))
	fill := func(percent int) {
		n := min(max(0, limit*percent/100-count(t, node)), len(flows))
		inject(t, node, service.IPv4, flows[:n])
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
		if send(node, uint16(2000+port)) != nil {
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

// newTracking makes a namespace whose packets to 10.96.0.10 lead to an endpoint.
func newTracking(t *testing.T) *netns.Namespace {
	t.Helper()
	node := newNode(t)
	if err := node.AddLinkRoute(netip.MustParsePrefix("10.0.0.0/8"), "lo"); err != nil {
		t.Fatal(err)
	}
	nft := exec.Command("nft", "-f", "-")
	nft.Stdin = strings.NewReader(`table ip t {
		chain out { type nat hook output priority -100; ip daddr 10.96.0.10 udp dport 53 dnat to 10.0.2.2:5353; }
		chain in { type nat hook prerouting priority -100; }
	}`)
	if out, err := netnstest.Output(node, nft); err != nil {
		t.Fatalf("nft: %v: %s (Debian package nftables)", err, out)
	}
	return node
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
func dnsService(_ service.Family, t Tuple) (service.Key, bool) {
	name := map[string]string{"10.96.0.10": "busy", "10.96.0.11": "calm"}[t.To.Addr().String()]
	return service.Key{Namespace: "shop", Name: name}, name != "" && t.Protocol == unix.IPPROTO_UDP
}

// crowdOf returns flows of shop/busy, nearly all of one client, and of every hundredth one of shop/calm.
func crowdOf(size int) []injected {
	flows := make([]injected, size)
	for i := range flows {
		service, endpoint, client := "10.96.0.10", "10.0.2.2", "192.0.2.2"
		if i%100 == 0 {
			service, endpoint, client = "10.96.0.11", "10.0.2.3", "192.0.2.3"
		}
		port := uint16(i / 50_000)
		from := netip.AddrPortFrom(netip.MustParseAddr(client), uint16(10_000+i%50_000))
		flows[i] = injected{
			unix.IPPROTO_UDP, from, netip.AddrPortFrom(netip.MustParseAddr(service), 53+port),
			netip.AddrPortFrom(netip.MustParseAddr(endpoint), 5353+port), from,
		}
	}
	return flows
}

// send sends one datagram from a port to the Service.
func send(node *netns.Namespace, port uint16) error {
	return node.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd) // nothing is left to write
		if err := unix.Bind(fd, &unix.SockaddrInet4{Port: int(port), Addr: [4]byte{127, 0, 0, 1}}); err != nil {
			return err
		}
		return unix.Sendto(fd, []byte("x"), 0, &unix.SockaddrInet4{Port: 53, Addr: [4]byte{10, 96, 0, 10}})
	})
}
