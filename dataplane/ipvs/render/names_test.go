// SPDX-License-Identifier: Apache-2.0

package render

import (
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane/ipvs/wire"
	"github.com/sluice-proxy/sluice/service"
)

// TestSetName: names of sets are unique and short enough for the kernel, which rejects longer ones.
func TestSetName(t *testing.T) {
	seen := map[string]bool{}
	for _, family := range service.Families {
		for _, set := range Sets(family) {
			if len(set.Name) > 31 || seen[set.Name] {
				t.Errorf("%s is too long or not the only one", set.Name)
			}
			seen[set.Name] = true
		}
	}
	if len(seen) != 2*18 {
		t.Errorf("%d sets, want 18 of each family", len(seen))
	}
	if got := SetName(service.IPv6, SetExternalIPLocal); got != "KUBE-6-EXTERNAL-IP-LOCAL-677d81" {
		t.Errorf("the definition of %s, or how its digest is made, has changed", got)
	}
}

// TestWordOf_NamesOfOthers: WordOf recognizes sets of another release and of kube-proxy by their names.
func TestWordOf_NamesOfOthers(t *testing.T) {
	for name, want := range map[string]string{
		SetName(service.IPv4, setClusterIP): setClusterIP, "KUBE-LB-LOCAL-012def": SetLoadBalancerLocal,
		"KUBE-LOAD-BALANCER-LOCAL": SetLoadBalancerLocal, "KUBE-NO-LOCAL-ENDPOINTS": setNoLocalEndpoints,
		"KUBE-CLUSTER-IP-MINE": "", "KUBE-MINE-012def": "", "KUBE-6-CLUSTER-IP-012def": "", "CLUSTER-IP-012def": "", "KUBE-": "", "": "",
	} {
		if word, ok := WordOf(service.IPv4, name); ok != (want != "") || ok && word != want {
			t.Errorf("%s is %s, %t; want %q", name, word, ok, want)
		}
	}
	for name, want := range map[string]string{
		"KUBE-6-LOAD-BALANCER-SOURCE-CID": setSourceCIDR, "KUBE-6-NODE-PORT-LOCAL-SCTP-HAS": SetNodePortLocalSCTP,
		"KUBE-6-CLUSTER-IP-012def": setClusterIP, "KUBE-CLUSTER-IP-012def": "", "KUBE-CLUSTER-IP": "",
	} {
		if word, ok := WordOf(service.IPv6, name); ok != (want != "") || ok && word != want {
			t.Errorf("%s is %s, %t; want %q", name, word, ok, want)
		}
	}
}

// TestSets_OfTheirFamily: each set has the family for which it is rendered, and a bitmap has none.
func TestSets_OfTheirFamily(t *testing.T) {
	for _, family := range service.Families {
		for _, set := range Sets(family) {
			want := setFamilies[family]
			if set.Type == wire.BitmapPort {
				want = wire.NoFamily
			}
			if set.Family != want {
				t.Errorf("%s of %s: family %q", set.Name, family, set.Family)
			}
		}
	}
}

// TestHookRows_MatchKubeProxy: the hooks are kube-proxy's, word for word, because kube-proxy finds its jumps by this
// text.
func TestHookRows_MatchKubeProxy(t *testing.T) {
	var got []string
	for _, h := range HookRows() {
		got = append(got, h.Table+" "+h.Chain+" "+h.Text())
	}
	want := []string{
		`nat OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES`,
		`nat PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES`,
		`nat POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING`,
		`filter FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD`,
		`filter INPUT -m comment --comment "kubernetes health check rules" -j KUBE-NODE-PORT`,
		`filter INPUT -m comment --comment "kube-proxy firewall rules" -j KUBE-PROXY-FIREWALL`,
		`filter FORWARD -m comment --comment "kube-proxy firewall rules" -j KUBE-PROXY-FIREWALL`,
		`filter INPUT -m comment --comment "kubernetes ipvs access filter" -j KUBE-IPVS-FILTER`,
		`filter OUTPUT -m comment --comment "kubernetes ipvs access filter" -j KUBE-IPVS-OUT-FILTER`,
		`mangle OUTPUT -m comment --comment "kube-proxy firewall rules" -j KUBE-PROXY-FIREWALL`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
