// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"context"
	"flag"
	"net/netip"
	"sync"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	"github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/testenv"
	"github.com/sluice-proxy/sluice/test/writertest"
)

// connections is how many connections the counters are compared with, in each family. 1,000,000 take some
// minutes.
var connections = flag.Int("connections", 4000, "connections to count, in each family")

// counted is a node with clients that know how many connections they opened and how they ended.
type counted struct {
	*world
	*writertest.Clients
	tally *kernel.Tally
	want  map[service.Frontend]traffic.At
	// base is the reading that the others are compared with, begun what was wanted then.
	base  traffic.Reading
	begun map[service.Frontend]traffic.At
	// unallocated is what was sent to no Service's ClusterIP, at all and at the base.
	unallocated, unallocatedBegun uint64
}

func newCounted(t *testing.T, family service.Family) *counted {
	t.Helper()
	c := &counted{Clients: writertest.NewClients(t, family), tally: kernel.NewTally(), want: map[service.Frontend]traffic.At{}}
	c.world = newWorldOn(t, c.Node, family, kernel.WriterConfig{Tally: c.tally})
	c.renderer = render.NewRenderer(family, render.Options{MasqueradeBit: 14, CountEndpoints: true})
	c.facts.ServiceCIDRs[family] = []netip.Prefix{netip.PrefixFrom(c.ServiceAddress(0), []int{16, 112}[family]).Masked()}
	c.want0()
	// Packets that no rule translates or refuses end here.
	check(t, c.node.AddLinkRoute(c.facts.ServiceCIDRs[family][0], "lo"))
	check(t, c.node.AddLinkRoute(netip.PrefixFrom(c.ServiceAddress(128), []int{24, 112}[family]).Masked(), "lo"))
	for i := range 40 {
		check(t, c.node.AddAddress("lo", netip.PrefixFrom(c.Endpoint(i).Addr(), c.Endpoint(i).Addr().BitLen())))
	}
	return c
}

// want0 wants the node's own objects.
func (c *counted) want0() { c.world.want(service.Node, c.renderer.Node(&c.facts)) }

// serveUDP serves a Service with a ClusterIP, a VIP and a node port, and some endpoints.
func (c *counted) serveUDP(n, from, to int, change func(*service.PortView)) {
	c.serve(c.ViewOf(n, from, to, change))
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
	c.Send(count, from, f)
	for range count {
		c.want[f] = c.want[f].Plus(each)
	}
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
		if f := pair.Frontend; f == c.ClusterIPOf(n) || f == c.VIPOf(n) || f == c.NodePortOf(n) {
			sum += counts.Connections
		}
	}
	return sum
}

// wantOf returns the connections to a Service.
func (c *counted) wantOf(n int) uint64 {
	return c.want[c.ClusterIPOf(n)].Connections + c.want[c.VIPOf(n)].Connections + c.want[c.NodePortOf(n)].Connections
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
	for _, from := range []netip.Addr{c.Inside, c.Outside, c.Here} {
		for _, n := range []int{ordinary, ranged, sticky} {
			c.open(count, from, c.ClusterIPOf(n), connected)
			c.open(count, from, c.NodePortOf(n), connected)
		}
		c.open(count, from, c.VIPOf(ordinary), connected)
		for _, f := range []service.Frontend{c.ClusterIPOf(empty), c.VIPOf(empty), c.NodePortOf(empty), c.ClusterIPOf(inner)} {
			c.open(count, from, f, noEndpoint)
		}
		atVIP, fromElsewhere := notAllowed, noEndpoint
		switch from {
		case c.Inside:
			atVIP = connected
		case c.Here:
			fromElsewhere = connected // the policy is for others
			atVIP = connected         // its address is in the ranges
		}
		c.open(count, from, c.VIPOf(ranged), atVIP)
		c.open(count, from, c.VIPOf(sticky), atVIP)
		c.open(count, from, c.VIPOf(elsewhere), fromElsewhere)
		c.open(count, from, c.NodePortOf(elsewhere), fromElsewhere)
		c.Send(count, from, c.ClusterIPOf(100))
		c.unallocated += uint64(count)
	}
}

func (c *counted) serveAll() {
	limit := func(p *service.PortView) { p.SourceRanges = []netip.Prefix{c.Ranges} }
	c.serveUDP(ordinary, 0, 3, nil)
	c.serveUDP(ranged, 0, 5, limit)
	c.serveUDP(empty, 0, 0, nil)
	c.serveUDP(elsewhere, 0, 4, func(p *service.PortView) { p.ExternalLocal = true })
	c.serveUDP(sticky, 10, 14, func(p *service.PortView) { limit(p); p.AffinitySeconds = 60 })
	c.serveUDP(inner, 0, 3, func(p *service.PortView) { p.InternalLocal = true })
	c.commit()
}

// TestTraffic_CountersAreExact: the counters agree with clients that count, while endpoints and frontends are replaced,
// another process changes the rules, and a new writer takes over.
func TestTraffic_CountersAreExact(t *testing.T) {
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
			p.SourceRanges, p.AffinitySeconds = []netip.Prefix{c.Ranges}, 60
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
	for _, from := range []netip.Addr{c.Inside, c.Outside, c.Here} {
		c.open(count, from, c.VIPOf(elsewhere), connected)
		c.open(count, from, c.NodePortOf(elsewhere), connected)
		c.open(count, from, c.VIPOf(ranged), connected)
		c.open(count, from, c.ClusterIPOf(empty), connected)
		c.open(count, from, c.VIPOf(ordinary), noEndpoint)
	}
	c.compare("other policies", false)
	deny := func(p *service.PortView) { p.DenyRanges = []netip.Prefix{c.Ranges} }
	c.serveUDP(ordinary, 0, 3, deny)
	c.serveUDP(empty, 0, 0, deny)
	c.commit()
	for _, f := range []service.Frontend{c.VIPOf(ordinary), c.NodePortOf(ordinary)} {
		c.open(count, c.Inside, f, notAllowed)
		c.open(count, c.Outside, f, connected)
	}
	for _, f := range []service.Frontend{c.VIPOf(empty), c.NodePortOf(empty)} {
		c.open(count, c.Inside, f, notAllowed)
		c.open(count, c.Outside, f, noEndpoint)
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
		c.open(40*count, c.Inside, c.ClusterIPOf(ordinary), connected)
		c.open(40*count, c.Inside, c.VIPOf(ordinary), connected)
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
	key, err := render.ElementText(c.family, &dataplane.Object{ID: c.frontend()})
	check(c, err)
	before := c.traffic().Since
	c.nft("", "delete", "element", c.table(), "${frontends}", "{ "+key+" }")
	testenv.Eventually(c, "the counts are less complete", func() bool { return !c.traffic().Since.Equal(before) })
	if drift := c.audit(); !drift.Any() {
		c.Error("nothing was deleted")
	}
	c.commit()
	c.compare("after a repair", true)
	c.round(count)
	c.compare("since the repair", false)
}

// frontend returns the element of the ordinary Service's ClusterIP.
func (c *counted) frontend() dataplane.ID {
	for _, o := range c.read() {
		if f, ok := (render.Naming{}).Frontend(o.ID); ok && f == c.ClusterIPOf(ordinary) && o.ID.Container == render.ContainerOf(render.SetName("frontends")) {
			return o.ID
		}
	}
	c.Fatal("no frontend")
	return dataplane.ID{}
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

// TestTraffic_GoneSubjectsDropped: carried counts of removed endpoints and Services are dropped.
func TestTraffic_GoneSubjectsDropped(t *testing.T) {
	c := newCounted(t, service.IPv4)
	c.serveUDP(ordinary, 0, 3, nil)
	c.commit()
	c.open(30, c.Inside, c.ClusterIPOf(ordinary), connected)
	c.serveUDP(ordinary, 0, 9, nil)
	c.commit()
	c.serveUDP(ordinary, 5, 9, nil)
	c.commit()
	got := c.traffic()
	if n := got.Frontends[c.ClusterIPOf(ordinary)].Connections; n != 30 || len(got.Endpoints) != 3*4 {
		t.Errorf("%d connections and %d endpoints, want 30 and 12", n, len(got.Endpoints))
	}
	c.world.want(plain(ordinary, 0, 0).Key, nil)
	c.commit()
	c.serveUDP(ordinary, 0, 3, nil)
	c.commit()
	if n := c.traffic().Frontends[c.ClusterIPOf(ordinary)].Connections; n != 0 {
		t.Errorf("a new Service has %d connections of the one before", n)
	}
	c.world.want(plain(ordinary, 0, 0).Key, nil)
	c.commit()
	if got := c.traffic(); len(got.Frontends)+len(got.Endpoints) > 0 {
		t.Errorf("without a Service: %v, %v", got.Frontends, got.Endpoints)
	}
}

// TestTraffic_NoTable: without a table, a reading returns no counts and no error.
func TestTraffic_NoTable(t *testing.T) {
	w := newWorld(t, service.IPv6, kernel.WriterConfig{})
	got, err := w.writer.Traffic(context.Background())
	if err != nil || len(got.Frontends) > 0 || got.Endpoints != nil || got.Since.IsZero() {
		t.Errorf("%+v, %v", got, err)
	}
}
