package iptables

import (
	"slices"
	"testing"
)

func TestSplitRule(t *testing.T) {
	for rule, want := range map[string][]string{
		``:                           nil,
		`-j A`:                       {"-j", "A"},
		`  -s  1.1.1.1/32 `:          {"-s", "1.1.1.1/32"},
		`--comment "a b" -j A`:       {"--comment", "a b", "-j", "A"},
		`--comment ""`:               {"--comment", ""},
		`--comment "it\'s \"x\" \\"`: {"--comment", `it's "x" \`},
		`--comment "never closed`:    {"--comment", "never closed"},
		`--comment "ends with \`:     {"--comment", `ends with \`},
	} {
		if got := splitRule(rule); !slices.Equal(got, want) {
			t.Errorf("splitRule(%q) = %q, want %q", rule, got, want)
		}
	}
}
