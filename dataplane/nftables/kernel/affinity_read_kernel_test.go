// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

// TestKernelRemembered asks for clients that a map contains, contained before, and never contained.
func TestKernelRemembered(t *testing.T) {
	const rules = `
table ip kube-proxy {
	map clients-a {
		type ipv4_addr : ipv4_addr; size 100; flags dynamic,timeout
		elements = { 10.0.0.1 timeout 300s : 10.1.0.1, 10.0.0.2 timeout 10ms : 10.1.0.1 }
	}
}
table ip6 kube-proxy {
	map clients-a {
		type ipv6_addr : ipv6_addr; size 100; flags dynamic,timeout; elements = { fd00::1 timeout 300s : fd01::1 }
	}
}`
	err := netnstest.New(t, "remembered").Do(func() error {
		load := exec.Command("nft", "-f", "-")
		load.Stdin = strings.NewReader(rules)
		if out, err := load.CombinedOutput(); err != nil {
			t.Fatalf("nft: %v: %s", err, out)
		}
		socket, err := wire.Open()
		if err != nil {
			return err
		}
		defer socket.Close() // nothing was written
		time.Sleep(50 * time.Millisecond)
		for _, c := range []struct {
			name, client, endpoint string
		}{
			{"clients-a", "10.0.0.1", "10.1.0.1"}, {"clients-a", "10.0.0.2", ""}, {"clients-a", "10.0.0.3", ""},
			{"clients-b", "10.0.0.1", ""}, {"clients-a", "fd00::1", "fd01::1"}, {"clients-a", "fd00::2", ""},
		} {
			client := netip.MustParseAddr(c.client)
			got, known, err := Remembered(t.Context(), socket, service.FamilyOf(client), c.name, client)
			if err != nil || known != (c.endpoint != "") {
				t.Errorf("%s in %s: %v, %t, %v; want %q", c.client, c.name, got, known, err, c.endpoint)
			}
			if known && (got.Endpoint.String() != c.endpoint || got.Left < time.Minute || got.Left > 5*time.Minute) {
				t.Errorf("%s in %s: %v, want %q", c.client, c.name, got, c.endpoint)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
