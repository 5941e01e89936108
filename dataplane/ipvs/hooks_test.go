package ipvs

import (
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// kube-proxy finds its jumps by these very words.
func TestHooksAreThoseOfKubeProxy(t *testing.T) {
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

// A sweep finds every chain that is rendered, and no built-in one.
func TestRenderedChainsAreOurs(t *testing.T) {
	renderer := NewRenderer(service.IPv4, Options{MasqueradeBit: 14})
	chains := 0
	for _, o := range renderer.Node(worldOf(service.IPv4).facts()) {
		table, builtIn, isHook := strings.Cut(o.ID.Container, "/")
		switch {
		case o.ID.Container == ContainerSet || o.ID == DeviceID:
		case isHook:
			if OwnsChain(table, builtIn) {
				t.Errorf("%s %s is nobody's to remove", table, builtIn)
			}
		default:
			if chains++; !OwnsChain(table, o.ID.Name) {
				t.Errorf("%s %s is not ours", table, o.ID.Name)
			}
		}
	}
	if chains != 13 {
		t.Errorf("%d chains, want 13", chains)
	}
	for _, other := range []dataplane.ID{{Container: "nat", Name: "KUBE-SVC-X"}, {Container: "raw", Name: "KUBE-SERVICES"}, {Container: "filter", Name: "KUBE-FIREWALL"}} {
		if OwnsChain(other.Container, other.Name) {
			t.Errorf("%v is not ours", other)
		}
	}
}
