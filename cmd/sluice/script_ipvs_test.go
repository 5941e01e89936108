// SPDX-License-Identifier: Apache-2.0

//go:build ipvs

package main

import (
	"path/filepath"
	"testing"
	"time"
)

// waitMax is longer in the virtual machine, where processes start slowly: beside other
// work on the same processors, a minute has been too little for a change of mode.
const waitMax = 4 * time.Minute

// TestIPVS_Scripts runs the scripts about IPVS mode on a kernel with IPVS, each with the variant of iptables of its
// folder ($VARIANT). One variant is enough: a script takes a minute and more on an emulated machine, and the tests of
// the writer and of packets cover both.
func TestIPVS_Scripts(t *testing.T) {
	for _, variant := range []string{"legacy", "nft"} {
		t.Run(variant, func(t *testing.T) {
			runScripts(t, filepath.Join("testdata", "script", "ipvs", variant), map[string]string{"MODE": "ipvs", "VARIANT": variant})
		})
	}
}

// TestIPVS_Plan runs the script about plans in IPVS mode.
func TestIPVS_Plan(t *testing.T) {
	runScripts(t, filepath.Join("testdata", "script", "ipvs", "plan"), map[string]string{"MODE": "ipvs", "VARIANT": "nft"})
}

// TestIPVS_Observe runs the script about records of connections in IPVS mode.
func TestIPVS_Observe(t *testing.T) {
	runScripts(t, filepath.Join("testdata", "script", "ipvs", "observe"), map[string]string{"MODE": "ipvs", "VARIANT": "nft"})
}
