// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	"github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// backends are UDP sockets on addresses of the node that count datagrams.
type backends struct {
	*world
	view    *service.View
	sockets []net.PacketConn
	came    chan arrival
}

// arrival is a datagram at a backend.
type arrival struct {
	at   int
	data [16]byte
}

var packetFrontend = netip.MustParseAddrPort("172.16.0.1:80")

// newBackends serves a Service whose endpoints are sockets.
func newBackends(t testing.TB, count int) *backends {
	t.Helper()
	b := &backends{world: newWorld(t, service.IPv4, kernel.WriterConfig{}), came: make(chan arrival, 10_000)}
	b.facts.Detect = service.PerFamily[service.LocalDetector]{}
	check(t, b.node.AddLinkRoute(netip.MustParsePrefix("172.16.0.0/12"), "lo"))
	b.view = plain(1, count, 0)
	port := &b.view.Ports[service.IPv4][0]
	port.Protocol = service.UDP
	for i, e := range port.Cluster {
		check(t, b.node.AddAddress("lo", netip.PrefixFrom(e.AddrPort.Addr(), 32)))
		socket, err := b.node.ListenPacket("udp4", e.AddrPort.String())
		check(t, err)
		b.sockets = append(b.sockets, socket)
		t.Cleanup(func() { check(t, socket.Close()) })
		go func() {
			for a := (arrival{at: i}); ; b.came <- a {
				if _, _, err := socket.ReadFrom(a.data[:]); err != nil {
					return // closed
				}
			}
		}()
	}
	return b
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// send sends one datagram from an address, each time by a connection of its own.
func (b *backends) send(from netip.Addr) {
	b.Helper()
	check(b, b.node.Do(func() error {
		conn, err := net.DialUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0)), net.UDPAddrFromAddrPort(packetFrontend))
		if err != nil {
			return err
		}
		if _, err := conn.Write([]byte("hello")); err != nil {
			return err
		}
		return conn.Close()
	}))
}

// next waits for a datagram.
func (b *backends) next() arrival {
	b.Helper()
	select {
	case a := <-b.came:
		return a
	case <-time.After(testenv.Patience):
		b.Fatalf("no datagram came within %v", testenv.Patience)
		return arrival{}
	}
}

// await waits for so many datagrams, and returns the count of each backend.
func (b *backends) await(sent int) []int {
	b.Helper()
	counts := make([]int, len(b.sockets))
	for range sent {
		counts[b.next().at]++
	}
	return counts
}

// clients are addresses of the loopback interface.
func clients(count int) []netip.Addr {
	addrs := make([]netip.Addr, count)
	for i := range addrs {
		addrs[i] = netip.AddrFrom4([4]byte{127, 0, 1, byte(i + 1)})
	}
	return addrs
}

// choices returns the backend that each client reaches.
func (b *backends) choices(from []netip.Addr) []int {
	b.Helper()
	chosen := make([]int, len(from))
	for i, addr := range from {
		b.send(addr)
		chosen[i] = slices.Index(b.await(1), 1)
	}
	return chosen
}

// sticky serves the Service with affinity for some seconds.
func (b *backends) sticky(seconds int) *service.PortView {
	port := &b.view.Ports[service.IPv4][0]
	port.AffinitySeconds = seconds
	b.serve(b.view)
	b.commit()
	return port
}

// TestAffinity_SurvivesOtherChanges: clients keep their endpoint while other endpoints are added and removed, and after
// a change of the timeout.
func TestAffinity_SurvivesOtherChanges(t *testing.T) {
	b := newBackends(t, 8)
	port := b.sticky(600)
	from := clients(24)
	first := b.choices(from)
	all := port.Cluster
	port.Cluster = all[:6]
	b.sticky(600)
	for i, at := range b.choices(from) {
		if at >= 6 || first[i] < 6 && at != first[i] {
			t.Errorf("when endpoints 6 and 7 left, client %v went from %d to %d", from[i], first[i], at)
		}
	}
	second := b.choices(from)
	port.Cluster = all
	b.sticky(900)
	if third := b.choices(from); !slices.Equal(third, second) {
		t.Errorf("when endpoints came and the timeout changed, clients went from %v to %v", second, third)
	}
}

// TestAffinity_LastsForTimeout: affinity lasts for its timeout, counted from the last new connection.
func TestAffinity_LastsForTimeout(t *testing.T) {
	const timeout = time.Second
	b := newBackends(t, 8)
	b.sticky(int(timeout.Seconds()))
	from := clients(24)
	last, first := time.Now(), b.choices(from)
	for range 5 { // together longer than the timeout
		time.Sleep(timeout * 3 / 10)
		began, now := time.Now(), b.choices(from)
		if time.Since(last) < timeout && !slices.Equal(now, first) {
			t.Errorf("clients went from %v to %v within the timeout", first, now)
		}
		last, first = began, now
	}
	time.Sleep(timeout)
	moved := 0
	for i, at := range b.choices(from) {
		if at != first[i] {
			moved++
		}
	}
	if moved < len(from)/2 {
		t.Errorf("%d of %d clients moved after the timeout, want about seven eighths", moved, len(from))
	}
}

// TestAffinity_MoreClientsThanRemembered: clients beyond the remembered number, of one list or on the node, are served
// without affinity.
func TestAffinity_MoreClientsThanRemembered(t *testing.T) {
	for name, kind := range map[string]string{"of a list": "map clients-", "on the node": "set remembered-"} {
		t.Run(name, func(t *testing.T) {
			b := newBackends(t, 8)
			b.sticky(600)
			table := b.nft("", "list", "table", b.table())
			const few = 2
			small := regexp.MustCompile(`(`+kind+`\S+ \{[^}]*\bsize )262144\b`).ReplaceAllString(table, fmt.Sprint("${1}", few))
			if small == table {
				t.Fatalf("nothing has its size in %s", table)
			}
			b.nft("delete table "+b.table()+"\n"+small, "-f", "-")
			from := clients(24)
			first := b.choices(from)
			moved := make([]bool, len(from))
			for range 12 {
				for i, at := range b.choices(from) {
					moved[i] = moved[i] || at != first[i]
				}
			}
			stayed := 0
			for _, m := range moved {
				if !m {
					stayed++
				}
			}
			if stayed != few {
				t.Errorf("%d of %d clients stayed with their endpoint, want %d", stayed, len(from), few)
			}
		})
	}
}

// TestAffinity_NodeMemoryCoversEveryList: the node's memory contains each client of a map with its frontend, for as
// long as the map does. So its size limits the sum of all maps.
func TestAffinity_NodeMemoryCoversEveryList(t *testing.T) {
	b := newBackends(t, 4)
	b.sticky(600)
	from := clients(9)
	b.choices(from)
	list := func(set string) string { return b.nft("", "list", "set", "ip", render.TableName, set) }
	held := 0
	for _, memory := range []string{"-a", "-b", "-c", "-d"} {
		text := list(render.SetName("remembered") + memory)
		for _, client := range from {
			if strings.Contains(text, client.String()+" . "+packetFrontend.Addr().String()+" . udp . 80 timeout 10m expires 9m") {
				held++
			}
		}
	}
	if held != len(from) {
		t.Errorf("the node's memory holds %d of %d clients", held, len(from))
	}
}

// TestWriter_RemovedEndpointGetsNothing: a removed endpoint gets no connection after the commit that removed it.
func TestWriter_RemovedEndpointGetsNothing(t *testing.T) {
	b := newBackends(t, 10)
	port := &b.view.Ports[service.IPv4][0]
	all := port.Cluster
	for gone := range all {
		port.Cluster = append(append([]service.Endpoint(nil), all[:gone]...), all[gone+1:]...)
		b.serve(b.view)
		b.commit()
		from := clients(gone + 1)[gone] // conntrack remembers the flows of others
		for range 60 {
			b.send(from)
		}
		if n := b.await(60)[gone]; n > 0 {
			t.Errorf("endpoint %d got %d connections after it was removed", gone, n)
		}
	}
}
