package sim

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sluice-proxy/sluice/dataplane/iptables"
	"github.com/sluice-proxy/sluice/service"
)

// settledWorld gives a world with some Services at a quiet point.
func settledWorld(t *testing.T, check func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w, err := newWorld(5, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range append(story(5), event{plantRule, 0, 0, 1}, event{plantChain, 0, 0, 2}, event{quiet, 0, 0, 0}) {
			if err := w.happen(e); err != nil {
				t.Fatal(err)
			}
		}
		check(w)
		if err := w.close(); err != nil {
			t.Error(err)
		}
	})
}

// Every rule of the proxy that is gone, and every one of somebody else's, is
// missed at once.
func TestTheReferenceMissesEveryRule(t *testing.T) {
	settledWorld(t, func(w *world) {
		n := w.nodes[service.IPv4]
		missing := 0
		for _, table := range tables {
			for _, chain := range n.kernel.Chains(table) {
				rules, _ := n.kernel.Rules(table, chain)
				for range rules {
					text, _ := n.kernel.Rules(table, chain)
					n.kernel.DeleteRule(table, chain, 1)
					missing++
					if _, err := w.match(); err == nil {
						t.Errorf("%s %s: nobody misses %s", table, chain, text[0])
					}
					// Behind the others: by the end the order is the old one.
					if err := n.write(table, "-A "+chain+" "+text[0]+"\n"); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		if missing < 80 {
			t.Errorf("only %d rules were looked at", missing)
		}
		if _, err := w.match(); err != nil {
			t.Errorf("with everything in place again: %v", err)
		}
	})
}

func TestTheReferenceMissesChainsAndFindsStrangers(t *testing.T) {
	damages := map[string]func(*node) error{
		"is missing":        func(n *node) error { n.kernel.DeleteChain(iptables.NAT, "KUBE-MARK-MASQ"); return nil },
		"nobody wants this": func(n *node) error { return n.meddle(event{do: litter}) },
		"somebody else's chain": func(n *node) error {
			for at := range n.foreign {
				if foreignChain(at.chain) {
					n.kernel.DeleteChain(at.table, at.chain)
				}
			}
			return nil
		},
		"lacks the hook": func(n *node) error {
			hook := iptables.HookRows()[0]
			return n.kernel.RemoveHook(context.Background(), hook.Table, hook.Chain, hook.Rule)
		},
	}
	for want, damage := range damages {
		t.Run(want, func(t *testing.T) {
			settledWorld(t, func(w *world) {
				if err := damage(w.nodes[service.IPv4]); err != nil {
					t.Fatal(err)
				}
				if _, err := w.match(); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want something with %q", err, want)
				}
			})
		})
	}
}

// Packets find out by themselves, without a look at the rules, that they end at
// the wrong place.
func TestPacketsMissEveryTranslation(t *testing.T) {
	settledWorld(t, func(w *world) {
		there, err := w.match()
		if err != nil {
			t.Fatal(err)
		}
		n := w.nodes[service.IPv4]
		if err := w.sendMany(service.IPv4, there[service.IPv4]); err != nil {
			t.Fatal(err)
		}
		damaged := 0
		for _, chain := range n.kernel.Chains(iptables.NAT) {
			rules, _ := n.kernel.Rules(iptables.NAT, chain)
			for i, text := range rules {
				// Not every frontend serves one of the senders.
				if !strings.Contains(text, "-j DNAT") && !strings.Contains(text, `cluster IP"`) && chain != "KUBE-POSTROUTING" {
					continue
				}
				n.kernel.DeleteRule(iptables.NAT, chain, i+1)
				damaged++
				if w.sendMany(service.IPv4, there[service.IPv4]) == nil {
					t.Errorf("%s: no packet misses %s", chain, text)
				}
				if err := n.write(iptables.NAT, fmt.Sprintf("-I %s %d %s\n", chain, i+1, text)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if damaged < 20 {
			t.Errorf("only %d rules were looked at", damaged)
		}
	})
}

// sendMany sends so many packets that no frontend and no kind of sender is left
// out.
func (w *world) sendMany(family service.Family, there []served) error {
	for range 30 {
		if err := w.sendPackets(family, there); err != nil {
			return err
		}
	}
	return nil
}

func TestTheWitnessObjects(t *testing.T) {
	w := newWitness(nil)
	w.settle("applied", "IPv4", keyOf(1), service.Revision{Incarnation: 3, Sequence: 7})
	w.settle("applied", "IPv6", keyOf(1), service.Revision{Incarnation: 3, Sequence: 1})
	w.settle("applied", "IPv4", keyOf(1), service.Revision{Incarnation: 4, Sequence: 1})
	if err := w.objections(); err != nil {
		t.Fatal(err)
	}
	w.settle("applied", "IPv4", keyOf(1), service.Revision{Incarnation: 3, Sequence: 8})
	if err := w.objections(); err == nil {
		t.Error("a verdict of the last but one incarnation was fine")
	}
	w = newWitness(nil)
	w.object(errors.New("two jobs"))
	if err := w.objections(); err == nil {
		t.Error("an objection was lost")
	}
}
