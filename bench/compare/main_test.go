package main

import (
	"slices"
	"testing"

	"github.com/sluice-proxy/sluice/bench/result"
)

// The page finds the steps by these names.
func TestChurnStepsHaveTheirNames(t *testing.T) {
	var names []string
	for _, rate := range rates {
		names = append(names, churnStep(rate))
	}
	if !slices.Equal(names, result.ChurnSteps) {
		t.Errorf("steps %q, the page looks for %q", names, result.ChurnSteps)
	}
}

func TestParse(t *testing.T) {
	o, err := parse([]string{"-n", "200", "-minutes", "1", "-steps", "churn,cold,restart", "-mode", "iptables", "-variant", "legacy"})
	if err != nil {
		t.Fatal(err)
	}
	if want := "make bench-compare N=200 MODE=iptables VARIANT=legacy MINUTES=1 STEPS=restart,churn"; o.command() != want {
		t.Errorf("command %q, want %q", o.command(), want)
	}
	for _, words := range [][]string{
		{"-n", "3"}, {"-mode", "ipvs"}, {"-steps", "dance"}, {"-variant", "nft"}, {"-minutes", "0"}, {"more"},
		{"-nodes", "-1"}, {"-nodes", "5", "-mode", "iptables"}, {"-nodes", "5", "-soak", "1m"},
	} {
		if _, err := parse(words); err == nil {
			t.Errorf("%q is taken", words)
		}
	}
}
