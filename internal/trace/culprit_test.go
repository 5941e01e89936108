// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"context"
	"testing"

	nfttrace "github.com/sluice-proxy/sluice/dataplane/nftables/trace"
)

// TestNameCulprits: the rule that drops a packet is named, which is the main purpose of a trace.
func TestNameCulprits(t *testing.T) {
	const listed = `table inet fw {
	chain out { # handle 1
		type filter hook output priority filter; policy accept;
		ip daddr 10.244.1.0/24 drop # handle 4
		tcp dport { 1, 2,
			    3 } counter packets 1 bytes 60 reject # handle 14
	}
}
`
	for _, c := range []struct {
		handle             uint64
		listed, text, want string
	}{
		{4, listed, "(…)", "ip daddr 10.244.1.0/24 drop"},
		{14, listed, "(lookup, …)", "tcp dport { 1, 2, 3 } counter packets 1 bytes 60 reject"},
		{5, listed, "(…)", "(…) see: nft -a list chain inet fw out"},
		{4, "", "", "see: nft -a list chain inet fw out"},
		{4, listed, "ip daddr 10.0.0.1 drop", "ip daddr 10.0.0.1 drop"},
	} {
		step := nfttrace.Step{Table: "inet fw", Chain: "out", Handle: c.handle, Text: c.text}
		nameCulprits(t.Context(), []Path{{By: &step}, {}}, func(context.Context, string, string) string { return c.listed })
		if step.Text != c.want {
			t.Errorf("handle %d of %q: %q, want %q", c.handle, c.text, step.Text, c.want)
		}
	}
}
