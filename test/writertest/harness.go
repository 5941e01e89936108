// SPDX-License-Identifier: Apache-2.0

// Package writertest checks what a [dataplane.Writer] promises: the same cases for each writer, on a
// real kernel, and the environment that these and other tests share.
//
// A backend's test passes [Run] a [Harness]. Each case opens a fresh [Node] and writes Services into
// it on the path that the proxy takes (resolve, render, account, plan, write). After each write it
// reads the kernel and compares it with the receipt. While the kernel rejects a batch, real
// connections must still reach an endpoint.
//
// How packets must be routed is not a topic of these cases: the scenarios check it (test/scenarios).
package writertest

import (
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// cases lists each case by what it shows.
var cases = []struct {
	name string
	run  func(*Scene)
}{
	{"read returns what was planned", readCase},
	{"the order of Services does not matter", confluenceCase},
	{"rejected batches", rejectedCase},
	{"rejected between no endpoints and some", rejectedTurnCase},
	{"rejected first batch", rejectedFirstCase},
	{"rejected batch on a drifted kernel", rejectedOnDriftCase},
	{"canceled write", canceledCase},
	{"restart adopts", adoptCase},
	{"restart sweeps", sweepCase},
	{"rules of other programs stay", foreignCase},
	{"drift is seen and repaired", driftCase},
	{"wiped tables are written again", wipeCase},
}

// Run runs all cases as parallel subtests, each on a separate node.
func Run(t *testing.T, h Harness) {
	for _, c := range cases {
		t.Run(strings.ReplaceAll(c.name, ",", ""), func(t *testing.T) {
			t.Parallel()
			s := OpenScene(t, h)
			c.run(s)
			s.Await()
		})
	}
}

// Harness is one backend in one family.
type Harness struct {
	Family   service.Family
	Renderer dataplane.Renderer
	// NewLayout returns an empty layout. It is nil for a backend without one.
	NewLayout func() dataplane.Layout
	// Open returns a node with an empty kernel, and cleans up after the test.
	Open func(t *testing.T, world Fixture) Node
}

// Node is one kernel and the ways to it.
type Node struct {
	// NewWriter returns a writer as a newly started process has it.
	NewWriter func() dataplane.Writer
	Network   *Network
	Meddler   Meddler
}

// Meddler changes a kernel as other programs do, and spoils objects so that a kernel rejects them.
type Meddler interface {
	// Poison returns the object spoiled so that the kernel rejects it, and false if it cannot spoil
	// objects of this kind.
	Poison(object dataplane.Object) (dataplane.Object, bool)
	// Damage removes part of an object from the kernel. It returns false if there is nothing to
	// remove.
	Damage(t *testing.T, id dataplane.ID) bool
	// Wipe removes everything from the tables that the backend uses.
	Wipe(t *testing.T)
	// Plant adds something to the kernel that belongs to another program.
	Plant(t *testing.T)
	// CheckPlanted fails the test unless that is still there and unchanged.
	CheckPlanted(t *testing.T)
}
