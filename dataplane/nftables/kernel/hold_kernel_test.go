package kernel_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

// TestHoldDecidesNothing: Hold adds base chains without a verdict, twice is as once, Cleanup leaves
// them, and Release removes them. That connections go on is tested with the whole proxy.
func TestHoldDecidesNothing(t *testing.T) {
	node := netnstest.New(t, "node")
	list := func() string {
		t.Helper()
		out, err := node.Output(exec.Command("nft", "list", "ruleset"))
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	for _, family := range service.Families {
		for range 2 {
			if err := kernel.Hold(family, node.Do); err != nil {
				t.Fatal(err)
			}
		}
		if removed, err := kernel.Cleanup(family, node.Do); removed || err != nil {
			t.Errorf("Cleanup: %t, %v", removed, err)
		}
		held := list()
		if strings.Count(held, "type nat hook") != 4 || strings.Count(held, "ct status") != 4 {
			t.Errorf("the table is\n%s", held)
		}
		for _, word := range []string{"drop", "reject", "dnat to", "snat", "jump", "goto", "return"} {
			if strings.Contains(held, word+" ") || strings.Contains(held, word+"\n") {
				t.Errorf("the table has %s:\n%s", word, held)
			}
		}
		if released, err := kernel.Release(family, node.Do); !released || err != nil {
			t.Errorf("Release: %t, %v", released, err)
		}
		if left := list(); left != "" {
			t.Errorf("left\n%s", left)
		}
		if released, err := kernel.Release(family, node.Do); released || err != nil {
			t.Errorf("Release again: %t, %v", released, err)
		}
	}
}
