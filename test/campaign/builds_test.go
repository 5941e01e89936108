package main

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// The texts in spoils still fit the renderers. (The campaign itself is not part of CI.)
func TestSpoiledRenderersCompile(t *testing.T) {
	source, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	list, err := overlay(source, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "build", "-overlay", list, "./dataplane/nftables/render", "./dataplane/iptables/render")
	cmd.Dir = source
	if printed, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, printed)
	}
}
