// SPDX-License-Identifier: Apache-2.0

package play

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

const listed = `table ip kube-proxy {
	comment "node service proxy: sluice"
	set hairpins {
		type ipv4_addr . ipv4_addr . inet_proto . inet_service
		elements = { 10.244.1.10 . 10.244.1.10 . tcp . 8080,
			     10.244.1.18 . 10.244.1.18 . tcp . 8080 }
	}

	chain empty {
	}

	chain services {
		ip daddr { 10.0.0.1 } drop
	}
}
table ip6 kube-proxy {
	chain empty {
	}
}
table inet sluice-offload { # progname sluice
	flags owner
}
`

// TestBlocksOf: blocksOf divides a listing into its tables, sets and chains.
func TestBlocksOf(t *testing.T) {
	got := blocksOf(listed)
	want := []block{
		{"table ip kube-proxy", `comment "node service proxy: sluice"`},
		{"ip set hairpins", "type ipv4_addr . ipv4_addr . inet_proto . inet_service\n" +
			"elements = { 10.244.1.10 . 10.244.1.10 . tcp . 8080,\n     10.244.1.18 . 10.244.1.18 . tcp . 8080 }"},
		{"ip chain empty", ""},
		{"ip chain services", "ip daddr { 10.0.0.1 } drop"},
		{"table ip6 kube-proxy", ""},
		{"ip6 chain empty", ""},
		{"table inet sluice-offload", "flags owner"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestJudgeBlocks(t *testing.T) {
	for _, c := range []struct {
		object, inside string
		want           bool
		said           string
	}{
		{"ip set hairpins", `10\.244\.1\.18`, true, ""},
		{"ip6? chain empty", `.`, false, ""},
		{"ip set hairpins", `10\.244\.2\.20`, true, "want it to fit"},
		{"ip6? chain .*", `drop$`, false, "want it to fit"},
		{"ip map hairpins", `.`, false, "there is no object"},
	} {
		err := judgeBlocks(blocksOf(listed), regexp.MustCompile("^(?:"+c.object+")$"), regexp.MustCompile("(?m)"+c.inside), c.want)
		if c.said == "" && err != nil || c.said != "" && (err == nil || !strings.Contains(err.Error(), c.said)) {
			t.Errorf("%s, %s, %v: got %v, want %q", c.object, c.inside, c.want, err, c.said)
		}
	}
}
