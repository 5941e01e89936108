// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"testing"

	"github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	"github.com/sluice-proxy/sluice/service"
)

// TestKernelDrift_NoServiceWorks: a reading reports a family without its NAT base chains, its first chain or its
// frontends as one without rules, even if other objects are left.
func TestKernelDrift_NoServiceWorks(t *testing.T) {
	w := newWorld(t, service.IPv4, kernel.WriterConfig{})
	for _, c := range []struct {
		name, damage  string
		bare, emptied bool
	}{
		{"nothing", "", false, false},
		{"a rule is added", "add rule " + w.table() + " services counter", false, false},
		{"one family of ports is gone", "flush map " + w.table() + " ${nodeports}", false, false},
		{"no frontends", "flush map " + w.table() + " ${frontends}; flush map " + w.table() + " ${nodeports}", true, true},
		{"the base chains are empty", "flush chain " + w.table() + " nat-prerouting; flush chain " + w.table() + " nat-output", true, true},
		{"the first chain is empty", "flush chain " + w.table() + " services", true, true},
		{"everything is gone", "delete table " + w.table(), true, true},
	} {
		w.serve(plain(1, 3, 0))
		w.serve(plain(2, 3, 0))
		w.commit()
		if c.damage != "" {
			w.nft(c.damage, "-f", "-")
		}
		if drift := w.audit(); drift.Bare != c.bare || drift.Emptied != c.emptied {
			t.Errorf("%s: bare %t, emptied %t: %+v", c.name, drift.Bare, drift.Emptied, drift)
		}
	}
}
