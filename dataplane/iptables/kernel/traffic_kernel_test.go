// SPDX-License-Identifier: Apache-2.0

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

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/kernel"
	"github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/dataplane/ledger"
	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
	"github.com/sluice-proxy/sluice/test/writertest"
)

// connections is how many connections the counters are compared with, for each variant and family. 1,000,000 take
// some minutes.
var connections = flag.Int("connections", 4000, "connections to count, for each variant and family")

// counted is a node with clients that know what they did, and servers that count.
type counted struct {
	testing.TB
	*writertest.Clients
	family   service.Family
	tool     *countingTool
	renderer *render.Renderer
	writer   *kernel.Writer
	ledger   *ledger.Ledger
	facts    service.NodeFacts
	sequence uint64
	// connected are the connections by Service, refused what was refused by frontend.
	connected map[int]uint64
	refused   map[service.Frontend]traffic.Refusals
	servers   map[netip.AddrPort]*atomic.Uint64
	// base is the reading that the others are compared with, and what was known then. latest is the last one.
	base, latest traffic.Reading
	begun        *counted
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
	tool, err := kernel.NewExec(t.Context(), kernel.ExecConfig{Family: family, Variant: variant})
	check(t, err)
	c := &counted{
		TB: t, Clients: writertest.NewClients(t, family), family: family, tool: &countingTool{Exec: tool},
		renderer:  render.NewRenderer(family, render.Options{MasqueradeBit: 14, RandomFully: true}),
		connected: map[int]uint64{}, refused: map[service.Frontend]traffic.Refusals{},
		servers: map[netip.AddrPort]*atomic.Uint64{},
	}
	c.facts.Name = "n1"
	c.facts.NodePorts[family].All = true
	// Packets that no rule translates or refuses end here.
	check(t, c.Node.AddLinkRoute(netip.PrefixFrom(c.ServiceAddress(0), []int{16, 112}[family]).Masked(), writertest.ClientPort))
	check(t, c.Node.AddLinkRoute(netip.PrefixFrom(c.ServiceAddress(128), []int{24, 112}[family]).Masked(), writertest.ClientPort))
	for i := range 40 {
		c.listen(c.Endpoint(i))
	}
	c.restart()
	return c
}

// listen runs the server of an endpoint, which counts its clients.
func (c *counted) listen(at netip.AddrPort) {
	c.Helper()
	check(c, c.Node.AddAddress("lo", netip.PrefixFrom(at.Addr(), at.Addr().BitLen())))
	var socket *net.UDPConn
	check(c, c.Node.Do(func() (err error) {
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
	c.latest = traffic.Reading{}
	c.writer = kernel.NewWriter(c.family, c.tool, kernel.WriterConfig{})
	c.ledger = ledger.New(render.NewLayout(c.family), c.renderer.Naming(), nil)
	c.want(service.Node, c.renderer.Node(&c.facts))
	c.audit()
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
	check(c, c.Node.Do(func() error {
		receipt := c.writer.Write(c.Context(), batch)
		c.ledger.Settle(batch, receipt)
		return receipt.Err
	}))
}

func (c *counted) audit() (drift ledger.Drift) {
	c.Helper()
	check(c, c.Node.Do(func() error {
		objects, err := c.writer.Read(c.Context())
		drift = c.ledger.Observe(objects)
		return err
	}))
	return drift
}

// serve serves a Service with a ClusterIP, a VIP and a node port, and some endpoints.
func (c *counted) serve(n, from, to int, change func(*service.PortView)) {
	view := c.ViewOf(n, from, to, change)
	c.want(view.Key, c.renderer.Service(c.Context(), view, &c.facts))
}

// open opens connections to a frontend of a Service, all of which end the same way: reason is
// traffic.Reasons for those that are served.
func (c *counted) open(count int, from netip.Addr, n int, f service.Frontend, reason traffic.Reason) {
	c.Helper()
	c.Send(count, from, f)
	if reason == traffic.Reasons {
		c.connected[n] += uint64(count)
		return
	}
	refused := c.refused[f]
	refused[reason] += uint64(count)
	c.refused[f] = refused
}

// traffic reads the counters, which never go backwards.
func (c *counted) traffic() (reading traffic.Reading) {
	c.Helper()
	check(c, c.Node.Do(func() (err error) {
		reading, err = c.writer.Traffic(c.Context())
		return err
	}))
	for n := range services {
		if now, before := c.of(reading, n), c.of(c.latest, n); now < before {
			c.Errorf("Service %d: %d connections are counted, before %d", n, now, before)
		}
	}
	for f, before := range c.latest.Frontends {
		for reason, n := range before.Refused {
			if now := reading.Frontends[f].Refused[reason]; now < n {
				c.Errorf("%v: %d refusals are counted (%v), before %d", f, now, traffic.Reason(reason), n)
			}
		}
	}
	if !reading.Since.IsZero() {
		c.Errorf("the counts are complete since %v", reading.Since)
	}
	c.latest = reading
	return reading
}

// of returns the connections of a Service in a reading.
func (c *counted) of(r traffic.Reading, n int) (sum uint64) {
	for _, f := range []service.Frontend{c.ClusterIPOf(n), c.VIPOf(n), c.NodePortOf(n)} {
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
	services // their number
)

const served = traffic.Reasons

// round opens connections of all kinds.
func (c *counted) round(count int) {
	c.Helper()
	for _, from := range []netip.Addr{c.Inside, c.Outside, c.Here} {
		for _, n := range []int{ordinary, ranged, sticky} {
			c.open(count, from, n, c.ClusterIPOf(n), served)
			c.open(count, from, n, c.NodePortOf(n), served)
		}
		c.open(count, from, ordinary, c.VIPOf(ordinary), served)
		for _, f := range []service.Frontend{c.ClusterIPOf(empty), c.VIPOf(empty), c.NodePortOf(empty)} {
			c.open(count, from, empty, f, traffic.NoEndpoints)
		}
		c.open(count, from, inner, c.ClusterIPOf(inner), traffic.NoEndpoints)
		atVIP, fromElsewhere := traffic.SourceRange, traffic.NoEndpoints
		switch from {
		case c.Inside:
			atVIP = served
		case c.Here:
			fromElsewhere = served // the policy is for others
			atVIP = served         // its address is in the ranges
		}
		c.open(count, from, ranged, c.VIPOf(ranged), atVIP)
		c.open(count, from, sticky, c.VIPOf(sticky), atVIP)
		c.open(count, from, elsewhere, c.VIPOf(elsewhere), fromElsewhere)
		c.open(count, from, elsewhere, c.NodePortOf(elsewhere), fromElsewhere)
	}
}

func (c *counted) limit(p *service.PortView) { p.SourceRanges = []netip.Prefix{c.Ranges} }

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

// TestTraffic_CountersAreExact: the counters of rules agree with clients and servers that count, while endpoints and
// policies change, another process deletes rules, and a new writer takes over. Only packets that a deleted rule counted
// after the last reading are missing.
func TestTraffic_CountersAreExact(t *testing.T) {
	for _, variant := range testenv.Variants(kernel.NFT, kernel.Legacy) {
		for _, family := range testenv.Variants(service.IPv4, service.IPv6) {
			t.Run(string(variant)+"/"+family.String(), func(t *testing.T) {
				c := newCounted(t, variant, family)
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
		_ = c.traffic() // what is not read is lost
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
	for _, from := range []netip.Addr{c.Inside, c.Outside, c.Here} {
		c.open(count, from, elsewhere, c.VIPOf(elsewhere), served)
		c.open(count, from, elsewhere, c.NodePortOf(elsewhere), served)
		c.open(count, from, ranged, c.VIPOf(ranged), served)
		c.open(count, from, empty, c.ClusterIPOf(empty), served)
		c.open(count, from, ordinary, c.VIPOf(ordinary), traffic.NoEndpoints)
	}
	c.compare("other policies", 0)
	c.serve(ordinary, 0, 3, func(p *service.PortView) { p.DenyRanges = []netip.Prefix{c.Ranges} })
	_ = c.traffic()
	c.commit()
	for _, f := range []service.Frontend{c.VIPOf(ordinary), c.NodePortOf(ordinary)} {
		c.open(count, c.Inside, ordinary, f, traffic.SourceRange)
		c.open(count, c.Outside, ordinary, f, served)
	}
	c.compare("denied sources", 0)
	c.serveAll()
	c.round(count)
	c.compare("the first policies again", 0)
}

// whileSending replaces endpoints while clients send, and reads meanwhile.
func (c *counted) whileSending(count int) {
	c.Helper()
	before := c.tool.runs
	var sending sync.WaitGroup
	sending.Go(func() {
		for range 40 {
			c.open(count, c.Inside, ordinary, c.ClusterIPOf(ordinary), served)
			c.open(count, c.Inside, ordinary, c.VIPOf(ordinary), served)
			time.Sleep(10 * time.Millisecond)
		}
	})
	var reading sync.WaitGroup
	done := make(chan struct{})
	reading.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				_ = c.traffic()
			}
		}
	})
	const changes = 50
	for i := range changes {
		c.serve(ordinary, i%3, 4+i%13, nil)
		c.commit()
	}
	sending.Wait()
	close(done)
	reading.Wait()
	if runs := c.tool.runs - before; runs != changes {
		c.Errorf("%d changes ran %d programs, want one each", changes, runs)
	}
	c.serveAll()
	c.compare("while endpoints were replaced", uint64(80*count))
	c.begin()
	c.round(count)
	c.compare("after the replacements", 0)
}

// repair lets another process delete rules. The writer restores them, and nothing is lost.
func (c *counted) repair(count int) {
	c.Helper()
	c.round(count)
	_ = c.traffic()
	program := []string{"iptables", "ip6tables"}[c.family] + "-" + string(c.tool.Variant())
	for _, table := range []string{"nat", "filter"} {
		check(c, netnstest.Run(c.Node, exec.Command(program, "-t", table, "-F")))
	}
	if drift := c.audit(); !drift.Any() {
		c.Error("nothing was deleted")
	}
	c.commit()
	c.round(count)
	c.compare("after a repair", 0)
}
