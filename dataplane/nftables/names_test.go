package nftables

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/service"
)

// TestNamesAreKubeProxys holds names against those of kube-proxy v1.36.
func TestNamesAreKubeProxys(t *testing.T) {
	for _, c := range []struct {
		namespace, name, port string
		protocol              service.Protocol
		endpoint, want        string
	}{
		{"ns1", "svc1", "p80", service.TCP, "", "ULMVA6XW-ns1/svc1/tcp/p80"},
		{"ns1", "svc1", "", service.TCP, "", "6KJ5P52A-ns1/svc1/tcp/"},
		{"default", "kubernetes", "https", service.TCP, "", "2QRHZV4L-default/kubernetes/tcp/https"},
		{"kube-system", "kube-dns", "dns", service.UDP, "", "FY5PMXPG-kube-system/kube-dns/udp/dns"},
		{"ns1", "svc1", "p80", service.TCP, "10.180.0.1:80", "5OJB2KTY-ns1/svc1/tcp/p80__10.180.0.1/80"},
		{"ns1", "svc1", "p80", service.TCP, "[fd00:10:180::1]:80", "ZVRFLKHO-ns1/svc1/tcp/p80__fd00.10.180..1/80"},
	} {
		key, port := service.Key{Namespace: c.namespace, Name: c.name}, &service.PortView{Name: c.port, Protocol: c.protocol}
		got := portBase(key, port)
		if c.endpoint != "" {
			got = endpointBase(key, port, service.Endpoint{AddrPort: netip.MustParseAddrPort(c.endpoint)})
		}
		if got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}

func TestLongNamesAreCut(t *testing.T) {
	long := strings.Repeat("x", 63)
	key := service.Key{Namespace: long, Name: long}
	e := service.Endpoint{AddrPort: netip.MustParseAddrPort("[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535")}
	one := endpointBase(key, &service.PortView{Name: long + long}, e)
	other := endpointBase(key, &service.PortView{Name: long + long + "y"}, e)
	if len(one) != 240 || !strings.HasSuffix(one, "...") || one == other {
		t.Errorf("cut to %d characters: %s, %s", len(one), one, other)
	}
}

func TestShardsAreEven(t *testing.T) {
	counts := map[string]int{}
	for n := range 4000 {
		counts[shardOf(frontend{netip.AddrFrom4([4]byte{10, 96, byte(n >> 8), byte(n)}), 80})]++
	}
	for shard, n := range counts {
		if n < 300 || n > 700 {
			t.Errorf("shard %s holds %d of 4,000 frontends", shard, n)
		}
	}
	if len(counts) != len(shards) {
		t.Errorf("%d shards are used, want %d", len(counts), len(shards))
	}
}
