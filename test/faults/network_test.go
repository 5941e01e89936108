package faults

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
)

// network is one node between a client and the pods behind the live Services:
//
//	client .10 ── 203.0.113.0/24 ── node ── 10.244.1.0/24 ── pods .10 to .49
type network struct {
	client, node, pods *netns.Namespace
}

// The node's addresses on the client's link, for node ports.
var nodeAddrs = service.PerFamily[netip.Addr]{
	service.IPv4: netip.MustParseAddr("203.0.113.1"),
	service.IPv6: netip.MustParseAddr("2001:db8:ffff::1"),
}

func newNetwork(t *testing.T) *network {
	t.Helper()
	n := &network{client: newHost(t, "client"), node: newHost(t, "node"), pods: newHost(t, "pods")}
	for key, value := range map[string]string{
		"net.ipv4.ip_forward": "1", "net.ipv6.conf.all.forwarding": "1",
		// What is not translated is answered at once, so that the client does
		// not spend the test waiting.
		"net.ipv4.icmp_ratelimit": "0", "net.ipv6.icmp.ratelimit": "0",
	} {
		check(t, n.node.Sysctl(key, value))
	}
	check(t, netns.Link(n.node, n.client, netns.LinkSpec{
		NameA: "to-client", AddrsA: prefixes("203.0.113.1/24", "2001:db8:ffff::1/64"),
		NameB: "eth0", AddrsB: prefixes("203.0.113.10/24", "2001:db8:ffff::10/64"),
	}))
	check(t, netns.Link(n.node, n.pods, netns.LinkSpec{
		NameA: "to-pods", AddrsA: prefixes("10.244.1.1/24", "fd00:10:244:1::1/64"), NameB: "eth0",
	}))
	for _, s := range liveServices {
		for i := range s.pods() {
			n.startPod(t, s, i)
		}
	}
	for _, p := range []string{"0.0.0.0/0", "::/0"} {
		prefix := netip.MustParsePrefix(p)
		family := service.FamilyOf(prefix.Addr())
		check(t, n.client.AddRoute(prefix, nodeAddrs[family]))
		via := service.PerFamily[string]{service.IPv4: "10.244.1.1", service.IPv6: "fd00:10:244:1::1"}[family]
		check(t, n.pods.AddRoute(prefix, netip.MustParseAddr(via)))
	}
	return n
}

// startPod serves at a pod's addresses.
func (n *network) startPod(t *testing.T, s liveService, i int) {
	t.Helper()
	for _, family := range service.Families {
		addr := s.pod(family, i)
		bits := service.PerFamily[int]{service.IPv4: 24, service.IPv6: 64}[family]
		check(t, n.pods.AddAddress("eth0", netip.PrefixFrom(addr, bits)))
		b, err := netns.StartBackend(n.pods, s.podName(i), netip.AddrPortFrom(addr, podPort))
		check(t, err)
		t.Cleanup(func() { check(t, b.Close()) })
	}
}

func newHost(t *testing.T, name string) *netns.Namespace {
	t.Helper()
	n, err := netns.New(name)
	check(t, err)
	t.Cleanup(func() { check(t, n.Close()) })
	return n
}

func prefixes(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

// check fails the test at an error of the scenery.
func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// addr makes an address of a family out of a template with one number.
func addr(family service.Family, ipv4, ipv6 string, n int) netip.Addr {
	template := service.PerFamily[string]{service.IPv4: ipv4, service.IPv6: ipv6}[family]
	return netip.MustParseAddr(fmt.Sprintf(template, n))
}
