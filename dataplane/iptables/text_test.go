package iptables

import (
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

func TestTextOrdersTablesChainsRulesAndHooks(t *testing.T) {
	var objects []dataplane.Object
	for _, o := range []*dataplane.Object{
		chainObject(NAT, "KUBE-SVC-A", "-p tcp -j DNAT --to-destination 10.0.0.1:80"),
		chainObject(NAT, "KUBE-SERVICES", "-d 10.1.0.1/32 -j KUBE-SVC-A", "-j RETURN"),
		chainObject(Mangle, chainCanary),
		chainObject(Filter, "KUBE-FORWARD", "-j ACCEPT"),
	} {
		objects = append(objects, *o)
	}
	for _, h := range HookRows() {
		if h.Target == chainServices && h.Table == NAT || h.Target == "KUBE-FORWARD" {
			objects = append(objects, h.Object())
		}
	}
	got, err := Text(objects)
	if err != nil {
		t.Fatal(err)
	}
	want := `*mangle
:KUBE-PROXY-CANARY - [0:0]
COMMIT
*filter
:KUBE-FORWARD - [0:0]
-A KUBE-FORWARD -j ACCEPT
-I FORWARD 1 -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
COMMIT
*nat
:KUBE-SVC-A - [0:0]
:KUBE-SERVICES - [0:0]
-A KUBE-SERVICES -d 10.1.0.1/32 -j KUBE-SVC-A
-A KUBE-SERVICES -j RETURN
-A KUBE-SVC-A -p tcp -j DNAT --to-destination 10.0.0.1:80
-I OUTPUT 1 -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-I PREROUTING 1 -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
COMMIT
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestTextRefusesWhatIsNeitherChainNorHook(t *testing.T) {
	world := worldOf(service.IPv4)
	element := NewRenderer(service.IPv4, Options{}).Service(world.view(world.port()), world.facts())
	for problem, objects := range map[string][]dataplane.Object{
		"no layout has composed it":              element,
		"neither a chain nor a hook":             {{ID: dataplane.ID{Container: "raw", Name: "KUBE-SVC-A"}}},
		`"KUBE-SVC-A" in "raw/PREROUTING" is ne`: {{ID: dataplane.ID{Container: "raw/PREROUTING", Name: "KUBE-SVC-A"}}},
	} {
		if text, err := Text(objects); err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("%q, %v; want an error with %q", text, err, problem)
		}
	}
}
