// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/internal/host/bridge"
	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

// TestPreflight_PodsOnBridge: in each mode that translates, a preflight warns of a bridge with pods whose answers pass
// no rule, and not of a bridge of other containers.
func TestPreflight_PodsOnBridge(t *testing.T) {
	node, pod := netnstest.New(t, "node"), netnstest.New(t, "pod")
	if err := netns.Link(node, pod, netns.LinkSpec{NameA: "veth1", NameB: "eth0"}); err != nil {
		t.Fatal(err)
	}
	if err := node.Do(func() error {
		cni := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "cni0"}}
		if err := netlink.LinkAdd(cni); err != nil {
			return err
		}
		port, err := netlink.LinkByName("veth1")
		if err != nil {
			return err
		}
		return netlink.LinkSetMaster(port, cni)
	}); err != nil {
		t.Fatal(err)
	}
	if err := node.AddAddress("cni0", netip.MustParsePrefix("10.244.1.1/24")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		mode       setup.Mode
		pods, call string
		want       Result
		says       string
	}{
		{setup.NFTables, "10.244.0.0/16", "0", Warn, "cni0 takes packets between its pods past the rules (IPv4)"},
		{setup.IPTables, "", "0", Warn, "cni0 takes packets between its pods past the rules (IPv4)"},
		{setup.NFTables, "10.244.0.0/16", "1", OK, "cni0 takes packets between pods through the rules"},
		{setup.NFTables, "10.96.0.0/16", "0", OK, "none with pods"},
		{setup.Userspace, "10.244.0.0/16", "0", OK, ""},
	} {
		if err := node.Sysctl(bridge.Setting(service.IPv4), c.call); err != nil {
			t.Fatal(err)
		}
		p := newPreflight(t, "--cluster-cidr", c.pods, "--hostname-override", "node")
		p.backend.Mode = c.mode
		if err := node.Do(func() error { p.bridges(); return nil }); err != nil {
			t.Fatal(err)
		}
		var said []string
		for _, check := range p.report.Checks {
			said = append(said, check.Message)
		}
		text := strings.Join(said, "; ")
		if p.report.Result != c.want || !strings.HasPrefix(text, c.says) || (c.says == "") != (text == "") {
			t.Errorf("%s, pods in %q, setting %s: %s, %q, want %s, %q", c.mode.Name, c.pods, c.call, p.report.Result, text, c.want, c.says)
		}
	}
}
