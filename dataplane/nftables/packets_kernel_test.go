package nftables_test

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/nftables"
	"github.com/sluice-proxy/sluice/service"
)

// backends are UDP sockets on addresses of the node, which count what comes.
type backends struct {
	*world
	view    *service.View
	sockets []net.PacketConn
}

var packetFrontend = netip.MustParseAddrPort("172.16.0.1:80")

// newBackends serves a Service whose endpoints are sockets.
func newBackends(t *testing.T, count int) *backends {
	t.Helper()
	b := &backends{world: newWorld(t, service.IPv4, nftables.WriterConfig{})}
	b.facts.Detect = service.PerFamily[service.LocalDetector]{}
	check(t, b.node.AddLinkRoute(netip.MustParsePrefix("172.16.0.0/12"), "lo"))
	b.view = plain(1, count, 0)
	port := &b.view.Ports[service.IPv4][0]
	port.Protocol = service.UDP
	for _, e := range port.Cluster {
		check(t, b.node.AddAddress("lo", netip.PrefixFrom(e.AddrPort.Addr(), 32)))
		socket, err := b.node.ListenPacket("udp4", e.AddrPort.String())
		check(t, err)
		b.sockets = append(b.sockets, socket)
		t.Cleanup(func() { check(t, socket.Close()) })
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

// received counts what has come to each backend since the last call. The kernel
// delivers within the call that sends.
func (b *backends) received() []int {
	b.Helper()
	counts := make([]int, len(b.sockets))
	buf := make([]byte, 16)
	for i, socket := range b.sockets {
		for {
			check(b, socket.SetReadDeadline(time.Now().Add(time.Millisecond)))
			if _, _, err := socket.ReadFrom(buf); err != nil {
				break
			}
			counts[i]++
		}
	}
	return counts
}

// TestEveryEndpointIsPickedEquallyOften sends new connections to a Service whose
// table has empty slots. A chi-squared value beyond the bound has a probability
// below one in a million if all are equal.
func TestEveryEndpointIsPickedEquallyOften(t *testing.T) {
	for _, c := range []struct {
		endpoints int
		bound     float64
	}{{3, 27.6}, {9, 42.7}, {17, 59.5}} {
		b := newBackends(t, c.endpoints)
		b.serve(b.view)
		b.commit()
		const perEndpoint = 400
		total := make([]int, c.endpoints)
		for i := range perEndpoint * c.endpoints {
			b.send(netip.Addr{})
			if i%100 == 99 { // before a receive buffer is full
				for at, n := range b.received() {
					total[at] += n
				}
			}
		}
		sum, squared := 0, 0.0
		for at, n := range b.received() {
			total[at] += n
			sum += total[at]
			off := float64(total[at] - perEndpoint)
			squared += off * off / perEndpoint
		}
		t.Logf("%d endpoints: %v, chi squared %.1f", c.endpoints, total, squared)
		if sum != perEndpoint*c.endpoints {
			t.Errorf("%d of %d datagrams came", sum, perEndpoint*c.endpoints)
		}
		if squared > c.bound {
			t.Errorf("%d endpoints were picked %v times: chi squared %.1f, want %.1f at most", c.endpoints, total, squared, c.bound)
		}
	}
}

// clients are addresses of the loopback interface.
func clients(count int) []netip.Addr {
	addrs := make([]netip.Addr, count)
	for i := range addrs {
		addrs[i] = netip.AddrFrom4([4]byte{127, 0, 1, byte(i + 1)})
	}
	return addrs
}

// choices gives the backend that each client reaches.
func (b *backends) choices(from []netip.Addr) []int {
	b.Helper()
	chosen := make([]int, len(from))
	for i, addr := range from {
		b.send(addr)
		chosen[i] = -1
		for at, n := range b.received() {
			if n > 0 {
				chosen[i] = at
			}
		}
	}
	return chosen
}

// TestAffinityLastsForItsTimeout: clients keep their endpoint while they come back
// in time, also when others come and go, and are forgotten after it.
func TestAffinityLastsForItsTimeout(t *testing.T) {
	b := newBackends(t, 8)
	port := &b.view.Ports[service.IPv4][0]
	port.AffinitySeconds = 2
	b.serve(b.view)
	b.commit()
	from := clients(24)
	first := b.choices(from)
	for range 3 { // each new connection starts the time again
		time.Sleep(time.Second)
		for i, at := range b.choices(from) {
			if at != first[i] {
				t.Errorf("client %v went from endpoint %d to %d", from[i], first[i], at)
			}
		}
	}

	all := port.Cluster
	port.Cluster = all[:6]
	b.serve(b.view)
	b.commit()
	for i, at := range b.choices(from) {
		if at >= 6 || first[i] < 6 && at != first[i] {
			t.Errorf("when endpoints 6 and 7 left, client %v went from %d to %d", from[i], first[i], at)
		}
	}
	port.Cluster = all
	b.serve(b.view)
	b.commit()

	before := b.choices(from)
	time.Sleep(2*time.Second + 300*time.Millisecond)
	moved := 0
	for i, at := range b.choices(from) {
		if at != before[i] {
			moved++
		}
	}
	if moved < len(from)/2 {
		t.Errorf("%d of %d clients moved after the timeout, want about seven eighths", moved, len(from))
	}
}

// TestARemovedEndpointGetsNothing after the commit that removed it.
func TestARemovedEndpointGetsNothing(t *testing.T) {
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
		sum := 0
		for at, n := range b.received() {
			sum += n
			if at == gone && n > 0 {
				t.Errorf("endpoint %d got %d connections after it was removed", gone, n)
			}
		}
		if sum != 60 {
			t.Errorf("without endpoint %d, %d of 60 datagrams came", gone, sum)
		}
	}
}
