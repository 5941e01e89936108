// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/sluice-proxy/sluice/dataplane/conntrack"
	"github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// offloadNet is a node between a client and a pod, with a Service that the pod serves.
type offloadNet struct {
	*world
	client, pod   *netns.Namespace
	vip, endpoint netip.AddrPort
}

func newOffloadNet(t *testing.T, family service.Family) *offloadNet {
	t.Helper()
	at := map[service.Family][5]string{
		service.IPv4: {"192.0.2.1/24", "192.0.2.2/24", "10.1.0.1/24", "10.1.0.2/24", "172.16.0.1:80"},
		service.IPv6: {"2001:db8::1/64", "2001:db8::2/64", "fd10::1/64", "fd10::2/64", "[fd00::1]:80"},
	}[family]
	n := &offloadNet{vip: netip.MustParseAddrPort(at[4])}
	n.endpoint = netip.AddrPortFrom(netip.MustParsePrefix(at[3]).Addr(), 8080)
	network, err := netnstest.NewNetwork(netnstest.Plan{
		Cables: []netns.Cable{
			{Router: "node", Leaf: "client", Port: "eth0", AtRouter: netns.Prefixes(at[0]), AtLeaf: netns.Prefixes(at[1])},
			{Router: "node", Leaf: "pod", Port: "veth1", AtRouter: netns.Prefixes(at[2]), AtLeaf: netns.Prefixes(at[3])},
		},
		Servers: []netnstest.Server{{Name: "pod", Host: "pod", At: n.endpoint}},
	})
	check(t, err)
	t.Cleanup(func() { check(t, network.Close()) })
	n.world = newWorldOn(t, network.Hosts["node"], family, kernel.WriterConfig{})
	n.client, n.pod = network.Hosts["client"], network.Hosts["pod"]
	view := &service.View{Key: service.Key{Namespace: "ns", Name: "web"}}
	for _, protocol := range []service.Protocol{service.TCP, service.UDP} {
		view.Ports[family] = append(view.Ports[family], service.PortView{
			Name: protocol.String(), Protocol: protocol, Port: n.vip.Port(), ClusterIP: n.vip.Addr(), HasAny: true,
			Cluster: []service.Endpoint{{AddrPort: n.endpoint}},
		})
	}
	n.serve(view)
	n.commit()
	return n
}

// devices returns those of the node that routes packets.
func (n *offloadNet) devices() (all []kernel.Device) {
	n.Helper()
	check(n, n.node.Do(func() error {
		for _, name := range []string{"eth0", "veth1"} {
			link, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			all = append(all, kernel.Device{Index: link.Attrs().Index, Name: name})
		}
		return nil
	}))
	return all
}

// offloaded returns how many connections of a protocol the kernel offloads.
func (n *offloadNet) offloaded(protocol service.Protocol) (count int) {
	n.Helper()
	check(n, n.node.Do(func() error {
		return conntrack.Translated(n.Context(), n.family, func(c conntrack.Connection) {
			if c.Protocol == protocol.Number() && c.Offloaded {
				count++
			}
		})
	}))
	return count
}

// talk exchanges some lines, each of which must come back.
func (n *offloadNet) talk(s *netnstest.Session) {
	n.Helper()
	for i := range 300 {
		check(n, s.Echo(n.Context(), fmt.Sprint("line ", i)))
	}
}

func (n *offloadNet) connect() *netnstest.Session {
	n.Helper()
	s, err := netnstest.Connect(n.Context(), n.client, n.vip)
	check(n, err)
	return s
}

// TestOffload_ConnectionsGoOn: offloaded connections continue with the table and without it, while devices change, and
// even if a new policy would stop them. UDP is not offloaded.
func TestOffload_ConnectionsGoOn(t *testing.T) {
	if _, o := newOffload(t); o == nil {
		return
	}
	for _, family := range service.Families {
		n := newOffloadNet(t, family)
		o, err := in(n.node, kernel.NewOffload)
		check(t, err)
		check(t, o.Follow(n.devices()))
		s := n.connect()
		n.talk(s)
		if got := n.offloaded(service.TCP); got != 1 {
			t.Errorf("%s: %d connections are offloaded, want 1", family, got)
		}

		flow, err := netnstest.OpenFlow(t.Context(), n.client, netip.AddrPort{}, n.vip)
		check(t, err)
		for range 200 {
			_, err := flow.Ask(t.Context())
			check(t, err)
		}
		check(t, flow.Close())
		if got := n.offloaded(service.UDP); got != 0 {
			t.Errorf("%s: %d flows of UDP are offloaded", family, got)
		}

		n.nft("table inet engine { chain forward { type filter hook forward priority 0; tcp dport 8080 drop; }; }", "-f", "-")
		n.talk(s) // the caveat of docs/modes.md
		if other, err := netnstest.Connect(t.Context(), n.client, n.vip); err == nil {
			t.Errorf("%s: a new connection passes the policy: %v", family, other.Close())
		}
		n.nft("", "delete", "table", "inet", "engine")

		check(t, o.Follow(n.devices()[:1])) // the answers go by the rules
		n.talk(s)
		check(t, o.Follow(n.devices()))
		n.talk(s)
		check(t, o.Close())
		n.talk(s)
		testenv.Eventually(t, "the connection is not offloaded without a flowtable", func() bool { return n.offloaded(service.TCP) == 0 })
		n.talk(s)
		o, err = in(n.node, kernel.NewOffload)
		check(t, err)
		check(t, o.Follow(n.devices()))
		n.talk(s)
		if got := n.offloaded(service.TCP); got != 1 {
			t.Errorf("%s: %d connections are offloaded again, want 1", family, got)
		}
		check(t, s.Close())
		n.talkAfterTheDeviceVanished(o)
		check(t, o.Close())
	}
}

// talkAfterTheDeviceVanished deletes the pod's device under an offloaded connection. The kernel ends the offload, and
// the flowtable takes further devices.
func (n *offloadNet) talkAfterTheDeviceVanished(o *kernel.Offload) {
	n.Helper()
	s, devices := n.connect(), n.devices()
	n.talk(s)
	check(n, n.node.DeleteLink("veth1"))
	check(n, o.Follow(devices)) // as if the news had not arrived
	check(n, o.Follow(devices[:1]))
	if o.Devices() != 1 {
		n.Errorf("%s: %d devices, want 1", n.family, o.Devices())
	}
	testenv.Eventually(n, "a connection without a device is not offloaded", func() bool { return n.offloaded(service.TCP) == 0 })
	check(n, s.Reset())
}
