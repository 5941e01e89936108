// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	"github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/dataplane/slots"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/testenv"
	"github.com/sluice-proxy/sluice/test/writertest"
)

// sources returns distinct addresses of the loopback interface.
func sources(count int) []netip.Addr {
	all := make([]netip.Addr, count)
	for i := range all {
		all[i] = netip.AddrFrom4([4]byte{127, byte(1 + i>>16), byte(i >> 8), byte(i)})
	}
	return all
}

// balanced serves the Service with an algorithm.
func (b *backends) balanced(by service.Balancing) {
	b.view.Balancing = by
	b.serve(b.view)
	b.commit()
}

// chosen sends a datagram from each client, in rounds that fit into receive buffers, and returns the backend of each
// one and the port that it used.
func (b *backends) chosen(from []netip.AddrPort, send sender) (at []int, ports []uint16) {
	b.Helper()
	at, ports = make([]int, len(from)), make([]uint16, len(from))
	round := 50 * len(b.sockets)
	for begin := 0; begin < len(from); begin += round {
		part := from[begin:min(begin+round, len(from))]
		waiting := map[uint32]bool{}
		check(b, b.node.Do(func() error {
			for i, client := range part {
				waiting[uint32(begin+i)] = true
				port, err := send(client, uint32(begin+i))
				if err != nil {
					return err
				}
				ports[begin+i] = port
			}
			return nil
		}))
		for len(waiting) > 0 {
			a := b.next()
			i := binary.BigEndian.Uint32(a.data[:])
			if !waiting[i] {
				b.Fatalf("a datagram of client %d", i)
			}
			at[i] = a.at
			delete(waiting, i)
		}
	}
	return at, ports
}

// sender sends a datagram with a number from an address, and from its port unless that is 0. It returns the port.
type sender func(client netip.AddrPort, number uint32) (port uint16, err error)

// connecting is a sender with a socket for each datagram.
func connecting(client netip.AddrPort, number uint32) (port uint16, err error) {
	conn, err := net.DialUDP("udp4", net.UDPAddrFromAddrPort(client), net.UDPAddrFromAddrPort(packetFrontend))
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	_, err = conn.Write(binary.BigEndian.AppendUint32(nil, number))
	return conn.LocalAddr().(*net.UDPAddr).AddrPort().Port(), err
}

// oneSocket returns a sender that needs one socket, for clients that differ in their addresses.
func (b *backends) oneSocket() sender {
	socket, err := b.node.ListenPacket("udp4", "0.0.0.0:0")
	check(b, err)
	b.Cleanup(func() { check(b, socket.Close()) })
	return func(client netip.AddrPort, number uint32) (uint16, error) {
		source := unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: client.Addr().As4()})
		_, _, err := socket.(*net.UDPConn).WriteMsgUDPAddrPort(binary.BigEndian.AppendUint32(nil, number), source, packetFrontend)
		return 0, err
	}
}

func anyPorts(addrs []netip.Addr) []netip.AddrPort {
	all := make([]netip.AddrPort, len(addrs))
	for i, a := range addrs {
		all[i] = netip.AddrPortFrom(a, 0)
	}
	return all
}

// TestBalancing_NodesAgreeOnEndpoint sends from 10,000 clients through two nodes. Each client reaches the same
// endpoint, which is the one that package slots predicts. The second node starts with other endpoints.
func TestBalancing_NodesAgreeOnEndpoint(t *testing.T) {
	const count = 10_000
	from := sources(count)
	const endpoints, seed = 10, 4711
	var first []int
	for node := range 2 {
		b := newBackends(t, endpoints)
		b.renderer = render.NewRenderer(service.IPv4, render.Options{MasqueradeBit: 14, Seed: seed})
		port := &b.view.Ports[service.IPv4][0]
		all := port.Cluster
		if node == 1 {
			port.Cluster = all[3:7]
			b.balanced(service.ConnectionHash)
			port.Cluster = all
		}
		b.balanced(service.SourceHash)
		at, _ := b.chosen(anyPorts(from), b.oneSocket())
		if node == 0 {
			first = at
		}
		table := slots.Table(all, true, false)
		counts := make([]int, endpoints)
		for i, n := range at {
			counts[n]++
			if n != first[i] || n != table[slots.Slot(netip.AddrPortFrom(from[i], 0), len(table), seed)] {
				t.Fatalf("node %d sends %v to endpoint %d, the first node to %d; predicted %d", node, from[i], n, first[i],
					table[slots.Slot(netip.AddrPortFrom(from[i], 0), len(table), seed)])
			}
		}
		t.Logf("node %d: clients by endpoint %v", node, counts)
		for _, n := range counts {
			if n < count/endpoints*8/10 || n > count/endpoints*12/10 {
				t.Errorf("%d of %d clients at one of %d endpoints", n, count, endpoints)
			}
		}
	}
}

// TestBalancing_ConnectionHashSpreadsClient: the connection hash spreads the connections of one client by their ports,
// as package slots predicts.
func TestBalancing_ConnectionHashSpreadsClient(t *testing.T) {
	b := newBackends(t, 7)
	b.balanced(service.ConnectionHash)
	client := netip.MustParseAddr("127.0.0.1")
	at, ports := b.chosen(anyPorts(slices.Repeat([]netip.Addr{client}, 3000)), connecting)
	table := slots.Table(b.view.Ports[service.IPv4][0].Cluster, true, false)
	counts := make([]int, 7)
	for i, n := range at {
		counts[n]++
		if want := table[slots.Slot(netip.AddrPortFrom(client, ports[i]), len(table), 0)]; n != want {
			t.Fatalf("port %d went to endpoint %d, want %d", ports[i], n, want)
		}
	}
	t.Log(counts)
	if slices.Min(counts) < 300 {
		t.Errorf("connections of one client by endpoint: %v", counts)
	}
}

// TestBalancing_HashesOverIPv6: IPv6 keys of 16 and 20 bytes hash as package slots predicts.
func TestBalancing_HashesOverIPv6(t *testing.T) {
	for _, by := range []service.Balancing{service.SourceHash, service.ConnectionHash} {
		w := newWorld(t, service.IPv6, kernel.WriterConfig{})
		clusterIP := netip.MustParseAddrPort("[fd00:172::1]:80")
		check(t, w.node.AddLinkRoute(netip.MustParsePrefix("fd00:172::/32"), "lo"))
		port := service.PortView{Name: "http", Protocol: service.UDP, Port: 80, HasAny: true, ClusterIP: clusterIP.Addr()}
		var sockets []net.PacketConn
		for i := range byte(4) {
			at := netip.AddrPortFrom(netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x10, 15: 1 + i}), 8080)
			check(t, w.node.AddAddress("lo", netip.PrefixFrom(at.Addr(), 128)))
			socket, err := w.node.ListenPacket("udp6", at.String())
			check(t, err)
			t.Cleanup(func() { check(t, socket.Close()) })
			sockets = append(sockets, socket)
			port.Cluster = append(port.Cluster, service.Endpoint{AddrPort: at})
		}
		w.serve(&service.View{
			Key: service.Key{Namespace: "ns", Name: "svc6"}, Balancing: by, Ports: service.PerFamily[[]service.PortView]{service.IPv6: {port}},
		})
		w.commit()
		table := slots.Table(port.Cluster, true, false)
		for i := range byte(40) {
			client := netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x20, 14: i, 15: 1})
			check(t, w.node.AddAddress("lo", netip.PrefixFrom(client, 128)))
			var from netip.AddrPort
			check(t, w.node.Do(func() error {
				conn, err := net.DialUDP("udp6", net.UDPAddrFromAddrPort(netip.AddrPortFrom(client, 0)), net.UDPAddrFromAddrPort(clusterIP))
				if err != nil {
					return err
				}
				from = conn.LocalAddr().(*net.UDPAddr).AddrPort()
				_, err = conn.Write([]byte("hello"))
				return errors.Join(err, conn.Close())
			}))
			if by == service.SourceHash {
				from = netip.AddrPortFrom(client, 0)
			}
			at := sockets[table[slots.Slot(from, len(table), 0)]]
			check(t, at.SetReadDeadline(time.Now().Add(testenv.Patience)))
			if _, _, err := at.ReadFrom(make([]byte, 16)); err != nil {
				t.Fatalf("%v: %v did not reach the endpoint of its slot: %v", by, from, err)
			}
		}
	}
}

// TestBalancing_RoundRobinTakesTurns: round robin selects the endpoints one after the other, also while another Service
// has connections in between.
func TestBalancing_RoundRobinTakesTurns(t *testing.T) {
	b := newBackends(t, 5)
	other := plain(2, 5, 0)
	other.Ports[service.IPv4][0].Protocol, other.Balancing = service.UDP, service.RoundRobin
	other.Ports[service.IPv4][0].Cluster = b.view.Ports[service.IPv4][0].Cluster
	b.serve(other)
	b.balanced(service.RoundRobin)
	var order []int
	for i, client := range anyPorts(sources(50)) { // a port that occurs again would be no new connection
		at, _ := b.chosen([]netip.AddrPort{client}, connecting)
		order = append(order, at[0])
		if i >= 5 && order[i] != order[i-5] {
			t.Fatalf("turns: %v", order)
		}
		check(t, b.node.Do(func() error {
			conn, err := net.Dial("udp4", netip.AddrPortFrom(other.Ports[service.IPv4][0].ClusterIP, 80).String())
			if err == nil {
				_, err = conn.Write([]byte("other"))
			}
			if err != nil {
				return err
			}
			return conn.Close()
		}))
		b.await(1)
	}
	if slices.Sort(order[:5]); !slices.Equal(order[:5], []int{0, 1, 2, 3, 4}) {
		t.Errorf("the first turns reach %v", order[:5])
	}
}

// TestBalancing_NewAlgorithmLosesNothing: changes of the algorithm and the weights of a used Service reject at most one
// datagram each, and never send one untranslated. Lookups in maps use the generation of their instant, so a packet
// whose evaluation meets the change can miss the old elements in the old chain.
func TestBalancing_NewAlgorithmLosesNothing(t *testing.T) {
	b := newBackends(t, 9)
	b.balanced(service.ConnectionHash)
	from := anyPorts(sources(50))
	port := &b.view.Ports[service.IPv4][0]
	for round := range 40 {
		if round%3 == 2 {
			port.Cluster = slices.Clone(port.Cluster)
			port.Cluster[round%9].Weight = uint16(round)
		}
		b.view.Balancing = service.Balancing(round % len(service.Balancings()))
		b.serve(b.view)
		b.meets(from)
		if round%10 == 9 {
			if drift := b.audit(); drift.Any() {
				t.Fatalf("%+v", drift)
			}
			b.nft("", "list", "table", b.table())
		}
	}
	// At rest, nothing is written.
	b.serve(b.view)
	if batch := b.ledger.Plan(); batch != nil && len(batch.Changes) > 0 {
		t.Errorf("the same Service again writes %d changes", len(batch.Changes))
	}
}

// meets writes the planned changes while each client sends a datagram.
func (b *backends) meets(from []netip.AddrPort) {
	b.Helper()
	batch, done := b.ledger.Plan(), make(chan struct{})
	go func() {
		defer close(done)
		b.ledger.Settle(batch, b.writer.Write(b.Context(), batch))
	}()
	defer func() { <-done }()
	rejected := 0
	b.chosen(from, func(client netip.AddrPort, number uint32) (uint16, error) { // fails if one gets lost
		port, err := connecting(client, number)
		if errors.Is(err, unix.EPERM) && rejected == 0 {
			rejected++
			return connecting(client, number)
		}
		return port, err
	})
}

// TestBalancing_TextAndWriterAgree is TestTextAndWriter_Agree for each algorithm, on all kinds of frontends.
func TestBalancing_TextAndWriterAgree(t *testing.T) {
	for _, family := range testenv.Variants(service.IPv4, service.IPv6) {
		for _, name := range service.Balancings() {
			t.Run(family.String()+"/"+name, func(t *testing.T) {
				t.Parallel()
				f := writertest.NewFixture(family)
				spec := f.Variety()[0]
				spec.Balancing, _ = service.ParseBalancing(name)
				spec.Ports[0].NodePort = 30080
				spec.ExternalIPs[family], spec.ExternalLocal = []netip.Addr{f.A}, true
				heavy := f.Slice(f.B)
				heavy.Name, heavy.Weight = "heavy", 3
				var r kernel.Recorder
				written := newWorld(t, family, recording(&r))
				view := service.Resolve(spec.Key, &spec, []*service.Slice{f.Slice(f.A), heavy}, &written.facts)
				objects := distinct(append(written.renderer.Node(&written.facts), written.renderer.Service(t.Context(), &view, &written.facts)...))
				written.serve(&view)
				written.commit()
				compare(t, written.read(), objects, "what the writer wrote")
				written.loadsAgain("nft", objects, r.Sent...)
			})
		}
	}
}

// BenchmarkNewConnection measures the cost of a client's first datagram for each algorithm.
func BenchmarkNewConnection(b *testing.B) {
	from := sources(1 << 20)
	for by, name := range service.Balancings() {
		b.Run(name, func(b *testing.B) {
			w := newBackends(b, 10)
			w.balanced(service.Balancing(by))
			send, sent := w.oneSocket(), 0
			check(b, w.node.Do(func() error {
				for b.Loop() {
					if _, err := send(netip.AddrPortFrom(from[sent%len(from)], 0), 0); err != nil {
						return err
					}
					sent++
				}
				return nil
			}))
		})
	}
}
