// SPDX-License-Identifier: Apache-2.0

package bridge

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

// TestFind: Find returns a bridge with a container and addresses, with the families whose setting does not pass its
// packets through the rules. It returns no bridge without containers or without addresses.
func TestFind(t *testing.T) {
	node, pod := netnstest.New(t, "node"), netnstest.New(t, "pod")
	check(t, netns.Link(node, pod, netns.LinkSpec{NameA: "veth1", NameB: "eth0"}))
	check(t, netns.Link(node, pod, netns.LinkSpec{NameA: "veth2", NameB: "eth1"}))
	check(t, node.Do(func() error {
		for _, name := range []string{"cni0", "empty", "bare"} {
			if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}); err != nil {
				return err
			}
		}
		return nil
	}))
	check(t, node.AddAddress("empty", netip.MustParsePrefix("10.9.0.1/24")))
	check(t, node.AddAddress("cni0", netip.MustParsePrefix("10.244.1.1/24")))
	check(t, node.AddAddress("cni0", netip.MustParsePrefix("fd00:10:244:1::1/64")))
	check(t, node.Do(func() error {
		for port, master := range map[string]string{"veth1": "cni0", "veth2": "bare"} {
			link, err := netlink.LinkByName(port)
			if err != nil {
				return err
			}
			bridge, err := netlink.LinkByName(master)
			if err != nil {
				return err
			}
			if err := netlink.LinkSetMaster(link, bridge); err != nil {
				return err
			}
		}
		return nil
	}))
	for _, c := range []struct {
		ipv4, ipv6 string
		want       []service.Family
	}{
		{"1", "1", nil}, {"0", "1", []service.Family{service.IPv4}}, {"0", "0", []service.Family{service.IPv4, service.IPv6}},
	} {
		check(t, node.Sysctl(Setting(service.IPv4), c.ipv4))
		check(t, node.Sysctl(Setting(service.IPv6), c.ipv6))
		var found []Bridge
		check(t, node.Do(func() (err error) { found, err = Find(); return err }))
		if len(found) != 1 || found[0].Name != "cni0" || found[0].Containers != 1 || !slices.Equal(found[0].Unruled, c.want) ||
			!slices.Contains(found[0].Ranges, netip.MustParsePrefix("10.244.1.0/24")) {
			t.Errorf("with %s and %s: %+v, want cni0 with %v unruled", c.ipv4, c.ipv6, found, c.want)
		}
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
