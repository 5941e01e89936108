// SPDX-License-Identifier: Apache-2.0

package inspection

import (
	"context"
	"os/exec"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// TestKernelDump_UnprintableRules: the dump names the tables that iptables-save cannot print, and contains all tables
// as nft prints them.
func TestKernelDump_UnprintableRules(t *testing.T) {
	testenv.NeedsTool(t, "nft", "nftables")
	node := netnstest.New(t, "node")
	out, err := netnstest.Output(node, exec.Command("sh", "-c", `for t in iptables-nft ip6tables-nft; do $t -A INPUT -p tcp --dport 7 -j ACCEPT; $t -t nat -N KUBE-SERVICES; $t -t mangle -N X; done
nft add rule ip nat KUBE-SERVICES ip daddr 192.0.2.9 dnat to 192.0.2.8
nft add set ip6 nat s '{ type ipv6_addr; }'
nft add rule ip6 nat KUBE-SERVICES ip6 saddr @s drop
nft add map ip mangle m '{ type mark : verdict; }'
nft add rule ip mangle X meta mark vmap @m`))
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for n, want := range [][]string{
		{"--dport 7", "iptables-nft-save cannot print table nat", "see nft-ruleset.txt"},
		{"--dport 7"},
		{"dnat to 192.0.2.8", "vmap @m", "ip6 saddr @s drop"},
	} {
		text := &strings.Builder{}
		if err := node.Do(func() error { return iptablesTools("")[n].run(context.Background(), text) }); err != nil {
			t.Error(err)
		}
		for _, w := range want {
			if !strings.Contains(text.String(), w) {
				t.Errorf("the dump lacks %q:\n%s", w, text)
			}
		}
	}
}
