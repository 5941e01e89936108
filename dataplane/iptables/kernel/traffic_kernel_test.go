package kernel_test

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/kernel"
	"github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/dataplane/ledger"
	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// connections is how many connections the counters are compared with, for each variant and family. 1,000,000 take
// some minutes.
var connections = flag.Int("connections", 4000, "connections to count, for each variant and family")

// counted is a node with clients that know what they did, and servers that count.
type counted struct {
	testing.TB
	family   service.Family
	variant  kernel.Variant
	node     *netns.Namespace
	client   *netns.Namespace
	tool     *countingTool
	renderer *render.Renderer
	writer   *kernel.Writer
	ledger   *ledger.Ledger
	facts    service.NodeFacts
	sequence uint64
	// inside and outside are addresses of the client, here is one of the node.
	inside, outside, here netip.Addr
	ranges                netip.Prefix
	// ports are the next source ports, by source and destination.
	ports map[[2]netip.AddrPort]int
	// connected are the connections by Service, refused what was refused by frontend.
	connected map[int]uint64
	refused   map[service.Frontend]traffic.Refusals
	servers   map[netip.AddrPort]*atomic.Uint64
	// base is the reading that the others are compared with, and what was known then.
	base    traffic.Reading
	begun   *counted
	endings []func()
}

// countingTool counts what runs.
type countingTool struct {
	*kernel.Exec
	runs int
}

func (c *countingTool) Restore(ctx context.Context, input []byte) error {
	c.runs++
	return c.Exec.Restore(ctx, input)
}

func (c *countingTool) Save(ctx context.Context, table render.Table) ([]byte, error) {
	c.runs++
	return c.Exec.Save(ctx, table)
}

func newCounted(t *testing.T, variant kernel.Variant, family service.Family) *counted {
	t.Helper()
	n := netnstest.Build(t, netns.Plan{Cables: []netns.Cable{{
		Router: "node", Leaf: "client", Port: "to-client",
		AtRouter: netns.Prefixes([]string{"203.0.113.1/24", "2001:db8::1/64"}[family]),
		AtLeaf:   netns.Prefixes([][]string{{"203.0.113.10/24", "203.0.113.130/24"}, {"2001:db8::10/64", "2001:db8::130/64"}}[family]...),
	}}})
	tool, err := kernel.NewExec(t.Context(), kernel.ExecConfig{Family: family, Variant: variant})
	check(t, err)
	c := &counted{
		TB: t, family: family, variant: variant, node: n.Hosts["node"], client: n.Hosts["client"], tool: &countingTool{Exec: tool},
		renderer: render.NewRenderer(family, render.Options{MasqueradeBit: 14, RandomFully: true}),
		ports:    map[[2]netip.AddrPort]int{}, connected: map[int]uint64{}, refused: map[service.Frontend]traffic.Refusals{},
		servers: map[netip.AddrPort]*atomic.Uint64{},
	}
	parse := func(v4, v6 string) netip.Addr { return netip.MustParseAddr([]string{v4, v6}[family]) }
	c.inside, c.outside, c.here = parse("203.0.113.10", "2001:db8::10"), parse("203.0.113.130", "2001:db8::130"), parse("203.0.113.1", "2001:db8::1")
	c.ranges = netip.MustParsePrefix([]string{"203.0.113.0/25", "2001:db8::/121"}[family])
	c.facts.Name = "n1"
	c.facts.NodePorts[family].All = true
	// Packets that no rule translates or refuses end here.
	check(t, c.node.AddLinkRoute(netip.PrefixFrom(c.address(0), []int{16, 112}[family]).Masked(), "to-client"))
	check(t, c.node.AddLinkRoute(netip.PrefixFrom(c.address(128), []int{24, 112}[family]).Masked(), "to-client"))
	for i := range 40 {
		c.listen(c.endpoint(i))
	}
	c.restart()
	return c
}

// listen runs the server of an endpoint, which counts its clients.
func (c *counted) listen(at netip.AddrPort) {
	c.Helper()
	check(c, c.node.AddAddress("lo", netip.PrefixFrom(at.Addr(), at.Addr().BitLen())))
	var socket *net.UDPConn
	check(c, c.node.Do(func() (err error) {
		if socket, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at)); err == nil {
			err = socket.SetReadBuffer(1 << 20)
		}
		return err
	}))
	count := &atomic.Uint64{}
	c.servers[at] = count
	var serving sync.WaitGroup
	serving.Go(func() {
		for b := make([]byte, 8); ; {
			if _, _, err := socket.ReadFromUDPAddrPort(b); err != nil {
				return
			}
			count.Add(1)
		}
	})
	c.Cleanup(func() { _ = socket.Close(); serving.Wait() })
}

// restart begins again with a process that knows nothing.
func (c *counted) restart() {
	c.Helper()
	c.stop()
	c.writer = kernel.NewWriter(c.family, c.tool, kernel.WriterConfig{})
	c.ledger = ledger.New(render.NewLayout(c.family), c.renderer.Naming(), nil)
	c.want(service.Node, c.renderer.Node(&c.facts))
	watching, stop := context.WithCancel(c.Context())
	var watch sync.WaitGroup
	watch.Go(func() {
		_ = c.node.Do(func() error { return c.writer.Watch(watching, func(dataplane.ForeignProcess) {}) })
	})
	c.endings = append(c.endings, func() { stop(); watch.Wait() })
	testenv.Eventually(c, "the watch works", func() bool { _, err := c.read(); return err == nil })
	c.audit()
}

func (c *counted) stop() {
	for _, end := range c.endings {
		end()
	}
	c.endings = nil
}

func (c *counted) want(key service.Key, objects []dataplane.Object) {
	c.sequence++
	f := dataplane.NewFragment(key, objects)
	f.Revision = service.Revision{Incarnation: 1, Sequence: c.sequence}
	f.Gone = key != service.Node && len(objects) == 0
	c.ledger.Want(f)
}

func (c *counted) commit() {
	c.Helper()
	batch := c.ledger.Plan()
	if batch == nil {
		return
	}
	check(c, c.node.Do(func() error {
		receipt := c.writer.Write(c.Context(), batch)
		c.ledger.Settle(batch, receipt)
		return receipt.Err
	}))
}

func (c *counted) audit() (drift ledger.Drift) {
	c.Helper()
	check(c, c.node.Do(func() error {
		objects, err := c.writer.Read(c.Context())
		drift = c.ledger.Observe(objects)
		return err
	}))
	return drift
}

func plus(a netip.Addr, n int) netip.Addr {
	for range n {
		a = a.Next()
	}
	return a
}

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

func (c *counted) clusterIP(n int) service.Frontend {
	return service.Frontend{Addr: c.address(n), Port: 80, Protocol: service.UDP}
}

func (c *counted) vip(n int) service.Frontend {
	return service.Frontend{Addr: c.address(128 + n), Port: 80, Protocol: service.UDP}
}

func (c *counted) nodePort(n int) service.Frontend {
	return service.Frontend{Port: uint16(30000 + n), Protocol: service.UDP}
}

// serve serves a Service with a ClusterIP, a VIP and a node port, and some endpoints.
func (c *counted) serve(n, from, to int, change func(*service.PortView)) {
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
	view := &service.View{Key: service.Key{Namespace: "ns", Name: fmt.Sprintf("svc%d", n)}}
	view.Ports[c.family] = []service.PortView{port}
	c.want(view.Key, c.renderer.Service(c.Context(), view, &c.facts))
}

// open opens connections to a frontend of a Service, all of which end the same way: reason is
// traffic.Reasons for those that are served.
func (c *counted) open(count int, from netip.Addr, n int, f service.Frontend, reason traffic.Reason) {
	c.Helper()
	to := f.Addr
	if !to.IsValid() {
		to = c.here
	}
	c.datagrams(count, from, netip.AddrPortFrom(to, f.Port))
	if reason == traffic.Reasons {
		c.connected[n] += uint64(count)
		return
	}
	refused := c.refused[f]
	refused[reason] += uint64(count)
	c.refused[f] = refused
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
	if err := unix.Sendto(fd, []byte("x"), 0, target); err != nil && err != unix.EPERM { // what a rule refuses
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

func (c *counted) read() (reading traffic.Reading, err error) {
	err = c.node.Do(func() error {
		reading, err = c.writer.Traffic(c.Context())
		return err
	})
	return reading, err
}

func (c *counted) traffic() traffic.Reading {
	c.Helper()
	reading, err := c.read()
	check(c, err)
	return reading
}

// of returns the connections of a Service in a reading.
func (c *counted) of(r traffic.Reading, n int) (sum uint64) {
	for _, f := range []service.Frontend{c.clusterIP(n), c.vip(n), c.nodePort(n)} {
		sum += r.Frontends[f].Connections
	}
	return sum
}

// begin begins to compare.
func (c *counted) begin() {
	c.base = c.traffic()
	c.begun = &counted{connected: map[int]uint64{}, refused: map[service.Frontend]traffic.Refusals{}}
	for n, sum := range c.connected {
		c.begun.connected[n] = sum
	}
	for f, refused := range c.refused {
		c.begun.refused[f] = refused
	}
}

// compare compares what was counted since the base. Less is how much may be missing of a Service.
func (c *counted) compare(when string, less uint64) traffic.Reading {
	c.Helper()
	got := c.traffic()
	if !got.Since.Equal(c.base.Since) {
		c.Errorf("%s: the counts are complete since %v, before since %v", when, got.Since, c.base.Since)
	}
	differs := func(got, want uint64) bool { return got > want || got+less < want }
	for n, sum := range c.connected {
		got, want := c.of(got, n)-c.of(c.base, n), sum-c.begun.connected[n]
		if differs(got, want) {
			c.Errorf("%s: Service %d: %d connections are counted, want %d", when, n, got, want)
		}
	}
	for f, refused := range c.refused {
		for reason, sum := range refused {
			got, want := got.Frontends[f].Refused[reason]-c.base.Frontends[f].Refused[reason], sum-c.begun.refused[f][reason]
			if differs(got, want) {
				c.Errorf("%s: %v: %d refusals are counted (%v), want %d", when, f, got, traffic.Reason(reason), want)
			}
		}
	}
	return got
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

const served = traffic.Reasons

// round opens connections of all kinds.
func (c *counted) round(count int) {
	c.Helper()
	for _, from := range []netip.Addr{c.inside, c.outside, c.here} {
		for _, n := range []int{ordinary, ranged, sticky} {
			c.open(count, from, n, c.clusterIP(n), served)
			c.open(count, from, n, c.nodePort(n), served)
		}
		c.open(count, from, ordinary, c.vip(ordinary), served)
		for _, f := range []service.Frontend{c.clusterIP(empty), c.vip(empty), c.nodePort(empty)} {
			c.open(count, from, empty, f, traffic.NoEndpoints)
		}
		c.open(count, from, inner, c.clusterIP(inner), traffic.NoEndpoints)
		atVIP, fromElsewhere := traffic.SourceRange, traffic.NoEndpoints
		switch from {
		case c.inside:
			atVIP = served
		case c.here:
			fromElsewhere = served // the policy is for others
			atVIP = served         // its address is in the ranges
		}
		c.open(count, from, ranged, c.vip(ranged), atVIP)
		c.open(count, from, sticky, c.vip(sticky), atVIP)
		c.open(count, from, elsewhere, c.vip(elsewhere), fromElsewhere)
		c.open(count, from, elsewhere, c.nodePort(elsewhere), fromElsewhere)
	}
}

func (c *counted) limit(p *service.PortView) { p.SourceRanges = []netip.Prefix{c.ranges} }

func (c *counted) serveAll() {
	c.Helper()
	c.serve(ordinary, 0, 3, nil)
	c.serve(ranged, 3, 8, c.limit)
	c.serve(empty, 0, 0, nil)
	c.serve(elsewhere, 8, 10, func(p *service.PortView) { p.ExternalLocal = true })
	c.serve(sticky, 10, 14, func(p *service.PortView) { c.limit(p); p.AffinitySeconds = 60 })
	c.serve(inner, 30, 33, func(p *service.PortView) { p.InternalLocal = true })
	c.commit()
}

// lost is what may be missing: everything since the last reading in the legacy variant, and nothing in the other one.
func (c *counted) lost(opened int) uint64 {
	if c.variant == kernel.Legacy {
		return uint64(opened)
	}
	return 0
}

// TestCountersTellTheTruth: clients that know what they did and servers that count agree with the counters of rules,
// while endpoints and policies are replaced, another process deletes rules, and the writer is another one.
func TestCountersTellTheTruth(t *testing.T) {
	for _, variant := range testenv.Variants(kernel.NFT, kernel.Legacy) {
		for _, family := range testenv.Variants(service.IPv4, service.IPv6) {
			t.Run(string(variant)+"/"+family.String(), func(t *testing.T) {
				c := newCounted(t, variant, family)
				t.Cleanup(c.stop)
				count := max(1, *connections/500)
				c.serveAll()
				c.begin()
				c.round(count)
				got := c.compare("at first", 0)
				c.endpoints(got)
				c.replacements(count)
				c.whileSending(count)
				c.repair(count)
				c.restart()
				c.serveAll()
				c.begin()
				c.round(count)
				c.serve(ordinary, 0, 7, nil)
				_ = c.traffic()
				c.commit()
				c.round(count)
				c.compare("after a restart", 0)
				t.Logf("%d connections of Service %d", c.connected[ordinary], ordinary)
			})
		}
	}
}

// endpoints compares the counts of endpoints with those of their servers.
func (c *counted) endpoints(r traffic.Reading) {
	c.Helper()
	got := map[netip.AddrPort]uint64{}
	for pair, counts := range r.Endpoints {
		got[pair.Endpoint] += counts.Connections
	}
	for end := time.Now().Add(testenv.Patience); ; time.Sleep(10 * time.Millisecond) {
		wrong := ""
		for at, count := range c.servers {
			if n := count.Load(); got[at] != n {
				wrong = fmt.Sprintf("%d connections to endpoint %v are counted, and it had %d", got[at], at, n)
			}
		}
		if wrong == "" {
			return
		}
		if time.Now().After(end) {
			c.Error(wrong)
			return
		}
	}
}

// replacements changes what Services have, and their policies.
func (c *counted) replacements(count int) {
	c.Helper()
	for to := 4; to < 20; to += 3 {
		c.serve(ordinary, 0, to, nil)
		c.serve(sticky, 10, 10+to, func(p *service.PortView) { c.limit(p); p.AffinitySeconds = 60 })
		_ = c.traffic() // the legacy variant loses what is not read
		c.commit()
		c.round(count)
	}
	c.compare("more endpoints", 0)
	local := func(p *service.PortView) { p.ExternalLocal, p.Local = true, p.Cluster[:1] }
	c.serve(elsewhere, 8, 10, local)
	c.serve(ranged, 3, 8, nil)
	c.serve(empty, 0, 2, nil)
	c.serve(ordinary, 0, 0, nil)
	c.commit()
	for _, from := range []netip.Addr{c.inside, c.outside, c.here} {
		c.open(count, from, elsewhere, c.vip(elsewhere), served)
		c.open(count, from, elsewhere, c.nodePort(elsewhere), served)
		c.open(count, from, ranged, c.vip(ranged), served)
		c.open(count, from, empty, c.clusterIP(empty), served)
		c.open(count, from, ordinary, c.vip(ordinary), traffic.NoEndpoints)
	}
	c.compare("other policies", 0)
	c.serve(ordinary, 0, 3, func(p *service.PortView) { p.DenyRanges = []netip.Prefix{c.ranges} })
	_ = c.traffic()
	c.commit()
	for _, f := range []service.Frontend{c.vip(ordinary), c.nodePort(ordinary)} {
		c.open(count, c.inside, ordinary, f, traffic.SourceRange)
		c.open(count, c.outside, ordinary, f, served)
	}
	c.compare("denied sources", 0)
	c.serveAll()
	c.round(count)
	c.compare("the first policies again", 0)
}

// whileSending replaces endpoints while clients send.
func (c *counted) whileSending(count int) {
	c.Helper()
	before := c.tool.runs
	var sending sync.WaitGroup
	sending.Go(func() {
		for range 40 {
			c.open(count, c.inside, ordinary, c.clusterIP(ordinary), served)
			c.open(count, c.inside, ordinary, c.vip(ordinary), served)
			time.Sleep(10 * time.Millisecond)
		}
	})
	const changes = 50
	for i := range changes {
		c.serve(ordinary, i%3, 4+i%13, nil)
		c.commit()
		if i%5 == 0 {
			_ = c.traffic()
		}
	}
	sending.Wait()
	if runs := c.tool.runs - before; runs != changes {
		c.Errorf("%d changes ran %d programs, want one each", changes, runs)
	}
	c.serveAll()
	c.compare("while endpoints were replaced", c.lost(80*count))
	if c.variant == kernel.Legacy {
		c.begin()
	}
}

// repair lets another process delete rules. The writer restores them, and nothing is lost.
func (c *counted) repair(count int) {
	c.Helper()
	c.round(count)
	_ = c.traffic()
	program := []string{"iptables", "ip6tables"}[c.family] + "-" + string(c.variant)
	for _, table := range []string{"nat", "filter"} {
		check(c, c.node.Run(exec.Command(program, "-t", table, "-F")))
	}
	if drift := c.audit(); !drift.Any() {
		c.Error("nothing was deleted")
	}
	c.commit()
	c.round(count)
	c.compare("after a repair", 0)
}
