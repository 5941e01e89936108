// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/observe/health"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// TestUnservedFamily_Finding: the finding lasts as long as the Node has an InternalIP of a family that is not served,
// whenever that begins.
func TestUnservedFamily_Finding(t *testing.T) {
	var node *service.NodeObject
	u := &unservedFamily{
		backend: &setup.Backend{Mode: setup.NFTables, Domains: []proxy.Domain{{Family: service.IPv4}}},
		node:    func() *service.NodeObject { return node },
	}
	of := func(internal, deleted bool) *service.NodeObject {
		addresses := []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("fd00::1")}
		return &service.NodeObject{Addresses: addresses, Internal: service.PerFamily[bool]{true, internal}, Deleted: deleted}
	}
	for i, c := range []struct {
		node  *service.NodeObject
		found bool
	}{{nil, false}, {of(false, false), false}, {of(true, false), true}, {of(true, false), true}, {of(true, true), false}, {of(true, false), true}, {of(false, false), false}} {
		node = c.node
		found, since := u.findings(), u.since
		switch {
		case (len(found) == 1) != c.found:
			t.Errorf("step %d: %+v", i, found)
		case c.found:
			f := found[0]
			if f.Kind != health.FamilyNotServed || f.Unhealthy || f.Since.IsZero() || !strings.Contains(f.Problem, "IPv6 address fd00::1") {
				t.Errorf("step %d: %+v", i, f)
			}
			if again := u.findings(); again[0].Since != since {
				t.Errorf("step %d: it begins again", i)
			}
		}
	}
}

// TestUnservedFamily_AddedWhileServing: when the Node gets an unserved family while a proxy serves, the status has a
// finding with the reason, the node stays healthy, and the finding ends with the address.
func TestUnservedFamily_AddedWhileServing(t *testing.T) {
	if netnstest.Rerun(t) {
		return
	}
	addAddress(t)
	tool(t, "sysctl -q -w net.ipv4.ip_forward=1 net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.lo.disable_ipv6=1")
	manifests := t.TempDir()
	write := func(addresses ...string) {
		text := "apiVersion: v1\nkind: Node\nmetadata: {name: demo}\nstatus:\n  addresses:\n"
		for _, a := range addresses {
			text += "  - {type: InternalIP, address: \"" + a + "\"}\n"
		}
		check(t, os.WriteFile(filepath.Join(manifests, "node.yaml"), []byte(text), 0o600))
	}
	write("192.0.2.1")
	client, stop := serveTested(t, manifests, "--proxy-mode", "nftables")
	find := func() (found []inspect.Finding, status *inspect.Status) {
		status, err := client.Status(t.Context())
		check(t, err)
		for _, f := range status.Findings {
			if f.Kind == health.FamilyNotServed {
				found = append(found, f)
			}
		}
		return found, status
	}
	if found, _ := find(); len(found) > 0 {
		t.Errorf("a node without IPv6: %+v", found)
	}
	write("192.0.2.1", "fd00::1")
	testenv.Eventually(t, "the finding", func() bool { found, _ := find(); return len(found) == 1 })
	found, status := find()
	if !status.Healthy || found[0].Advice == "" || !strings.Contains(found[0].Problem, "mode nftables cannot serve IPv6 on this host: ") ||
		!strings.Contains(found[0].Problem, "IPv6 is switched off") {
		t.Errorf("%+v", found)
	}
	write("192.0.2.1")
	testenv.Eventually(t, "no finding", func() bool { found, _ := find(); return len(found) == 0 })
	stop()
}
