// SPDX-License-Identifier: Apache-2.0

package localport_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/localport"
	nftkernel "github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	nftrender "github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
	"github.com/sluice-proxy/sluice/test/writertest"
)

// cluster is a node with two domains, the rules of the nftables backend and the
// listeners, joined to a host with an endpoint.
type cluster struct {
	*world
	t                *testing.T
	rules, listeners *writertest.Pipeline
	// endpoint is on the other host.
	endpoint netip.AddrPort
}

// cable has the addresses of the node and of the other host on the link between them.
var cable = service.PerFamily[struct{ node, other netip.Prefix }]{
	service.IPv4: {netip.MustParsePrefix("10.9.0.1/24"), netip.MustParsePrefix("10.9.0.2/24")},
	service.IPv6: {netip.MustParsePrefix("fd09::1/64"), netip.MustParsePrefix("fd09::2/64")},
}

// newCluster makes the two hosts, without rules.
func newCluster(t *testing.T, family service.Family) *cluster {
	t.Helper()
	c := &cluster{t: t, world: newWorld(t, family, localport.Config{}), endpoint: netip.AddrPortFrom(cable[family].other.Addr(), 8080)}
	other := netnstest.New(t, "other")
	check(t, netns.Link(c.node, other, netns.LinkSpec{
		NameA: "eth0", AddrsA: []netip.Prefix{cable[family].node}, NameB: "eth0", AddrsB: []netip.Prefix{cable[family].other},
	}))
	backend, err := netnstest.StartBackend(other, "endpoint", c.endpoint)
	check(t, err)
	t.Cleanup(func() { check(t, backend.Close()) })
	check(t, c.node.Sysctl(routeLocalnet, "0"))
	return c
}

const routeLocalnet = "net.ipv4.conf.all.route_localnet"

// start makes the node's domains, with node ports on some addresses.
func (c *cluster) start(on service.NodePortAddresses) {
	c.Helper()
	facts := service.NodeFacts{Name: "n1"}
	facts.NodeIPs[c.family] = c.own()
	facts.NodePorts[c.family] = on
	rules := nftkernel.NewWriter(c.family, nftkernel.WriterConfig{Inside: c.node.Do})
	c.Cleanup(func() { check(c, rules.Close()) })
	c.rules = writertest.NewPipeline(writertest.Harness{
		Renderer: nftrender.NewRenderer(c.family, nftrender.Options{MasqueradeBit: 14}),
	}, rules.Contract(), facts)
	c.listeners = writertest.NewPipeline(writertest.Harness{
		Renderer: localport.NewRenderer(c.family),
	}, c.writer.Contract(), facts)
}

// serve adds a Service with a node port over both protocols to both domains. Its policy is Local
// and its endpoints are elsewhere; this node's own clients are served all the same.
func (c *cluster) serve(endpoints ...netip.AddrPort) {
	c.Helper()
	spec := service.Spec{Key: c.owner, Created: time.Unix(1, 0), ExternalLocal: true}
	spec.ClusterIPs[c.family] = map[service.Family]netip.Addr{service.IPv4: addr("172.30.0.41"), service.IPv6: addr("fd00::41")}[c.family]
	slice := &service.Slice{Service: c.owner, Name: "web-1", Family: c.family}
	for _, protocol := range []service.Protocol{service.TCP, service.UDP} {
		spec.Ports = append(spec.Ports, service.Port{Name: protocol.String(), Protocol: protocol, Port: 80, NodePort: nodePort})
		slice.Ports = append(slice.Ports, service.SlicePort{Name: protocol.String(), Protocol: protocol, Port: c.endpoint.Port()})
	}
	for _, e := range endpoints {
		slice.Endpoints = append(slice.Endpoints, service.SliceEndpoint{Addr: e.Addr(), Location: &service.Location{NodeName: "n2"}, Ready: true, Serving: true})
	}
	for _, domain := range []*writertest.Pipeline{c.rules, c.listeners} {
		domain.Serve(spec, slice)
		domain.Converge(c.t)
	}
	if drift := c.listeners.Audit(c.t); drift.Any() {
		c.Errorf("what was written is not what is read: %+v", drift)
	}
}

// TestKernel_WithNodeRules: with the node's rules, clients of the loopback address reach an endpoint on another host
// over TCP and UDP, without route_localnet. They are refused when the endpoint is removed.
func TestKernel_WithNodeRules(t *testing.T) {
	for _, family := range service.Families {
		for name, on := range map[string]service.NodePortAddresses{
			"all addresses":   {All: true},
			"primary address": {Addresses: []netip.Addr{addresses[family].own}},
		} {
			t.Run(family.String()+", "+name, func(t *testing.T) {
				c := newCluster(t, family)
				c.start(on)
				c.serve(c.endpoint)
				for _, network := range []string{"tcp", "udp"} {
					for range 3 {
						c.expectAnswer(network, nodePort, "endpoint")
					}
				}
				session, err := netnstest.Connect(t.Context(), c.node, c.listen(nodePort))
				check(t, err)
				if from := session.Answer().Client.Addr(); from != cable[family].node.Addr() {
					t.Errorf("the endpoint sees %s, want the node's address on the way there", from)
				}
				c.serve()
				c.expectRefused("tcp", nodePort)
				c.expectRefused("udp", nodePort)
				check(t, session.Echo(t.Context(), "established connections go on"))
				check(t, session.Close())
			})
		}
	}
}

// submit sends the fragment of a Service with one node port to an aggregator.
func (w *world) submit(a *aggregator.Aggregator, name string, sequence uint64, port uint16, target netip.AddrPort) {
	f := dataplane.NewFragment(service.Key{Namespace: "ns1", Name: name},
		[]dataplane.Object{*w.listener(service.TCP, port, target)})
	f.Revision = service.Revision{Incarnation: 1, Sequence: sequence}
	a.Submit(f)
}

// TestKernel_QuarantineAndRelease runs the domain as the proxy does: of many Services, only the one whose port is taken
// is quarantined, until the port is free. A dead listener is reopened.
func TestKernel_QuarantineAndRelease(t *testing.T) {
	w := newWorld(t, service.IPv4, localport.Config{})
	backend := w.backend("first", netip.AddrPortFrom(w.own(), nodePort))
	thief := w.backend("thief", w.listen(30085))
	a, err := aggregator.New(aggregator.Config{Domain: "localport/IPv4", Writer: w.writer.Contract(),
		Pace: aggregator.Pace{Audit: 200 * time.Millisecond}})
	check(t, err)
	const services = 20
	var keys []service.Key
	for n := range uint16(services) {
		name := string(rune('a' + n))
		keys = append(keys, service.Key{Namespace: "ns1", Name: name})
		w.submit(a, name, 1, nodePort+n, backend.Addr())
	}
	a.Prime(keys)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- a.Run(ctx) }()
	go func() { ended <- w.writer.Watch(ctx, a.AuditSoon) }()

	w.await("the culprit is found", func() bool { return len(a.Status().Quarantined) > 0 && a.Status().Ledger.Pending == 0 })
	held := a.Status().Quarantined
	if len(held) != 1 || held[0].Key.String() != "ns1/f" || !strings.Contains(held[0].Reason, "tcp/127.0.0.1:30085") {
		t.Errorf("in quarantine: %+v", held)
	}
	if n := w.writer.Stats().Listeners.Load(); n != services-1 {
		t.Errorf("%d listeners, want %d", n, services-1)
	}
	for _, port := range []uint16{nodePort, nodePort + services - 1} {
		w.expectAnswer("tcp", port, "first")
	}
	w.expectAnswer("tcp", 30085, "thief")

	check(t, thief.Close())
	w.await("the culprit is freed", func() bool { return len(a.Status().Quarantined) == 0 })
	w.expectAnswer("tcp", 30085, "first")

	kill(w, w.listen(30085))
	w.await("the dead listener is noticed", func() bool { return len(w.takeFailures()) == 1 })
	w.await("the dead listener is back", func() bool { return w.writer.Stats().Listeners.Load() == services })
	w.expectAnswer("tcp", 30085, "first")
	cancel()
	for range 2 {
		if err := <-ended; err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	}
	check(t, backend.Close())
}

// TestKernel_CannotTranslateLoopback: the kernel cannot forward connections from 127.0.0.1 or ::1 to another host,
// except from 127.0.0.1 with route_localnet. This is the reason for this package; the test fails when it no longer
// holds.
func TestKernel_CannotTranslateLoopback(t *testing.T) {
	t.Run("IPv4", func(t *testing.T) {
		c := newCluster(t, service.IPv4)
		c.translate()
		// The kernel refuses to send. TCP hides that and retries.
		c.expectUnanswered("udp", unix.EINVAL)
		c.expectUnanswered("tcp", os.ErrDeadlineExceeded)
		check(t, c.node.Sysctl(routeLocalnet, "1"))
		c.expectAnswer("udp", nodePort, "endpoint")
		c.expectAnswer("tcp", nodePort, "endpoint")
	})
	t.Run("IPv6", func(t *testing.T) {
		c := newCluster(t, service.IPv6)
		c.translate()
		// The question arrives, and the answer is lost on the way in: no route leads from an
		// interface to ::1.
		before := c.inNoRoutes()
		c.expectUnanswered("udp", os.ErrDeadlineExceeded)
		c.expectUnanswered("tcp", os.ErrDeadlineExceeded)
		testenv.Eventually(t, "two answers are lost for want of a route", func() bool { return c.inNoRoutes()-before >= 2 })
	})
}

// translate loads the rules that a proxy would use.
func (c *cluster) translate() {
	c.Helper()
	ip := map[service.Family]string{service.IPv4: "ip", service.IPv6: "ip6"}[c.family]
	rules := fmt.Sprintf(`table %[1]s claim {
		chain output { type nat hook output priority -100; %[1]s daddr %[2]s meta l4proto { tcp, udp } th dport %[3]d dnat to %[4]s; }
		chain postrouting { type nat hook postrouting priority 100; ct status dnat masquerade; }
	}`, ip, c.listen(nodePort).Addr(), nodePort, c.endpoint)
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := netnstest.Run(c.node, cmd); err != nil {
		c.Fatalf("nft: %v: %s (Debian package nftables)", err, said.String())
	}
}

// expectUnanswered asks for a while, and fails unless that ends with the wanted error.
func (c *cluster) expectUnanswered(network string, want error) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), 200*time.Millisecond)
	defer cancel()
	answer, err := netnstest.Ask(ctx, c.node, network, c.listen(nodePort))
	// A connection attempt ends with the context's error or the socket's.
	if !errors.Is(err, want) && (!errors.Is(want, os.ErrDeadlineExceeded) || !errors.Is(err, context.DeadlineExceeded)) {
		c.Errorf("%s: %+v, %v; want %v", network, answer, err, want)
	}
}

// inNoRoutes is the number of packets that came in and had no route.
func (c *cluster) inNoRoutes() (count int) {
	c.Helper()
	check(c, c.node.Do(func() error {
		counts, err := os.ReadFile("/proc/thread-self/net/snmp6")
		if err != nil {
			return err
		}
		_, rest, _ := strings.Cut(string(counts), "Ip6InNoRoutes")
		_, err = fmt.Sscan(rest, &count)
		return err
	}))
	return count
}
