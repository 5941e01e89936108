package memory

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane/iptables"
	"github.com/sluice-proxy/sluice/service"
)

// TestAnySequenceKeepsTheTableSound runs random inputs, most of which are
// refused somewhere, and checks after each that the count of callers agrees with
// the rules, and that no rule jumps into the void.
func TestAnySequenceKeepsTheTableSound(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	k := NewKernel(service.IPv4)
	landed := 0
	for range 5000 {
		if k.Restore(context.Background(), []byte(randomInput(random))) == nil {
			landed++
		}
		checkSound(t, k.tables[iptables.NAT])
		if t.Failed() {
			return
		}
	}
	if landed < 500 {
		t.Errorf("only %d inputs landed, the test is too timid", landed)
	}
}

func randomInput(random *rand.Rand) string {
	chain := func() string { return fmt.Sprintf("C%d", random.IntN(6)) }
	var b strings.Builder
	b.WriteString("*nat\n")
	for range 1 + random.IntN(6) {
		switch random.IntN(7) {
		case 0, 1:
			fmt.Fprintf(&b, ":%s - [0:0]\n", chain())
		case 2:
			fmt.Fprintf(&b, "-X %s\n", chain())
		case 3:
			fmt.Fprintf(&b, "-D %s 1\n", chain())
		case 4:
			fmt.Fprintf(&b, "-I OUTPUT -j %s\n", chain())
		case 5:
			fmt.Fprintf(&b, ":%s - [0:0]\n-A %[1]s -j %s\n", chain(), chain())
		case 6:
			b.WriteString("-D OUTPUT 1\n")
		}
	}
	b.WriteString("COMMIT\n")
	return b.String()
}

func checkSound(t *testing.T, table *table) {
	t.Helper()
	callers := make(map[string]map[string]int)
	for name, c := range table.chains {
		for _, r := range c.rules {
			to := r.jump()
			if table.chains[to] == nil {
				t.Errorf("%s jumps to %q, which does not exist", name, to)
			}
			if callers[to] == nil {
				callers[to] = make(map[string]int)
			}
			callers[to][name]++
		}
	}
	if !maps.EqualFunc(callers, table.callers, maps.Equal[map[string]int]) {
		t.Errorf("callers are %v, counted %v", table.callers, callers)
	}
}
