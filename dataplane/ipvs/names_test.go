package ipvs

import (
	"testing"

	"github.com/sluice-proxy/sluice/dataplane/ipvs/kernel"
	"github.com/sluice-proxy/sluice/service"
)

// The kernel cuts nothing: a longer name is refused.
func TestSetNames(t *testing.T) {
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
	for ipv4, ipv6 := range map[string]string{
		setClusterIP:         "KUBE-6-CLUSTER-IP",
		setSourceCIDR:        "KUBE-6-LOAD-BALANCER-SOURCE-CID",
		setSourceIP:          "KUBE-6-LOAD-BALANCER-SOURCE-IP",
		setNodePortSCTP:      "KUBE-6-NODE-PORT-SCTP-HASH",
		setNodePortLocalSCTP: "KUBE-6-NODE-PORT-LOCAL-SCTP-HAS",
		setNoLocalEndpoints:  "KUBE-6-NO-LOCAL-ENDPOINTS",
	} {
		if got := setName(service.IPv6, ipv4); got != ipv6 {
			t.Errorf("%s: got %s, want %s", ipv4, got, ipv6)
		}
		if got := setName(service.IPv4, ipv4); got != ipv4 {
			t.Errorf("%s is called %s in IPv4", ipv4, got)
		}
	}
}

func TestSetsAreOfTheirFamily(t *testing.T) {
	for _, family := range service.Families {
		for _, set := range Sets(family) {
			want := setFamilies[family]
			if set.Type == kernel.BitmapPort {
				want = kernel.NoFamily
			}
			if set.Family != want {
				t.Errorf("%s of %s: family %q", set.Name, family, set.Family)
			}
		}
	}
}
