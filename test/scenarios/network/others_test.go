// SPDX-License-Identifier: Apache-2.0

package network

import (
	"strings"
	"testing"
)

// TestOthers_Expand: a text is written once per family, and a text for a table of both families has its lines once per
// family.
func TestOthers_Expand(t *testing.T) {
	apart := expandOthers("-A INPUT -s {p1} -p {icmp} -j ACCEPT\n")
	if len(apart) != 2 || !strings.Contains(apart[0], "10.244.1.14 -p icmp ") || !strings.Contains(apart[1], "fd00:10:244:1::14 -p ipv6-icmp ") {
		t.Errorf("%q", apart)
	}
	both := expandOthers("table inet t {\n{ip} saddr {p1} accept\n}\n")
	const want = "table inet t {\nip saddr 10.244.1.14 accept\nip6 saddr fd00:10:244:1::14 accept\n}\n"
	if len(both) != 1 || both[0] != want {
		t.Errorf("%q", both)
	}
}

// TestOthers_PerRelease: a text with a release is written once per release of nft.
func TestOthers_PerRelease(t *testing.T) {
	if got := expandOthers("table inet {release}-t {\n}\n"); len(got) != 2 || got[0] == got[1] || strings.Contains(got[0]+got[1], release) {
		t.Errorf("%q", got)
	}
}

// TestOthers_JumpAgain: a second load first deletes the rules that the first one added to built-in chains.
func TestOthers_JumpAgain(t *testing.T) {
	got := rejump(":X - [0:0]\n-I FORWARD -j X\n-A X -j DROP\n")
	if want := ":X - [0:0]\n-D FORWARD -j X\n-I FORWARD -j X\n-A X -j DROP\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestOthers_ProxyChains: chains of other programs whose names begin with KUBE- are not taken for the proxy's.
func TestOthers_ProxyChains(t *testing.T) {
	for line, want := range map[string]bool{
		":KUBE-SERVICES - [0:0]":                                 true,
		"-A PREROUTING -j KUBE-SERVICES":                         true,
		"-A KUBE-SVC-HAIRPIN -j RETURN":                          true,
		":KUBE-ROUTER-FORWARD - [0:0]":                           false,
		"-A FORWARD -j KUBE-ROUTER-FORWARD":                      false,
		"-A KUBE-POD-FW-A4Z3CSI6HFHCO5RM -j KUBE-NWPLCY-DEFAULT": false,
	} {
		if got := proxysChain.MatchString(line); got != want {
			t.Errorf("%s: %v, want %v", line, got, want)
		}
	}
}
