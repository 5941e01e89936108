// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"testing"

	"github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/dataplane/nftables/rules"
	"github.com/sluice-proxy/sluice/service"
)

// TestOffloadChain: the rule has the expected nft syntax, before and after it was encoded and decoded, in both
// families.
func TestOffloadChain(t *testing.T) {
	const want = "meta l4proto tcp ct status dnat ct state established numgen random mod 16 0 flow add @services"
	made := render.OffloadChain()
	for _, c := range []rules.Chain{made, rules.DecodeChain(made.Name, made.Encode())} {
		if got := c.Base.Text(); got != "type filter hook forward priority 300; policy accept;" {
			t.Errorf("base chain %q", got)
		}
		if len(c.Rules) != 1 {
			t.Fatalf("%d rules, want 1", len(c.Rules))
		}
		for _, family := range service.Families {
			if got, err := c.Rules[0].Text(family); err != nil || got != want {
				t.Errorf("%s: got %q, %v; want %q", family, got, err, want)
			}
		}
	}
}
