package memory

import (
	"context"
	"strings"
	"testing"
)

const drifting = "*nat\n:A - [0:0]\n:B - [0:0]\n-A A -s 10.0.0.1 -j B\n-A A -s 10.0.0.2 -j RETURN\n-A A -s 10.0.0.3 -j B\n-A B -j RETURN\n-A OUTPUT -j A\nCOMMIT\n"

func TestDeleteChainTakesItsCallersAlong(t *testing.T) {
	k := restored(t, drifting)
	if !k.DeleteChain("nat", "B") {
		t.Fatal("B was not deleted")
	}
	if got := rulesOf(k, "nat", "B") + "|" + rulesOf(k, "nat", "A"); got != "absent|-s 10.0.0.2/32 -j RETURN" {
		t.Errorf("got %s", got)
	}
	if k.DeleteChain("nat", "B") {
		t.Error("B was deleted twice")
	}
}

func TestFlushChainAndDeleteRule(t *testing.T) {
	k := restored(t, drifting)
	if !k.FlushChain("nat", "B") || k.FlushChain("nat", "MISSING") {
		t.Error("FlushChain should tell whether the chain was there")
	}
	if !k.DeleteRule("nat", "A", 2) || k.DeleteRule("nat", "A", 9) || k.DeleteRule("raw", "A", 1) {
		t.Error("DeleteRule should tell whether the rule was there")
	}
	if got := rulesOf(k, "nat", "B") + "|" + rulesOf(k, "nat", "A"); got != "|-s 10.0.0.1/32 -j B\n-s 10.0.0.3/32 -j B" {
		t.Errorf("got %s", got)
	}
}

func TestFlushLeavesBuiltinChainsAndPolicies(t *testing.T) {
	k := restored(t, drifting+"*filter\n:FORWARD DROP [0:0]\n:F - [0:0]\n-A FORWARD -j F\nCOMMIT\n")
	k.Flush()
	if got := strings.Join(k.Chains("nat"), " "); got != "PREROUTING INPUT OUTPUT POSTROUTING" {
		t.Errorf("chains %s", got)
	}
	if got := k.Trace(tcp("10.0.0.1", "10.0.0.2:1", "a"), nil).Verdict; got != Dropped {
		t.Errorf("policy after the flush: %v, want dropped", got)
	}
	if err := k.Restore(context.Background(), []byte(drifting)); err != nil {
		t.Errorf("the same rules again: %v", err)
	}
}

func TestGuardNoticesLossAndForgivesAdditions(t *testing.T) {
	k := restored(t, drifting)
	guard := k.Guard()
	if err := k.Restore(context.Background(), []byte("*nat\n:MINE - [0:0]\n-I A 2 -j MINE\n-A OUTPUT -j MINE\nCOMMIT\n")); err != nil {
		t.Fatal(err)
	}
	if err := guard.Check(); err != nil {
		t.Errorf("after additions: %v", err)
	}
	for name, damage := range map[string]struct{ input, words string }{
		"rule":   {"*nat\n-D A -s 10.0.0.2 -j RETURN\nCOMMIT\n", "A lost or moved: -s 10.0.0.2/32"},
		"order":  {"*nat\n-D A -s 10.0.0.1 -j B\n-A A -s 10.0.0.1 -j B\nCOMMIT\n", "A lost or moved"},
		"policy": {"*filter\n:FORWARD DROP [0:0]\nCOMMIT\n", "policy of FORWARD"},
		"chain":  {"*nat\n:A - [0:0]\n:B - [0:0]\n-X B\nCOMMIT\n", "chain B is gone"},
	} {
		k := restored(t, drifting)
		guard := k.Guard()
		if err := k.Restore(context.Background(), []byte(damage.input)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := guard.Check(); err == nil || !strings.Contains(err.Error(), damage.words) {
			t.Errorf("%s: got %v, want ... %s ...", name, err, damage.words)
		}
	}
}
