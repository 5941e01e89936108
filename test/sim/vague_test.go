// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"testing"

	"github.com/sluice-proxy/sluice/test/nftmodel"
)

// TestVague_LeftoverAllowedForVagueOnly: the check allows an object that another program damaged only if a vague
// Service may have it, and only exactly as it was left.
func TestVague_LeftoverAllowedForVagueOnly(t *testing.T) {
	certain, vague := nftmodel.Name{Chain: "certain"}, nftmodel.Name{Chain: "vague"}
	former, foreign := nftmodel.Name{Chain: "former"}, nftmodel.Name{Chain: "foreign"}
	c := contents{
		present: []func() items{
			func() items { return items{certain: "1"} }, func() items { return items{certain: "1", vague: "2"} },
		},
		past: func(_ nftmodel.Name, fits func(items) bool) bool { return fits(items{former: "3"}) },
		left: items{certain: "left", vague: "left", former: "left", foreign: "left"},
	}
	for _, one := range []struct {
		name nftmodel.Name
		body string
		want bool
	}{
		{certain, "1", true}, {certain, "left", false}, {vague, "2", true}, {vague, "left", true}, {vague, "other", false},
		{former, "3", true}, {former, "left", true}, {former, "2", false}, {foreign, "left", false},
	} {
		if got := c.allows(one.name, one.body); got != one.want {
			t.Errorf("%v as %q: allowed is %v", one.name, one.body, got)
		}
	}
}
