// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"testing"
)

func TestParse(t *testing.T) {
	o, err := parse([]string{"-n", "200", "-minutes", "1", "-steps", "churn,cold,restart", "-mode", "iptables", "-variant", "legacy", "-former", ""})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(o.steps, []string{"restart", "churn"}) || !slices.Equal(o.programs(), []string{sluice, kubeProxy}) || o.services != 200 {
		t.Errorf("options %+v", o)
	}
	for _, words := range [][]string{
		{"-n", "3"}, {"-mode", "ipvs"}, {"-steps", "dance"}, {"-variant", "nft"}, {"-minutes", "0"}, {"more"},
	} {
		if _, err := parse(words); err == nil {
			t.Errorf("%q is taken", words)
		}
	}
}
