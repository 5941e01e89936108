// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-proxy/sluice/test/scenarios/generate"
)

// TestGenerate_RoundTripThroughFile: the printed text of a generated scenario can be put into a file and is then the
// same scenario.
func TestGenerate_RoundTripThroughFile(t *testing.T) {
	all, err := making{count: 2, first: 7}.made("nftables")
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 2 || all[0].ID != "S-GEN-7" || all[1].ID != "S-GEN-8" {
		t.Fatalf("got %v, want seeds 7 and 8", all)
	}
	name := filepath.Join(t.TempDir(), "made.txt")
	if err := os.WriteFile(name, []byte(generate.Text(all[0])+generate.Text(all[1])), 0o600); err != nil {
		t.Fatal(err)
	}
	back, err := fromFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for i := range all {
		if got, want := generate.Text(back[i]), generate.Text(all[i]); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
	if _, err := fromFile(name + "-none"); err == nil {
		t.Error("a file that does not exist gave scenarios")
	}
}
