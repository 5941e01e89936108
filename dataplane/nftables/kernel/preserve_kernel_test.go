// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

// TestPreserveConnections_DecidesNothing: PreserveConnections adds base chains without a verdict, a second call changes
// nothing, Cleanup leaves the chains, and StopPreserving removes them. A test of the whole proxy checks that
// connections continue.
func TestPreserveConnections_DecidesNothing(t *testing.T) {
	node := netnstest.New(t, "node")
	list := func() string {
		t.Helper()
		out, err := netnstest.Output(node, exec.Command("nft", "list", "ruleset"))
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	for _, family := range service.Families {
		for range 2 {
			if err := node.Do(func() error { return kernel.PreserveConnections(family) }); err != nil {
				t.Fatal(err)
			}
		}
		if removed, err := in(node, func() (bool, error) { return kernel.Cleanup(family) }); removed || err != nil {
			t.Errorf("Cleanup: %t, %v", removed, err)
		}
		table := list()
		if strings.Count(table, "type nat hook") != 4 || strings.Count(table, "ct status") != 4 {
			t.Errorf("the table is\n%s", table)
		}
		for _, word := range []string{"drop", "reject", "dnat to", "snat", "jump", "goto", "return"} {
			if strings.Contains(table, word+" ") || strings.Contains(table, word+"\n") {
				t.Errorf("the table has %s:\n%s", word, table)
			}
		}
		if removed, err := in(node, func() (bool, error) { return kernel.StopPreserving(family) }); !removed || err != nil {
			t.Errorf("StopPreserving: %t, %v", removed, err)
		}
		if left := list(); left != "" {
			t.Errorf("left\n%s", left)
		}
		if removed, err := in(node, func() (bool, error) { return kernel.StopPreserving(family) }); removed || err != nil {
			t.Errorf("StopPreserving again: %t, %v", removed, err)
		}
	}
}
