// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"slices"
	"testing"
)

// TestModes_FromEnvironment: Modes returns the modes that the environment lists, or the default ones.
func TestModes_FromEnvironment(t *testing.T) {
	for listed, want := range map[string][]Mode{
		"": {IPTables, NFTables}, "ipvs": {IPVS}, "ipvs,nftables": {IPVS, NFTables},
	} {
		t.Setenv(envModes, listed)
		if got := Modes(IPTables, NFTables); !slices.Equal(got, want) {
			t.Errorf("%q: got %v, want %v", listed, got, want)
		}
	}
}
