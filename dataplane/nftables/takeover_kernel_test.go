package nftables_test

import (
	"os"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables"
	"github.com/sluice-proxy/sluice/service"
)

func recorded(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestTakingOverFromKubeProxy starts with kube-proxy's rules: they go, but stay in force
// until ours are complete.
func TestTakingOverFromKubeProxy(t *testing.T) {
	for name, bytesMax := range map[string]int{"in one transaction": 0, "in several": 4 << 10} {
		t.Run(name, func(t *testing.T) {
			fresh := newWorld(t, service.IPv4, nftables.WriterConfig{})
			var w *world
			looker := nftables.NewWriter(service.IPv4, nftables.WriterConfig{})
			w = newWorld(t, service.IPv4, nftables.WriterConfig{TransactionBytes: bytesMax, Progress: func(int, int) {
				objects, err := looker.Read(t.Context())
				if err != nil {
					t.Error(err)
				}
				checkDispatch(t, objects)
			}})
			looker = nftables.NewWriter(service.IPv4, nftables.WriterConfig{Inside: w.node.Do})
			t.Cleanup(func() {
				if err := looker.Close(); err != nil {
					t.Error(err)
				}
			})
			w.nft(recorded(t, "kube-proxy.nft"), "-f", "-")
			for n := range 60 {
				w.serve(plain(n, 4, 0))
				fresh.serve(plain(n, 4, 0))
			}
			if drift := w.audit(); drift.Unwanted == 0 {
				t.Errorf("kube-proxy's objects are not seen: %+v", drift)
			}
			receipt := w.commit()
			// kube-proxy's base chains are deleted when they no longer have rules.
			if several := receipt.Written.Calls > 2; several != (bytesMax > 0) || receipt.Written.Calls < 2 {
				t.Errorf("%d transactions", receipt.Written.Calls)
			}
			fresh.commit()
			compare(t, w.read(), fresh.read(), "after taking over")
		})
	}
}

// checkDispatch fails unless the dispatching chain uses a map with elements, kube-proxy's or
// ours.
func checkDispatch(t *testing.T, objects []dataplane.Object) {
	t.Helper()
	services, ours := "", 0
	for _, o := range objects {
		if o.ID.Container == "chain" && o.ID.Name == "services" {
			services = o.Body
		}
		if o.ID.Container == "@frontends" {
			ours++
		}
	}
	switch {
	case strings.Contains(services, "service-ips"):
	case strings.Contains(services, "frontends") && ours == 60:
	default:
		t.Errorf("packets are dispatched by none of the two, with %d frontends of ours", ours)
	}
}

// TestKubeProxyTakesOver runs kube-proxy's first transaction over our rules: it lands, and no
// packet reaches our rules any more.
func TestKubeProxyTakesOver(t *testing.T) {
	w := newWorld(t, service.IPv4, nftables.WriterConfig{})
	for n := range 10 {
		w.serve(plain(n, 4, 0))
	}
	w.commit()
	w.nft(recorded(t, "kube-proxy-start.nft"), "-f", "-")
	reached := map[string]bool{}
	bodies := map[string]string{}
	for _, o := range w.read() {
		if o.ID.Container == "chain" {
			bodies[o.ID.Name] = o.Body
		}
	}
	for name, body := range bodies {
		if strings.Contains(body, "prerouting") || strings.HasPrefix(name, "filter-") || strings.HasPrefix(name, "nat-") {
			reached[name] = true
		}
	}
	for again := true; again; {
		again = false
		for name := range reached {
			for target := range bodies {
				if !reached[target] && strings.Contains(bodies[name], target+"\x00") {
					reached[target], again = true, true
				}
			}
		}
	}
	for name := range reached {
		for _, ours := range []string{"frontends", "no-endpoints", "no-local-endpoints", "hairpins", "active-cluster-ips", "firewalled"} {
			if strings.Contains(bodies[name], ours+"\x00") {
				t.Errorf("chain %s still asks %s", name, ours)
			}
		}
	}
	if len(reached) < 12 {
		t.Errorf("only %d chains are reached: the check proves nothing", len(reached))
	}
	w.nft("", "delete", "table", w.table())
	if left := w.read(); len(left) != 0 {
		t.Errorf("%d objects are left when kube-proxy has removed its table", len(left))
	}
}
