// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
)

func TestNodeSettings(t *testing.T) {
	prefix := netip.MustParsePrefix
	for name, c := range map[string]struct {
		words []string
		want  proxy.NodeSettings
	}{
		"defaults": {nil, proxy.NodeSettings{DetectLocal: proxy.DetectClusterCIDR, LocalhostNodePorts: true}},
		"ranges": {
			[]string{"--cluster-cidr=010.244.0.1/16, fd00::1/48", "--masquerade-all", "--nodeport-addresses=192.168.1.7/24,fd00:1::/64"},
			proxy.NodeSettings{
				DetectLocal: proxy.DetectClusterCIDR, MasqueradeAll: true,
				ClusterCIDRs:   service.PerFamily[netip.Prefix]{prefix("10.244.0.0/16"), prefix("fd00::/48")},
				NodePortRanges: []netip.Prefix{prefix("192.168.1.0/24"), prefix("fd00:1::/64")},
			},
		},
		"an IPv4 range as an IPv6 one": {[]string{"--cluster-cidr=::ffff:10.244.0.0/112"}, proxy.NodeSettings{
			DetectLocal: proxy.DetectClusterCIDR, LocalhostNodePorts: true, ClusterCIDRs: service.PerFamily[netip.Prefix]{service.IPv4: prefix("10.244.0.0/16")}}},
		"bridge": {[]string{"--detect-local-mode=BridgeInterface", "--pod-bridge-interface=cni0", "--pod-interface-name-prefix=cali", "--cluster-cidr=10.0.0.0/8"},
			proxy.NodeSettings{DetectLocal: proxy.DetectBridgeInterface, Interface: "cni0", LocalhostNodePorts: true}},
		"prefix": {[]string{"--detect-local-mode=InterfaceNamePrefix", "--pod-bridge-interface=cni0", "--pod-interface-name-prefix=cali"},
			proxy.NodeSettings{DetectLocal: proxy.DetectInterfaceNamePrefix, Interface: "cali", LocalhostNodePorts: true}},
		"node": {[]string{"--detect-local-mode=NodeCIDR", "--cluster-cidr=nonsense"},
			proxy.NodeSettings{DetectLocal: proxy.DetectNodeCIDR, LocalhostNodePorts: true}},
		"primary": {[]string{"--nodeport-addresses=primary"}, proxy.NodeSettings{DetectLocal: proxy.DetectClusterCIDR, NodePortPrimary: true}},
		"words": {[]string{"--nodeport-addresses=primary,localhost,10.0.0.0/8"}, proxy.NodeSettings{DetectLocal: proxy.DetectClusterCIDR, LocalhostNodePorts: true,
			NodePortPrimary: true, NodePortRanges: []netip.Prefix{prefix("127.0.0.0/8"), prefix("::1/128"), prefix("10.0.0.0/8")}}},
		"all": {[]string{"--nodeport-addresses=all"}, proxy.NodeSettings{DetectLocal: proxy.DetectClusterCIDR, LocalhostNodePorts: true,
			NodePortRanges: []netip.Prefix{prefix("0.0.0.0/0"), prefix("::/0")}}},
		"address":       {[]string{"--bind-address=192.0.2.7"}, proxy.NodeSettings{DetectLocal: proxy.DetectClusterCIDR, LocalhostNodePorts: true, Address: netip.MustParseAddr("192.0.2.7")}},
		"no address":    {[]string{"--bind-address=::"}, proxy.NodeSettings{DetectLocal: proxy.DetectClusterCIDR, LocalhostNodePorts: true}},
		"mode nftables": {[]string{"--proxy-mode=nftables"}, proxy.NodeSettings{DetectLocal: proxy.DetectClusterCIDR, NodePortPrimary: true}},
	} {
		t.Run(name, func(t *testing.T) {
			loaded, _ := load(t, append(c.words, "--hostname-override= Node-1 ")...)
			c.want.Name, c.want.SelfTest = "node-1", service.PreferredSelfTest
			c.want.Limit = service.Limit{Objects: 50_000, Layout: service.EndpointsOnce}
			if s, err := loaded.NodeSettings(ModeIPTables); err != nil || !reflect.DeepEqual(s, c.want) {
				t.Errorf("%+v, %v\nwant %+v", s, err, c.want)
			}
		})
	}
}

// TestNodeSettings_IPVS: IPVS mode needs the host's addresses, because virtual servers have single addresses.
func TestNodeSettings_IPVS(t *testing.T) {
	c, _ := load(t, "--hostname-override=n", "--proxy-mode=ipvs", "--ipvs-exclude-cidrs=192.0.2.1/24,fd00::/8")
	s, err := c.NodeSettings(ModeIPVS)
	if want := (proxy.NodeSettings{Name: "n", DetectLocal: proxy.DetectClusterCIDR, HostAddresses: true,
		Limit: service.Limit{Objects: 50_000, Layout: service.EndpointsEach}}); err != nil || !reflect.DeepEqual(s, want) {
		t.Errorf("%+v, %v", s, err)
	}
	want := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("fd00::/8")}
	if got := c.ExcludedCIDRs(); !reflect.DeepEqual(got, want) || c.Scheduler() != "rr" {
		t.Errorf("excluded %v, scheduler %q", got, c.Scheduler())
	}
	if c, _ := load(t, "--proxy-mode=ipvs", "--ipvs-scheduler=sed"); c.Scheduler() != "sed" || c.ExcludedCIDRs() != nil {
		t.Errorf("excluded %v, scheduler %q", c.ExcludedCIDRs(), c.Scheduler())
	}
}

// TestNodeSettings_UnsetModeLikeIPTables: if nftables serves because no mode is set, node ports answer and packets are
// masqueraded as in iptables mode.
func TestNodeSettings_UnsetModeLikeIPTables(t *testing.T) {
	c, _ := load(t, "--hostname-override=n", "--masquerade-all")
	s, err := c.NodeSettings(ModeNFTables)
	if want := (proxy.NodeSettings{Name: "n", DetectLocal: proxy.DetectClusterCIDR, MasqueradeAll: true, SelfTest: service.PreferredSelfTest,
		Limit: service.Limit{Objects: 50_000, Layout: service.SlotsEach}}); err != nil || !reflect.DeepEqual(s, want) {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestHealthPort: other hosts reach the health server unless it is disabled or on localhost.
func TestHealthPort(t *testing.T) {
	for _, c := range []struct {
		words []string
		want  uint16
	}{
		{nil, 10256},
		{[]string{"--healthz-bind-address=[::]:10300"}, 10300},
		{[]string{"--healthz-bind-address=192.0.2.1"}, 10256},
		{[]string{"--healthz-bind-address=127.0.0.1:10256"}, 0},
		{[]string{"--healthz-bind-address=[::1]:10256"}, 0},
		{[]string{"--healthz-port=0"}, 0},
	} {
		if loaded, _ := load(t, c.words...); loaded.HealthPort() != c.want {
			t.Errorf("%v: %d, want %d", c.words, loaded.HealthPort(), c.want)
		}
	}
}

// TestNodeName_HostName: without a configured name, the node has the name of the host.
func TestNodeName_HostName(t *testing.T) {
	c, _ := load(t)
	if name, err := c.NodeName(); err != nil || name == "" {
		t.Errorf("%q, %v", name, err)
	}
}

const localhostGate = "--feature-gates=KubeProxyNFTablesLocalhostNodePorts=true"

// TestNodeSettings_LocalhostNodePorts: node ports answer on localhost unless that is disabled, or the ranges omit it
// (in iptables mode, those of IPv4); in nftables mode only if that is configured, or no mode is set.
func TestNodeSettings_LocalhostNodePorts(t *testing.T) {
	none, both := service.PerFamily[bool]{}, service.PerFamily[bool]{true, true}
	localhostOn := "--config=" + write(t, sluiceHead+"nftables: {localhostNodePorts: true}\n")
	localhostOff := "--config=" + write(t, sluiceHead+"nftables: {localhostNodePorts: false}\n")
	for _, c := range []struct {
		words    []string
		iptables bool
		forward  service.PerFamily[bool]
	}{
		{nil, true, both},
		{[]string{"--proxy-mode=nftables"}, false, none},
		{[]string{"--proxy-mode=nftables", localhostOn}, false, both},
		{[]string{"--proxy-mode=nftables", localhostOff}, false, none},
		{[]string{"--proxy-mode=nftables", localhostOn, "--nodeport-addresses=127.0.0.0/8"}, true, both},
		{[]string{"--proxy-mode=nftables", localhostOn, "--nodeport-addresses=192.168.0.0/16"}, false, none},
		{[]string{"--proxy-mode=nftables", "--nodeport-addresses=127.0.0.0/8"}, true, none},
		{[]string{"--iptables-localhost-nodeports=false"}, false, none},
		{[]string{"--iptables-localhost-nodeports=false", "--proxy-mode=nftables"}, false, none},
		{[]string{localhostOff}, true, none},
		{[]string{"--nodeport-addresses=192.168.0.0/16"}, false, none},
		{[]string{"--nodeport-addresses=192.168.0.0/16,127.0.0.0/8"}, true, both},
		{[]string{"--nodeport-addresses=127.0.0.1/32"}, true, both},
		{[]string{"--nodeport-addresses=0.0.0.0/0"}, true, both},
		{[]string{"--nodeport-addresses=fd00::/8"}, true, none},
		{[]string{"--nodeport-addresses=fd00::/8,::1/128"}, true, both},
		{[]string{"--nodeport-addresses=primary"}, false, none},
		{[]string{"--nodeport-addresses=primary,localhost"}, true, both},
		{[]string{"--nodeport-addresses=all"}, true, both},
		{[]string{"--nodeport-addresses=primary,all"}, true, both},
		{[]string{"--proxy-mode=nftables", localhostOn, "--nodeport-addresses=primary,192.168.0.0/16"}, false, none},
		{[]string{"--proxy-mode=nftables", "--nodeport-addresses=primary,localhost"}, true, none},
		{[]string{"--proxy-mode=nftables", "--nodeport-addresses=primary,localhost", localhostGate}, true, both},
		{[]string{"--proxy-mode=nftables", "--nodeport-addresses=localhost", localhostGate}, true, both},
		{[]string{"--proxy-mode=nftables", "--nodeport-addresses=all,127.0.0.0/8", localhostGate}, true, service.PerFamily[bool]{service.IPv4: true}},
		{[]string{"--proxy-mode=nftables", "--nodeport-addresses=primary,127.0.0.0/8", localhostGate}, true, service.PerFamily[bool]{service.IPv4: true}},
		{[]string{"--proxy-mode=nftables", "--nodeport-addresses=0.0.0.0/0,::1/128", localhostGate}, true, service.PerFamily[bool]{service.IPv6: true}},
		{[]string{"--proxy-mode=nftables", "--nodeport-addresses=all", localhostGate}, true, none},
		{[]string{"--proxy-mode=nftables", localhostGate}, false, none},
		{[]string{"--nodeport-addresses=127.0.0.0/8", "--iptables-localhost-nodeports=false"}, false, none},
	} {
		loaded, _ := load(t, c.words...)
		s, err := loaded.NodeSettings(ModeIPTables)
		if err != nil || s.LocalhostNodePorts != c.iptables || loaded.ForwardsLocalhost() != c.forward {
			t.Errorf("%v: %v, %v, %v; want %v, %v", c.words, s.LocalhostNodePorts, loaded.ForwardsLocalhost(), err, c.iptables, c.forward)
		}
		if s, err := loaded.NodeSettings(ModeNFTables); err != nil || s.LocalhostNodePorts {
			t.Errorf("%v: in nftables mode %v, %v", c.words, s.LocalhostNodePorts, err)
		}
	}
}

// TestDeniedPorts_OwnAddresses: the ports of all addresses on which Sluice may listen are denied, together with the
// configured ones.
func TestDeniedPorts_OwnAddresses(t *testing.T) {
	var c Config
	c.KubeProxy.MetricsBindAddress, c.KubeProxy.HealthzBindAddress = "127.0.0.1:1", "[::]:2"
	c.Sluice.Healthz.ProbeAddress, c.Sluice.Inspection.BindAddress = "192.0.2.1:3", "0.0.0.0:4"
	c.Sluice.Addresses.DeniedPorts = []int32{22}
	if got := c.DeniedPorts(); !slices.Equal(got, []uint16{22, 1, 2, 3, 4}) {
		t.Errorf("denied ports %v", got)
	}
	if got := (&Config{}).DeniedPorts(); len(got) != 0 {
		t.Errorf("denied ports %v", got)
	}
}
