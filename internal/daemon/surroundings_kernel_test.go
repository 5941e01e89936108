// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/internal/explain"
	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/internal/terminal"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// awaitSettings waits until the findings about the node's settings are about the given things.
func awaitSettings(t *testing.T, client *inspect.Client, want ...string) (status *inspect.Status) {
	t.Helper()
	testenv.Eventually(t, "findings about "+strings.Join(want, ", "), func() (is bool) {
		var err error
		if status, err = client.Status(t.Context()); err != nil {
			return false
		}
		var about []string
		for _, f := range status.Findings {
			if f.Kind == "node-settings" {
				about = append(about, f.About)
			}
		}
		return slices.Equal(about, want)
	})
	return status
}

// TestSurroundings_NodeSettingsWatched: a node that does not forward, and a chain that drops, are findings while they
// last; the chains of others are listed, and explain names them.
func TestSurroundings_NodeSettingsWatched(t *testing.T) {
	if netnstest.Rerun(t) {
		return
	}
	addAddress(t)
	tool(t, "sysctl -q -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1")
	client, stop := serveDemo(t, "--proxy-mode", "nftables")
	if s := awaitSettings(t, client); len(s.OtherChains) > 0 {
		t.Errorf("%+v", s.OtherChains)
	}
	tool(t, "sysctl -q -w net.ipv4.ip_forward=0")
	if s := awaitSettings(t, client, "net.ipv4.ip_forward"); !s.Healthy || s.Findings[0].Since.IsZero() {
		t.Errorf("%+v", s.Findings)
	}
	tool(t, "sysctl -q -w net.ipv4.ip_forward=1")
	awaitSettings(t, client)
	tool(t, "nft add table inet fw")
	tool(t, "nft add chain inet fw f { type filter hook forward priority 0 ; policy drop ; }")
	s := awaitSettings(t, client, "inet fw f")
	if len(s.OtherChains) != 1 || s.OtherChains[0].Text != "inet fw f (hook forward, priority 0, policy drop)" {
		t.Errorf("%+v", s.OtherChains)
	}
	tool(t, "nft add rule inet fw f accept")
	awaitSettings(t, client)
	answer, err := client.Explain(t.Context(), explain.Flow{From: netip.MustParseAddrPort("10.244.1.5:0"), To: netip.MustParseAddrPort("172.30.0.41:80"), Protocol: service.TCP})
	check(t, err)
	var text terminal.Page
	answer.Print(&text)
	if !strings.HasSuffix(text.String(), "\n  inet fw f (hook forward, priority 0, policy drop)\n") {
		t.Errorf("%s", &text)
	}
	stop()
}

// TestSurroundings_ModeSettingsRestored: the proxy restores the sysctls of its mode while it serves.
func TestSurroundings_ModeSettingsRestored(t *testing.T) {
	if netnstest.Rerun(t) {
		return
	}
	addAddress(t)
	tool(t, "sysctl -q -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1")
	client, stop := serveDemo(t, "--proxy-mode", "iptables")
	const path = "/proc/sys/net/ipv4/conf/all/route_localnet"
	for range 2 {
		check(t, os.WriteFile(path, []byte("0"), 0o600))
		testenv.Eventually(t, "route_localnet", func() bool {
			text, err := os.ReadFile(path)
			return err == nil && string(text) == "1\n"
		})
	}
	awaitSettings(t, client)
	stop()
}
