package sim

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane/iptables"
	"github.com/sluice-proxy/sluice/service"
)

// reached sums up how probable it is to be served, over all frontends.
func (g *guard) reached() (sum float64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, f := range g.fronts {
		sum += f.share
	}
	return sum
}

// The guard objects to every translation that a write takes away, and to none that a
// stranger does.
func TestTheGuardMissesEveryTranslation(t *testing.T) {
	settledWorld(t, func(w *world) {
		n := w.nodes[service.IPv4]
		objections, harmed := 0, 0
		n.guard.object = func(error) { objections++ }
		for _, chain := range n.kernel.Chains(iptables.NAT) {
			rules, _ := n.kernel.Rules(iptables.NAT, chain)
			for i, text := range rules {
				if !strings.Contains(text, "-j DNAT") {
					continue
				}
				remove := fmt.Sprintf("-D %s %d\n", chain, i+1)
				byStranger := func(line string) {
					t.Helper()
					if err := n.guard.stranger(func() error { return n.write(iptables.NAT, line) }); err != nil {
						t.Fatal(err)
					}
				}
				served := n.guard.reached()
				if err := n.guard.Restore(t.Context(), []byte("*nat\n"+remove+"COMMIT\n")); err != nil {
					t.Fatal(err)
				}
				if lost := n.guard.reached() < served-1e-3; lost != (objections > 0) {
					t.Errorf("%s: without %s: %t that somebody is served worse, and %d objections", chain, text, lost, objections)
				} else if lost {
					harmed++
				}
				byStranger(fmt.Sprintf("-I %s %d %s\n", chain, i+1, text))
				objections = 0
				byStranger(remove)
				byStranger(fmt.Sprintf("-I %s %d %s\n", chain, i+1, text))
				if objections > 0 {
					t.Errorf("%s: the proxy is blamed for what a stranger did", chain)
				}
			}
		}
		if harmed < 5 {
			t.Errorf("only %d translations were somebody's loss: that proves nothing", harmed)
		}
	})
}

// What the API takes back is no loss.
func TestTheGuardLetsTheAPIHaveItsWay(t *testing.T) {
	settledWorld(t, func(w *world) {
		before := w.nodes[service.IPv4].guard.reached()
		for n := range w.cluster.specs {
			if err := w.happen(event{do: removeService, n: n}); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.settle(); err != nil {
			t.Error(err)
		}
		if after := w.nodes[service.IPv4].guard.reached(); before < 5 || after != 0 {
			t.Errorf("frontends were served to %.1f, and now %.1f; want many and none", before, after)
		}
	})
}

// The guard objects to health that is silent about what is missing, and to no other.
func TestTheGuardListensToHealth(t *testing.T) {
	settledWorld(t, func(w *world) {
		n := w.nodes[service.IPv4]
		objections := 0
		n.guard.object = func(error) { objections++ }
		if err := n.guard.RemoveHook(t.Context(), iptables.NAT, "PREROUTING", portals(t)); err != nil {
			t.Fatal(err)
		}
		if objections == 0 {
			t.Fatal("nobody lost anything with the hook: that proves nothing")
		}
		never := func(*service.Spec) bool { return false }
		var convicted []aggregator.QuarantinedKey
		for i := range w.cluster.specs {
			convicted = append(convicted, aggregator.QuarantinedKey{Key: keyOf(i)})
		}
		began := time.Now()
		for _, c := range []struct {
			what   string
			status aggregator.Status
			after  time.Duration
			silent bool
		}{
			{"at once", aggregator.Status{Open: true}, 0, false},
			{"with something pending", aggregator.Status{Open: true, OldestPending: began}, 3 * time.Second, false},
			{"before the gate is open", aggregator.Status{}, 3 * time.Second, false},
			{"of the convicted", aggregator.Status{Open: true, Quarantined: convicted}, 3 * time.Second, false},
			{"with nothing pending", aggregator.Status{Open: true}, 3 * time.Second, true},
		} {
			objections = 0
			n.guard.renewed()
			n.guard.checkHealth(c.status, never)
			n.guard.mu.Lock()
			n.guard.open = n.guard.open.Add(-c.after)
			for _, f := range n.guard.fronts {
				f.lost, f.told = f.lost.Add(-c.after), false
			}
			n.guard.mu.Unlock()
			n.guard.checkHealth(c.status, never)
			if silent := objections > 0; silent != c.silent {
				t.Errorf("%s: %d objections, want some: %t", c.what, objections, c.silent)
			}
		}
	})
}

// portals gives the words of the hook to which all traffic comes.
func portals(t *testing.T) []string {
	t.Helper()
	for _, hook := range iptables.HookRows() {
		if hook.Table == iptables.NAT && hook.Chain == "PREROUTING" {
			return hook.Rule
		}
	}
	t.Fatal("there is no such hook")
	return nil
}
