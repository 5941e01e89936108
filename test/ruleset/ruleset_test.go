// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"slices"
	"strings"
	"testing"
)

func TestIPTables(t *testing.T) {
	var got []string
	for table, line := range IPTables("# Generated at noon\n*nat\n:INPUT ACCEPT [1:60]\n[12:720] -A INPUT -j X\nCOMMIT\n*filter\n-A X -j DROP\nCOMMIT\n") {
		got = append(got, table+" "+line)
	}
	if want := []string{"nat :INPUT ACCEPT", "nat -A INPUT -j X", "filter -A X -j DROP"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestNFT(t *testing.T) {
	got := NFT("# Warning: managed\ntable ip nat {\n\tchain X {\n\t}\n}\ntable ip other {\n\tset s {\n\t}\n}\n", func(table string) bool { return !OfIPTables(table) })
	if want := "table ip other {\n\tset s {\n\t}\n}"; strings.Join(got, "\n") != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestMissing(t *testing.T) {
	for whole, want := range map[string]string{"a b c d": "", "a c b": "c", "": "a b c"} {
		if got := strings.Join(Missing([]string{"a", "b", "c"}, strings.Fields(whole)), " "); got != want {
			t.Errorf("of a, b, c, %q lacks %q, want %q", whole, got, want)
		}
	}
}
