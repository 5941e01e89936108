// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	"github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// theirRules are the rules of other programs that translate, at the priority that all of them use:
// a CNI plugin with host ports 80, 81, 30080 and 30081 of the node, and another proxy with a
// ClusterIP in our ServiceCIDR.
const theirRules = `table ip theirs {
	chain translate {
		ip daddr 203.0.113.1 tcp dport { 80, 81, 30080, 30081 } dnat to 10.244.1.10:8080
		ip daddr 172.20.0.9 tcp dport 80 dnat to 10.244.1.10:8080
	}
	chain pre { type nat hook prerouting priority -100; jump translate; }
	chain out { type nat hook output priority -100; jump translate; }
}`

// translators is a node between a client and a pod, whose Services use addresses and ports that
// other programs translate.
type translators struct {
	*world
	client, pod *netns.Namespace
}

func newTranslators(t *testing.T) *translators {
	t.Helper()
	const podPort = 8080
	pod := netip.AddrPortFrom(netip.MustParseAddr("10.244.1.10"), podPort)
	n := netnstest.Build(t, netnstest.Plan{
		Cables: []netns.Cable{
			{Router: "node", Leaf: "client", Port: "to-client", AtRouter: netns.Prefixes("203.0.113.1/24"), AtLeaf: netns.Prefixes("203.0.113.10/24")},
			{Router: "node", Leaf: "pod", Port: "to-pod", AtRouter: netns.Prefixes("10.244.1.1/24"), AtLeaf: netns.Prefixes("10.244.1.10/24")},
		},
		Servers: []netnstest.Server{{Name: "pod", Host: "pod", At: pod}},
	})
	x := &translators{newWorldOn(t, n.Hosts["node"], service.IPv4, kernel.WriterConfig{}), n.Hosts["client"], n.Hosts["pod"]}
	// What no rule translates or rejects goes to the pod, which answers to none of these addresses.
	check(t, x.node.AddRoute(netip.MustParsePrefix("172.16.0.0/12"), pod.Addr()))
	endpoints := []service.Endpoint{{AddrPort: pod}}
	x.serveOne("served", service.PortView{ClusterIP: netip.MustParseAddr("172.16.0.1"), HasAny: true, Cluster: endpoints})
	nodeIP := netip.MustParseAddr("203.0.113.1")
	x.serveOne("empty", service.PortView{
		ClusterIP: netip.MustParseAddr("172.16.0.2"), ExternalIPs: []netip.Addr{nodeIP}, NodePort: 30080,
	})
	x.serveOne("elsewhere", service.PortView{
		ClusterIP: netip.MustParseAddr("172.16.0.3"), LoadBalancerVIPs: []netip.Addr{nodeIP}, NodePort: 30081, Port: 81,
		HasAny: true, Cluster: endpoints, ExternalLocal: true,
	})
	return x
}

func (x *translators) serveOne(name string, port service.PortView) {
	port.Name = "http"
	if port.Port == 0 {
		port.Port = 80
	}
	view := &service.View{Key: service.Key{Namespace: "ns", Name: name}}
	view.Ports[service.IPv4] = []service.PortView{port}
	x.serve(view)
}

// ask says what becomes of a connection within some time.
func (x *translators) ask(from *netns.Namespace, to string, wait time.Duration) string {
	x.Helper()
	ctx, cancel := context.WithTimeout(x.Context(), wait)
	defer cancel()
	answer, err := netnstest.Ask(ctx, from, "tcp", netip.MustParseAddrPort(to))
	switch {
	case err == nil:
		return "served by " + answer.Backend
	case errors.Is(err, unix.ECONNREFUSED):
		return "rejected"
	default:
		return silence
	}
}

// silence is what comes of a connection that nobody answers.
const silence = "silence"

// expect waits for an answer, or a moment for none.
func (x *translators) expect(from *netns.Namespace, to, want string) {
	x.Helper()
	wait := testenv.Patience
	if want == silence {
		wait = 200 * time.Millisecond
	}
	if got := x.ask(from, to, wait); got != want {
		x.Errorf("from %s to %s: %s, want %s", from.Name(), to, got, want)
	}
}

// TestReject_SparesOtherTranslators: a frontend that we would reject is served if another program translates it, in
// either order of loading. The kernel calls base chains of one priority in the reverse order of registration. (Once the
// program that loaded its rules last won.)
func TestReject_SparesOtherTranslators(t *testing.T) {
	for name, theirsFirst := range map[string]bool{"theirs first": true, "ours first": false} {
		t.Run(name, func(t *testing.T) {
			x := newTranslators(t)
			if theirsFirst {
				x.nft(theirRules, "-f", "-")
			}
			x.commit()
			if !theirsFirst {
				x.nft(theirRules, "-f", "-")
			}
			for _, to := range []string{
				"203.0.113.1:80", "203.0.113.1:81", "203.0.113.1:30080", "203.0.113.1:30081", "172.20.0.9:80", "172.16.0.1:80",
			} {
				for _, from := range []*netns.Namespace{x.client, x.node} {
					x.expect(from, to, "served by pod")
				}
			}
		})
	}
}

// TestReject_WithoutOtherTranslators: where no other program translates, we reject or drop what we do not serve.
func TestReject_WithoutOtherTranslators(t *testing.T) {
	x := newTranslators(t)
	x.commit()
	for to, want := range map[string]struct{ client, node string }{
		"172.16.0.1:80":     {"served by pod", "served by pod"},
		"172.16.0.1:81":     {"rejected", "rejected"},
		"172.16.0.2:80":     {"rejected", "rejected"},
		"172.20.0.9:80":     {silence, silence},
		"203.0.113.1:80":    {"rejected", "rejected"},
		"203.0.113.1:81":    {silence, "served by pod"}, // the node may use endpoints elsewhere
		"203.0.113.1:30080": {"rejected", "rejected"},
		"203.0.113.1:30081": {silence, "served by pod"},
		"203.0.113.1:9":     {"rejected", "rejected"}, // by the node, which has no such port
	} {
		x.expect(x.client, to, want.client)
		x.expect(x.node, to, want.node)
	}
}

// TestTranslation_FlowOlderThanRules: rules neither rewrite nor reject packets of a flow that the kernel tracked,
// because of a firewall, before the first NAT chain existed. The kernel never translates that flow. (With ClientIP
// affinity, the datagrams went to the pod, at the port of the frontend.)
func TestTranslation_FlowOlderThanRules(t *testing.T) {
	const port = 9000
	x := newTranslators(t)
	x.nft(`table inet firewall { chain forward { type filter hook forward priority 0; ct state new counter; }; }`, "-f", "-")
	pod := netip.AddrPortFrom(netip.MustParseAddr("10.244.1.10"), 9001)
	endpoints := []service.Endpoint{{AddrPort: pod}}
	vips := map[string]int{"172.16.0.21": 600, "172.16.0.22": 0}
	for vip, seconds := range vips {
		x.serveOne(vip, service.PortView{
			ClusterIP: netip.MustParseAddr(vip), Port: port, Protocol: service.UDP, HasAny: true, Cluster: endpoints, AffinitySeconds: seconds,
		})
	}
	atPod, err := x.pod.ListenPacket("udp", netip.AddrPortFrom(pod.Addr(), port).String())
	check(t, err)
	t.Cleanup(func() { check(t, atPod.Close()) })
	flows := map[string]*netnstest.Flow{}
	for vip := range vips {
		flows[vip], err = netnstest.OpenFlow(t.Context(), x.client, netip.AddrPort{}, netip.AddrPortFrom(netip.MustParseAddr(vip), port))
		check(t, err)
		t.Cleanup(func() { check(t, flows[vip].Close()) })
		check(t, flows[vip].Send())
	}
	x.commit()
	for range 5 {
		for vip, flow := range flows {
			if err := flow.Send(); err != nil { // the error of the datagram before
				t.Errorf("a flow to %s: %v", vip, err)
			}
		}
	}
	check(t, atPod.SetReadDeadline(time.Now().Add(200*time.Millisecond)))
	if n, from, err := atPod.ReadFrom(make([]byte, 16)); err == nil {
		t.Errorf("%d bytes from %v came to port %d of the pod, where no Service sends", n, from, port)
	}
}

// TestAffinity_NodesOwnEndpoints: a frontend with affinity serves two endpoints at the node's address, one of which has
// the frontend's address and port. (Once packets left the node for an address of 240.0.0.0/4 whenever this endpoint was
// chosen: the kernel does not translate packets that already have its address.)
func TestAffinity_NodesOwnEndpoints(t *testing.T) {
	x := newTranslators(t)
	nodeIP := netip.MustParseAddr("203.0.113.1")
	endpoints := []service.Endpoint{{AddrPort: netip.AddrPortFrom(nodeIP, 8000)}, {AddrPort: netip.AddrPortFrom(nodeIP, 8001)}}
	for i, e := range endpoints {
		netnstest.Serve(t, x.node, string('a'+rune(i)), e.AddrPort)
	}
	x.serveOne("own", service.PortView{
		ClusterIP: netip.MustParseAddr("172.16.0.31"), ExternalIPs: []netip.Addr{nodeIP}, Port: 8000, NodePort: 8001,
		HasAny: true, Cluster: endpoints, AffinitySeconds: 600,
	})
	x.commit()
	served := map[string]int{}
	for range 24 {
		x.nft("", "flush", "map", "ip", render.TableName, render.SetName("clients")+"-"+x.chain("service-", "/own/"))
		served[x.ask(x.client, "203.0.113.1:8000", testenv.Patience)]++
	}
	if served["served by a"] == 0 || served["served by b"] == 0 || len(served) != 2 {
		t.Errorf("24 connections were %v, want some to each endpoint and no others", served)
	}
}

// chain returns the chain whose name has a beginning and a part.
func (x *translators) chain(beginning, part string) string {
	x.Helper()
	for _, o := range x.read() {
		if o.ID.Container == "chain" && strings.HasPrefix(o.ID.Name, beginning) && strings.Contains(o.ID.Name, part) {
			return o.ID.Name
		}
	}
	x.Fatalf("no chain begins with %s and has %s", beginning, part)
	return ""
}
