//go:build ipvs

package main

import (
	"path/filepath"
	"testing"
	"time"
)

// waitMax is longer in the virtual machine, where processes start slowly.
const waitMax = time.Minute

// TestIPVSScripts runs the scripts about IPVS mode with each variant of iptables, in
// $VARIANT, on a kernel that has IPVS.
func TestIPVSScripts(t *testing.T) {
	for _, variant := range []string{"legacy", "nft"} {
		t.Run(variant, func(t *testing.T) {
			runScripts(t, filepath.Join("testdata", "script", "ipvs"), map[string]string{"MODE": "ipvs", "VARIANT": variant})
		})
	}
}
