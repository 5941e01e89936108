package nftables

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

// TestKernelRemembered asks for clients that a set holds, has held, and never held.
func TestKernelRemembered(t *testing.T) {
	const rules = `
table ip kube-proxy {
	set clients-a { type ipv4_addr; size 100; flags dynamic,timeout; elements = { 10.0.0.1 timeout 300s, 10.0.0.2 timeout 10ms } }
}
table ip6 kube-proxy {
	set clients-a { type ipv6_addr; size 100; flags dynamic,timeout; elements = { fd00::1 timeout 300s } }
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
		defer socket.Close() //nolint:errcheck // nothing was written
		time.Sleep(50 * time.Millisecond)
		for _, c := range []struct {
			set, client string
			known       bool
		}{
			{"clients-a", "10.0.0.1", true}, {"clients-a", "10.0.0.2", false}, {"clients-a", "10.0.0.3", false},
			{"clients-b", "10.0.0.1", false}, {"clients-a", "fd00::1", true}, {"clients-a", "fd00::2", false},
		} {
			client := netip.MustParseAddr(c.client)
			left, known, err := Remembered(t.Context(), socket, service.FamilyOf(client), c.set, client)
			if err != nil || known != c.known || known && (left < time.Minute || left > 5*time.Minute) {
				t.Errorf("%s in %s: %v, %t, %v; want %t", c.client, c.set, left, known, err, c.known)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
