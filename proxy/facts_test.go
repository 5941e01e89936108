// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/sluice-proxy/sluice/service"
)

func addrs(text ...string) (list []netip.Addr) {
	for _, t := range text {
		list = append(list, netip.MustParseAddr(t))
	}
	return list
}

// TestFacts_FromNodeSettingsAndHost: the facts combine the Node, the settings and the host's addresses, and are
// announced only if they change.
func TestFacts_FromNodeSettingsAndHost(t *testing.T) {
	f := newFacts(NodeSettings{Name: "n1", NodePortRanges: []netip.Prefix{netip.MustParsePrefix("192.168.0.0/24")}})
	if got := f.current.Load(); got.NodePorts[service.IPv4].All || !got.NodePorts[service.IPv6].All {
		t.Fatalf("a family without a range has no limit, one with a range and no match serves nowhere: %+v", got.NodePorts)
	}
	changed := f.update(func(f *facts) {
		f.node = &service.NodeObject{Name: "n1", Zone: "za", Addresses: addrs("192.168.0.2", "2001:db8::2", "203.0.113.9")}
		f.hosts = addrs("127.0.0.1", "192.168.1.2", "192.168.0.2", "192.168.0.2", "2001:db8::2")
		f.cidrs = []netip.Prefix{netip.MustParsePrefix("172.30.0.0/16")}
	})
	if next := f.current.Load(); !changed || next.Zone != "za" || next.NodeIPs[service.IPv4] != addrs("192.168.0.2")[0] ||
		next.NodeIPs[service.IPv6] != addrs("2001:db8::2")[0] || len(next.ServiceCIDRs[service.IPv4]) != 1 ||
		fmt.Sprint(next.NodePorts[service.IPv4].Addresses) != "[192.168.0.2]" {
		t.Fatalf("%+v", next)
	}
	if f.update(func(f *facts) { f.node.Deleting = true }) {
		t.Fatal("a change that no rule depends on was announced")
	}
}

// TestFacts_PrimaryNodePortAddresses: with the primary setting, node ports use the node's own address and none until it
// is known. A family without a node IP has no restriction.
func TestFacts_PrimaryNodePortAddresses(t *testing.T) {
	f := newFacts(NodeSettings{Name: "n1", NodePortPrimary: true})
	for _, family := range service.Families {
		if got := f.current.Load().NodePorts[family]; got.All || len(got.Addresses) > 0 {
			t.Errorf("%v: the Node is unknown, and node ports answer: %+v", family, got)
		}
	}
	f.update(func(f *facts) {
		f.setNode(&service.NodeObject{Name: "n1", Addresses: addrs("192.168.0.2", "192.168.1.2")})
	})
	next := f.current.Load()
	if got := next.NodePorts[service.IPv4]; got.All || fmt.Sprint(got.Addresses) != "[192.168.0.2]" {
		t.Errorf("IPv4: %+v", got)
	}
	if got := next.NodePorts[service.IPv6]; !got.All {
		t.Errorf("a family without a node IP has no limit: %+v", got)
	}
}

// TestFacts_RecreatedNodeKeepsAddresses: a recreated Node keeps its addresses and pod CIDRs until controllers set new
// ones, so node ports keep working.
func TestFacts_RecreatedNodeKeepsAddresses(t *testing.T) {
	f := newFacts(NodeSettings{Name: "n1", NodePortPrimary: true, DetectLocal: DetectNodeCIDR})
	pods := service.PerFamily[netip.Prefix]{netip.MustParsePrefix("10.244.1.0/24"), {}}
	f.update(func(f *facts) {
		f.setNode(&service.NodeObject{Name: "n1", Addresses: addrs("192.168.0.2", "2001:db8::2"), PodCIDRs: pods})
	})
	if f.update(func(f *facts) { f.setNode(&service.NodeObject{Name: "n1"}) }) {
		t.Errorf("rules change while the new object is empty: %+v", f.current.Load())
	}
	f.update(func(f *facts) { f.setNode(&service.NodeObject{Name: "n1", Addresses: addrs("192.168.0.3")}) })
	if got := f.current.Load().NodePorts[service.IPv4].Addresses; fmt.Sprint(got) != "[192.168.0.3]" {
		t.Errorf("node ports answer on %v, want the new address", got)
	}
}

// TestFacts_NodeBackInStepsKeepsEachFamily: when controllers set a recreated Node's addresses and pod CIDRs one family
// after the other, each family keeps its facts until its own values change. Node ports of the other family never open
// on all addresses.
func TestFacts_NodeBackInStepsKeepsEachFamily(t *testing.T) {
	was := &service.NodeObject{Name: "n1", Addresses: addrs("2001:db8::2", "192.168.0.2"), PodCIDRs: service.PerFamily[netip.Prefix]{
		netip.MustParsePrefix("10.244.1.0/24"), netip.MustParsePrefix("fd00::/64")}}
	for _, first := range service.Families {
		f := newFacts(NodeSettings{Name: "n1", NodePortPrimary: true, DetectLocal: DetectNodeCIDR})
		f.update(func(f *facts) { f.setNode(was) })
		settled := f.current.Load()
		deleted := *was
		deleted.Deleted = true
		half := &service.NodeObject{Name: "n1", Addresses: slices.DeleteFunc(slices.Clone(was.Addresses), func(a netip.Addr) bool {
			return service.FamilyOf(a) != first
		})}
		half.PodCIDRs[first] = was.PodCIDRs[first]
		for _, now := range []*service.NodeObject{&deleted, {Name: "n1"}, half, was} {
			if f.update(func(f *facts) { f.setNode(now) }) {
				t.Errorf("%v first: rules change with %+v: %+v, were %+v", first, now, f.current.Load(), settled)
			}
		}
		other := &service.NodeObject{Name: "n1", Addresses: addrs(map[service.Family]string{service.IPv4: "192.168.0.3", service.IPv6: "2001:db8::3"}[first])}
		f.update(func(f *facts) { f.setNode(other) })
		for _, family := range service.Families {
			got := f.current.Load()
			if ports := got.NodePorts[family]; ports.All || len(ports.Addresses) != 1 || (ports.Addresses[0] == settled.NodePorts[family].Addresses[0]) == (family == first) ||
				got.Detect[family] != settled.Detect[family] {
				t.Errorf("%v has another address: %v ports at %+v, pods in %+v", first, family, ports, got.Detect[family])
			}
		}
	}
}

// TestFacts_HostAddressesOnlyOnRequest: the facts contain the host's addresses only if the settings request them.
func TestFacts_HostAddressesOnlyOnRequest(t *testing.T) {
	hosts := addrs("fe80::1", "2001:db8::2", "::1", "192.168.0.2", "127.0.0.1", "169.254.20.10", "192.168.0.2")
	for _, c := range []struct {
		asked bool
		want  string
	}{{false, "[] []"}, {true, "[169.254.20.10 192.168.0.2] [2001:db8::2]"}} {
		got := NodeSettings{Name: "n1", HostAddresses: c.asked}.Facts(nil, hosts, nil, nil).NodePorts
		if text := fmt.Sprint(got[service.IPv4].Host, got[service.IPv6].Host); text != c.want {
			t.Errorf("asked %t: got %s, want %s", c.asked, text, c.want)
		}
	}
	f := newFacts(NodeSettings{Name: "n1"})
	if f.update(func(f *facts) { f.hosts = hosts }) {
		t.Error("an address that nobody asked for was announced")
	}
}

// TestFacts_ServerAddressesNeverBound: Binds rejects addresses of the API server, the host and the Node, for backends
// that make addresses local.
func TestFacts_ServerAddressesNeverBound(t *testing.T) {
	f := newFacts(NodeSettings{Name: "n1", HostAddresses: true})
	server := addrs("203.0.113.6", "2001:db8::6")
	if !f.update(func(f *facts) { f.servers, f.hosts = server, addrs("192.168.0.2") }) || f.update(func(f *facts) { f.servers = server }) {
		t.Error("the API server's addresses are not announced, or twice")
	}
	f.update(func(f *facts) {
		f.node = &service.NodeObject{Name: "n1", Addresses: addrs("192.168.0.3", "2001:db8::3")}
	})
	now := f.current.Load()
	for text, want := range map[string]bool{
		"203.0.113.6": false, "2001:db8::6": false, "192.168.0.2": false, "192.168.0.3": false, "2001:db8::3": false,
		"203.0.113.7": true, "2001:db8::7": true,
	} {
		if got := now.Binds(&service.Exposure{Frontend: service.Frontend{Addr: addrs(text)[0]}, Kind: service.ExternalIP}); got != want {
			t.Errorf("%s may be bound: %t, want %t", text, got, want)
		}
	}
	f = newFacts(NodeSettings{Name: "n1"})
	if f.update(func(f *facts) { f.servers = server }) {
		t.Error("an address that no rule depends on was announced")
	}
}

// TestFacts_DetectLocalModes: each mode of local-traffic detection gives its own detector, and a mode without a CIDR is
// not configured.
func TestFacts_DetectLocalModes(t *testing.T) {
	node := &service.NodeObject{PodCIDRs: service.PerFamily[netip.Prefix]{netip.MustParsePrefix("10.244.1.0/24"), {}}}
	cluster := service.PerFamily[netip.Prefix]{netip.MustParsePrefix("10.244.0.0/16"), {}}
	for _, c := range []struct {
		settings NodeSettings
		want     string
	}{
		{NodeSettings{ClusterCIDRs: cluster}, "{10.244.0.0/16 }"},
		{NodeSettings{DetectLocal: DetectNodeCIDR, ClusterCIDRs: cluster}, "{10.244.1.0/24 }"},
		{NodeSettings{DetectLocal: DetectBridgeInterface, Interface: "cbr0"}, "{invalid Prefix cbr0}"},
		{NodeSettings{DetectLocal: DetectInterfaceNamePrefix, Interface: "veth"}, "{invalid Prefix veth+}"},
	} {
		if got := fmt.Sprint(c.settings.detector(service.IPv4, node)); got != c.want {
			t.Errorf("%+v: got %s, want %s", c.settings, got, c.want)
		}
	}
	if (NodeSettings{}).detector(service.IPv6, nil).Configured() {
		t.Error("detection without a CIDR must count as not configured")
	}
	if (NodeSettings{DetectLocal: DetectNodeCIDR}).detector(service.IPv4, nil).Configured() {
		t.Error("an unknown node has no pod CIDR")
	}
}

// TestNodeSettings_Invalid: validate rejects settings without a name, with an unknown detection mode or without its
// interface.
func TestNodeSettings_Invalid(t *testing.T) {
	for _, bad := range []NodeSettings{{}, {Name: "n", DetectLocal: "Guess"}, {Name: "n", DetectLocal: DetectBridgeInterface}} {
		if bad.validate() == nil {
			t.Errorf("accepted %+v", bad)
		}
	}
}
