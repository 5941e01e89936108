package kernel_test

import (
	"context"
	"flag"
	"net/netip"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	"github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// connections is how many connections the counters are compared with, in each family. 1,000,000 take some
// minutes.
var connections = flag.Int("connections", 4000, "connections to count, in each family")

// counted is a node with clients that know how many connections they opened and how they ended.
type counted struct {
	*world
	client *netns.Namespace
	tally  *kernel.Tally
	// inside and outside are addresses of the client, here is one of the node.
	inside, outside, here netip.Addr
	ranges                netip.Prefix
	// ports are the next source ports, by source and destination.
	ports map[[2]netip.AddrPort]int
	want  map[service.Frontend]traffic.At
	// base is the reading that the others are compared with, begun what was wanted then.
	base  traffic.Reading
	begun map[service.Frontend]traffic.At
	// unallocated is what was sent to no Service's ClusterIP, at all and at the base.
	unallocated, unallocatedBegun uint64
}

func newCounted(t *testing.T, family service.Family) *counted {
	t.Helper()
	n := netnstest.Build(t, netns.Plan{Cables: []netns.Cable{{
		Router: "node", Leaf: "client", Port: "to-client",
		AtRouter: netns.Prefixes([]string{"203.0.113.1/24", "2001:db8::1/64"}[family]),
		AtLeaf:   netns.Prefixes([][]string{{"203.0.113.10/24", "203.0.113.130/24"}, {"2001:db8::10/64", "2001:db8::130/64"}}[family]...),
	}}})
	c := &counted{client: n.Hosts["client"], tally: kernel.NewTally(), ports: map[[2]netip.AddrPort]int{}, want: map[service.Frontend]traffic.At{}}
	parse := func(v4, v6 string) netip.Addr { return netip.MustParseAddr([]string{v4, v6}[family]) }
	c.inside, c.outside, c.here = parse("203.0.113.10", "2001:db8::10"), parse("203.0.113.130", "2001:db8::130"), parse("203.0.113.1", "2001:db8::1")
	c.ranges = netip.MustParsePrefix([]string{"203.0.113.0/25", "2001:db8::/121"}[family])
	c.world = newWorldOn(t, n.Hosts["node"], family, kernel.WriterConfig{Tally: c.tally})
	c.renderer = render.NewRenderer(family, render.Options{MasqueradeBit: 14, CountEndpoints: true})
	c.facts.ServiceCIDRs[family] = []netip.Prefix{netip.PrefixFrom(c.address(0), []int{16, 112}[family]).Masked()}
	c.want0()
	// Packets that no rule translates or refuses end here.
	check(t, c.node.AddLinkRoute(c.facts.ServiceCIDRs[family][0], "lo"))
	check(t, c.node.AddLinkRoute(netip.PrefixFrom(c.address(128), []int{24, 112}[family]).Masked(), "lo"))
	for i := range 40 {
		check(t, c.node.AddAddress("lo", netip.PrefixFrom(c.endpoint(i).Addr(), c.endpoint(i).Addr().BitLen())))
	}
	return c
}

// want0 wants the node's own objects.
func (c *counted) want0() { c.world.want(service.Node, c.renderer.Node(&c.facts)) }

// address is the n-th ClusterIP, or from 128 on, VIP.
func (c *counted) address(n int) netip.Addr {
	base := netip.MustParseAddr([]string{"172.20.0.1", "fd00:172:20::1"}[c.family])
	if n >= 128 {
		base, n = netip.MustParseAddr([]string{"198.51.100.1", "2001:db8:1::1"}[c.family]), n-128
	}
	return plus(base, n)
}

func (c *counted) endpoint(n int) netip.AddrPort {
	return netip.AddrPortFrom(plus(netip.MustParseAddr([]string{"10.77.0.1", "fd00:77::1"}[c.family]), n), 8080)
}

// serveUDP serves a Service with a ClusterIP, a VIP and a node port, and some endpoints.
func (c *counted) serveUDP(n, from, to int, change func(*service.PortView)) {
	port := service.PortView{
		Name: "p", Protocol: service.UDP, Port: 80, NodePort: uint16(30000 + n), HasAny: to > from,
		ClusterIP: c.address(n), LoadBalancerVIPs: []netip.Addr{c.address(128 + n)},
	}
	for i := from; i < to; i++ {
		port.Cluster = append(port.Cluster, service.Endpoint{AddrPort: c.endpoint(i)})
	}
	if change != nil {
		change(&port)
	}
	view := &service.View{Key: plain(n, 0, 0).Key}
	view.Ports[c.family] = []service.PortView{port}
	c.serve(view)
}

func (c *counted) clusterIP(n int) service.Frontend {
	return service.Frontend{Addr: c.address(n), Port: 80, Protocol: service.UDP}
}

func (c *counted) vip(n int) service.Frontend {
	return service.Frontend{Addr: c.address(128 + n), Port: 80, Protocol: service.UDP}
}

func (c *counted) nodePort(n int) service.Frontend {
	return service.Frontend{Port: uint16(30000 + n), Protocol: service.UDP}
}

// The outcomes of connections.
var (
	connected  = traffic.At{Counts: traffic.Counts{Connections: 1}}
	noEndpoint = traffic.At{Refused: traffic.Refusals{traffic.NoEndpoints: 1}}
	notAllowed = traffic.At{Refused: traffic.Refusals{traffic.SourceRange: 1}}
)

// open opens connections to a frontend from an address, all of which end the same way.
func (c *counted) open(count int, from netip.Addr, f service.Frontend, each traffic.At) {
	c.Helper()
	to := f.Addr
	if !to.IsValid() {
		to = c.here
	}
	c.datagrams(count, from, netip.AddrPortFrom(to, f.Port))
	for range count {
		c.want[f] = c.want[f].Plus(each)
	}
}

// datagrams sends datagrams, each from another port. When the ports are used up, the node forgets all flows.
func (c *counted) datagrams(count int, from netip.Addr, to netip.AddrPort) {
	c.Helper()
	at := c.client
	if from == c.here {
		at = c.node
	}
	const least, most = 1024, 65000
	next := [2]netip.AddrPort{netip.AddrPortFrom(from, 0), to}
	check(c, at.Do(func() error {
		for range count {
			port := least + c.ports[next]%(most-least)
			if c.ports[next]++; c.ports[next]%(most-least) == 0 {
				if err := c.node.Do(c.flush); err != nil {
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
	defer unix.Close(fd) //nolint:errcheck // nothing is written
	if err := unix.Bind(fd, source); err != nil {
		return err
	}
	if err := unix.Sendto(fd, []byte("x"), 0, target); err != nil && err != unix.EPERM { // what a rule drops
		return err
	}
	return nil
}

// flush makes the kernel forget all flows of the namespace.
func (c *counted) flush() error {
	const deleteFlows = 2 // IPCTNL_MSG_CT_DELETE
	socket, err := netlink.Open(netlink.Config{Protocol: unix.NETLINK_NETFILTER})
	if err != nil {
		return err
	}
	defer socket.Close() //nolint:errcheck // the flush has its own error
	b, mark := netlink.BeginNetfilter(nil, unix.NFNL_SUBSYS_CTNETLINK, deleteFlows, unix.NLM_F_ACK, 0)
	return socket.Exchange(netlink.Finish(b, mark), func(_ int, a netlink.Answer) {
		if a.Errno != 0 {
			c.Errorf("flush flows: %v", a.Errno)
		}
	})
}

func (c *counted) traffic() traffic.Reading {
	c.Helper()
	reading, err := c.writer.Traffic(c.Context())
	check(c, err)
	return reading
}

// begin begins to compare.
func (c *counted) begin() {
	c.base, c.unallocatedBegun = c.traffic(), c.unallocated
	c.begun = make(map[service.Frontend]traffic.At)
	for f, at := range c.want {
		c.begun[f] = at
	}
}

// compare compares what was counted since the base. moved says whether counts may have been lost.
func (c *counted) compare(when string, moved bool) traffic.Reading {
	c.Helper()
	got := c.traffic()
	if same := got.Since.Equal(c.base.Since); same == moved {
		c.Errorf("%s: the counts are complete since %v, before since %v", when, got.Since, c.base.Since)
	}
	if moved {
		c.begin()
		return got
	}
	for f, at := range c.want {
		now, before := got.Frontends[f], c.base.Frontends[f]
		if got, want := now.Connections-before.Connections, at.Connections-c.begun[f].Connections; got != want {
			c.Errorf("%s: %v: %d connections are counted, want %d", when, f, got, want)
		}
		for reason := range traffic.Reasons {
			if got, want := now.Refused[reason]-before.Refused[reason], at.Refused[reason]-c.begun[f].Refused[reason]; got != want {
				c.Errorf("%s: %v: %d refusals are counted (%v), want %d", when, f, got, reason, want)
			}
		}
	}
	if n, want := got.Unallocated-c.base.Unallocated, c.unallocated-c.unallocatedBegun; n != want {
		c.Errorf("%s: %d packets to unallocated ClusterIPs are counted, want %d", when, n, want)
	}
	return got
}

// sumOf returns the connections to the endpoints of a Service.
func (c *counted) sumOf(r traffic.Reading, n int) (sum uint64) {
	for pair, counts := range r.Endpoints {
		if f := pair.Frontend; f == c.clusterIP(n) || f == c.vip(n) || f == c.nodePort(n) {
			sum += counts.Connections
		}
	}
	return sum
}

// wantOf returns the connections to a Service.
func (c *counted) wantOf(n int) uint64 {
	return c.want[c.clusterIP(n)].Connections + c.want[c.vip(n)].Connections + c.want[c.nodePort(n)].Connections
}

// The Services of the test.
const (
	ordinary = iota
	ranged   // a VIP with source ranges
	empty    // without endpoints
	elsewhere
	sticky
	inner
)

// round opens connections of all kinds.
func (c *counted) round(count int) {
	c.Helper()
	for _, from := range []netip.Addr{c.inside, c.outside, c.here} {
		for _, n := range []int{ordinary, ranged, sticky} {
			c.open(count, from, c.clusterIP(n), connected)
			c.open(count, from, c.nodePort(n), connected)
		}
		c.open(count, from, c.vip(ordinary), connected)
		for _, f := range []service.Frontend{c.clusterIP(empty), c.vip(empty), c.nodePort(empty), c.clusterIP(inner)} {
			c.open(count, from, f, noEndpoint)
		}
		atVIP, fromElsewhere := notAllowed, noEndpoint
		switch from {
		case c.inside:
			atVIP = connected
		case c.here:
			fromElsewhere = connected // the policy is for others
			atVIP = connected         // its address is in the ranges
		}
		c.open(count, from, c.vip(ranged), atVIP)
		c.open(count, from, c.vip(sticky), atVIP)
		c.open(count, from, c.vip(elsewhere), fromElsewhere)
		c.open(count, from, c.nodePort(elsewhere), fromElsewhere)
		c.datagrams(count, from, netip.AddrPortFrom(c.address(100), 80))
		c.unallocated += uint64(count)
	}
}

func (c *counted) serveAll() {
	limit := func(p *service.PortView) { p.SourceRanges = []netip.Prefix{c.ranges} }
	c.serveUDP(ordinary, 0, 3, nil)
	c.serveUDP(ranged, 0, 5, limit)
	c.serveUDP(empty, 0, 0, nil)
	c.serveUDP(elsewhere, 0, 4, func(p *service.PortView) { p.ExternalLocal = true })
	c.serveUDP(sticky, 10, 14, func(p *service.PortView) { limit(p); p.AffinitySeconds = 60 })
	c.serveUDP(inner, 0, 3, func(p *service.PortView) { p.InternalLocal = true })
	c.commit()
}

// TestCountersTellTheTruth: clients that know what they did agree with the counters, while endpoints and
// frontends are replaced, another process changes the rules, and the writer is another one.
func TestCountersTellTheTruth(t *testing.T) {
	for _, family := range testenv.Variants(service.IPv4, service.IPv6) {
		t.Run(family.String(), func(t *testing.T) {
			c := newCounted(t, family)
			count := max(1, *connections/500)
			c.serveAll()
			watching, stop := context.WithCancel(t.Context())
			var watch sync.WaitGroup
			watch.Go(func() { _ = c.writer.Watch(watching, func(dataplane.ForeignProcess) {}) })
			c.begin()
			c.round(count)
			got := c.compare("at first", false)
			for _, n := range []int{ordinary, ranged, sticky, elsewhere} {
				if sum, want := c.sumOf(got, n), c.wantOf(n); sum != want {
					t.Errorf("the endpoints of Service %d have %d connections, want %d", n, sum, want)
				}
			}
			c.replacements(count)
			c.whileSending(count)
			c.repair(count)
			stop() // the next writer is another process to this one
			watch.Wait()
			c.restarts(count)
		})
	}
}

// replacements changes what Services have, and their policies.
func (c *counted) replacements(count int) {
	c.Helper()
	for to := 4; to < 20; to += 3 { // slots move, and frontends go to other chains
		c.serveUDP(ordinary, 0, to, nil)
		c.serveUDP(sticky, 10, 10+to, func(p *service.PortView) {
			p.SourceRanges, p.AffinitySeconds = []netip.Prefix{c.ranges}, 60
		})
		c.commit()
		c.round(count)
	}
	got := c.compare("more endpoints", false)
	for _, n := range []int{ordinary, sticky} {
		if sum, want := c.sumOf(got, n), c.wantOf(n); sum != want {
			c.Errorf("with more endpoints, those of Service %d have %d connections, want %d", n, sum, want)
		}
	}
	local := func(p *service.PortView) { p.ExternalLocal, p.Local = true, p.Cluster[:1] }
	c.serveUDP(elsewhere, 0, 4, local)
	c.serveUDP(ranged, 0, 5, nil)
	c.serveUDP(empty, 0, 2, nil)
	c.serveUDP(ordinary, 0, 0, nil)
	c.commit()
	for _, from := range []netip.Addr{c.inside, c.outside, c.here} {
		c.open(count, from, c.vip(elsewhere), connected)
		c.open(count, from, c.nodePort(elsewhere), connected)
		c.open(count, from, c.vip(ranged), connected)
		c.open(count, from, c.clusterIP(empty), connected)
		c.open(count, from, c.vip(ordinary), noEndpoint)
	}
	c.compare("other policies", false)
	deny := func(p *service.PortView) { p.DenyRanges = []netip.Prefix{c.ranges} }
	c.serveUDP(ordinary, 0, 3, deny)
	c.serveUDP(empty, 0, 0, deny)
	c.commit()
	for _, f := range []service.Frontend{c.vip(ordinary), c.nodePort(ordinary)} {
		c.open(count, c.inside, f, notAllowed)
		c.open(count, c.outside, f, connected)
	}
	for _, f := range []service.Frontend{c.vip(empty), c.nodePort(empty)} {
		c.open(count, c.inside, f, notAllowed)
		c.open(count, c.outside, f, noEndpoint)
	}
	c.compare("denied sources", false)
	c.serveAll()
	c.round(count)
	c.compare("the first policies again", false)
}

// whileSending replaces endpoints while clients send.
func (c *counted) whileSending(count int) {
	c.Helper()
	var sending sync.WaitGroup
	sending.Go(func() {
		c.open(40*count, c.inside, c.clusterIP(ordinary), connected)
		c.open(40*count, c.inside, c.vip(ordinary), connected)
	})
	for i := range 100 {
		c.serveUDP(ordinary, i%3, 4+i%13, nil)
		c.commit()
		if i%10 == 0 {
			_ = c.traffic()
		}
	}
	sending.Wait()
	c.serveAll()
	c.compare("while endpoints were replaced", false)
}

// repair lets another process delete a frontend. The writer restores it.
func (c *counted) repair(count int) {
	c.Helper()
	set, key, err := render.Element(c.family, c.frontendKey(), render.ContainerOf(render.SetName("frontends")))
	check(c, err)
	before := c.traffic().Since
	c.nft("", "delete", "element", c.table(), set, "{ "+key+" }")
	testenv.Eventually(c, "the counts are less complete", func() bool { return !c.traffic().Since.Equal(before) })
	if drift := c.audit(); !drift.Any() {
		c.Error("nothing was deleted")
	}
	c.commit()
	c.compare("after a repair", true)
	c.round(count)
	c.compare("since the repair", false)
}

// frontendKey returns the key of the ordinary Service's ClusterIP.
func (c *counted) frontendKey() string {
	for _, o := range c.read() {
		if f, ok := (render.Naming{}).Frontend(o.ID); ok && f == c.clusterIP(ordinary) && o.ID.Container == render.ContainerOf(render.SetName("frontends")) {
			return o.ID.Name
		}
	}
	c.Fatal("no frontend")
	return ""
}

// restarts goes on with another writer in the same process, and in another one.
func (c *counted) restarts(count int) {
	c.Helper()
	again := func(tally *kernel.Tally) {
		c.restart(kernel.WriterConfig{Tally: tally})
		c.want0()
		c.ledger.Observe(c.read())
		c.serveAll()
	}
	again(c.tally)
	c.round(count)
	c.serveUDP(ordinary, 0, 9, nil)
	c.commit()
	c.compare("another writer", false)
	again(kernel.NewTally())
	c.compare("another process", true)
	c.round(count)
	c.serveUDP(ordinary, 0, 7, nil)
	c.commit()
	c.round(count)
	c.compare("since another process", false)
}

// TestCountsEndWithWhatTheyCount: what is carried of endpoints and Services that have gone is dropped.
func TestCountsEndWithWhatTheyCount(t *testing.T) {
	c := newCounted(t, service.IPv4)
	c.serveUDP(ordinary, 0, 3, nil)
	c.commit()
	c.open(30, c.inside, c.clusterIP(ordinary), connected)
	c.serveUDP(ordinary, 0, 9, nil)
	c.commit()
	c.serveUDP(ordinary, 5, 9, nil)
	c.commit()
	got := c.traffic()
	if n := got.Frontends[c.clusterIP(ordinary)].Connections; n != 30 || len(got.Endpoints) != 3*4 {
		t.Errorf("%d connections and %d endpoints, want 30 and 12", n, len(got.Endpoints))
	}
	c.world.want(plain(ordinary, 0, 0).Key, nil)
	c.commit()
	c.serveUDP(ordinary, 0, 3, nil)
	c.commit()
	if n := c.traffic().Frontends[c.clusterIP(ordinary)].Connections; n != 0 {
		t.Errorf("a new Service has %d connections of the one before", n)
	}
	c.world.want(plain(ordinary, 0, 0).Key, nil)
	c.commit()
	if got := c.traffic(); len(got.Frontends)+len(got.Endpoints) > 0 {
		t.Errorf("without a Service: %v, %v", got.Frontends, got.Endpoints)
	}
}

// TestNoTableNoCounts: a reading needs no table.
func TestNoTableNoCounts(t *testing.T) {
	w := newWorld(t, service.IPv6, kernel.WriterConfig{})
	got, err := w.writer.Traffic(context.Background())
	if err != nil || len(got.Frontends) > 0 || got.Endpoints != nil || got.Since.IsZero() {
		t.Errorf("%+v, %v", got, err)
	}
}
