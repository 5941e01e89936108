// SPDX-License-Identifier: Apache-2.0

package writertest

import (
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

// Clients are a node and a host beside it, from which datagrams go to the node's UDP Services, each as a new
// connection. Tests compare what the node counts with what they sent.
type Clients struct {
	t      testing.TB
	family service.Family
	// Node is the node, and Client the host.
	Node, Client *netns.Namespace
	// Inside and Outside are addresses of the host, of which Ranges have the first, and Here is one of the node.
	Inside, Outside, Here netip.Addr
	Ranges                netip.Prefix
	// ports are the next source ports, by source and destination.
	ports map[[2]netip.AddrPort]int
}

// ClientPort is the node's interface to the host.
const ClientPort = "to-client"

// NewClients builds the network, which ends with the test.
func NewClients(t testing.TB, family service.Family) *Clients {
	t.Helper()
	n := netnstest.Build(t, netnstest.Plan{Cables: []netns.Cable{{
		Router: "node", Leaf: "client", Port: ClientPort,
		AtRouter: netns.Prefixes([]string{"203.0.113.1/24", "2001:db8::1/64"}[family]),
		AtLeaf:   netns.Prefixes([][]string{{"203.0.113.10/24", "203.0.113.130/24"}, {"2001:db8::10/64", "2001:db8::130/64"}}[family]...),
	}}})
	parse := func(v4, v6 string) netip.Addr { return netip.MustParseAddr([]string{v4, v6}[family]) }
	return &Clients{
		t: t, family: family, Node: n.Hosts["node"], Client: n.Hosts["client"], ports: map[[2]netip.AddrPort]int{},
		Inside: parse("203.0.113.10", "2001:db8::10"), Outside: parse("203.0.113.130", "2001:db8::130"),
		Here: parse("203.0.113.1", "2001:db8::1"), Ranges: netip.MustParsePrefix([]string{"203.0.113.0/25", "2001:db8::/121"}[family]),
	}
}

// Plus counts addresses on.
func Plus(a netip.Addr, n int) netip.Addr {
	for range n {
		a = a.Next()
	}
	return a
}

// ServiceAddress is the n-th ClusterIP, or from 128 on, VIP.
func (c *Clients) ServiceAddress(n int) netip.Addr {
	base := netip.MustParseAddr([]string{"172.20.0.1", "fd00:172:20::1"}[c.family])
	if n >= 128 {
		base, n = netip.MustParseAddr([]string{"198.51.100.1", "2001:db8:1::1"}[c.family]), n-128
	}
	return Plus(base, n)
}

// Endpoint is the n-th one.
func (c *Clients) Endpoint(n int) netip.AddrPort {
	return netip.AddrPortFrom(Plus(netip.MustParseAddr([]string{"10.77.0.1", "fd00:77::1"}[c.family]), n), endpointPort)
}

// ClusterIPOf is a frontend of the n-th Service.
func (c *Clients) ClusterIPOf(n int) service.Frontend {
	return service.Frontend{Addr: c.ServiceAddress(n), Port: servicePort, Protocol: service.UDP}
}

// VIPOf is another one.
func (c *Clients) VIPOf(n int) service.Frontend {
	return service.Frontend{Addr: c.ServiceAddress(128 + n), Port: servicePort, Protocol: service.UDP}
}

// NodePortOf is the third one.
func (c *Clients) NodePortOf(n int) service.Frontend {
	return service.Frontend{Port: uint16(30000 + n), Protocol: service.UDP}
}

// ViewOf returns the n-th Service with some of the endpoints. It may be changed.
func (c *Clients) ViewOf(n, from, to int, change func(*service.PortView)) *service.View {
	port := service.PortView{
		Name: "p", Protocol: service.UDP, Port: servicePort, NodePort: uint16(30000 + n), HasAny: to > from,
		ClusterIP: c.ServiceAddress(n), LoadBalancerVIPs: []netip.Addr{c.ServiceAddress(128 + n)},
	}
	for i := from; i < to; i++ {
		port.Cluster = append(port.Cluster, service.Endpoint{AddrPort: c.Endpoint(i)})
	}
	if change != nil {
		change(&port)
	}
	view := &service.View{Key: service.Key{Namespace: "ns", Name: fmt.Sprintf("svc%d", n)}}
	view.Ports[c.family] = []service.PortView{port}
	return view
}

// Send sends datagrams from an address to a frontend, each from another port. When the ports are used up, the node
// forgets all flows.
func (c *Clients) Send(count int, from netip.Addr, f service.Frontend) {
	c.t.Helper()
	to := netip.AddrPortFrom(f.Addr, f.Port)
	if !f.Addr.IsValid() {
		to = netip.AddrPortFrom(c.Here, f.Port)
	}
	at := c.Client
	if from == c.Here {
		at = c.Node
	}
	const least, most = 1024, 65000
	next := [2]netip.AddrPort{netip.AddrPortFrom(from, 0), to}
	check(c.t, at.Do(func() error {
		for range count {
			port := least + c.ports[next]%(most-least)
			if c.ports[next]++; c.ports[next]%(most-least) == 0 {
				if err := netnstest.FlushConntrack(c.Node); err != nil {
					return err
				}
			}
			if err := datagram(netip.AddrPortFrom(from, uint16(port)), to); err != nil {
				return err
			}
		}
		return nil
	}))
}

func datagram(from, to netip.AddrPort) error {
	domain, source, target := unix.AF_INET, unix.Sockaddr(&unix.SockaddrInet4{Port: int(from.Port())}), unix.Sockaddr(&unix.SockaddrInet4{Port: int(to.Port())})
	if from.Addr().Is4() {
		source.(*unix.SockaddrInet4).Addr, target.(*unix.SockaddrInet4).Addr = from.Addr().As4(), to.Addr().As4()
	} else {
		domain = unix.AF_INET6
		source = &unix.SockaddrInet6{Port: int(from.Port()), Addr: from.Addr().As16()}
		target = &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()}
	}
	fd, err := unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd) // nothing is written
	if err := unix.Bind(fd, source); err != nil {
		return err
	}
	if err := unix.Sendto(fd, []byte("x"), 0, target); err != nil && err != unix.EPERM { // what a rule refuses
		return err
	}
	return nil
}
