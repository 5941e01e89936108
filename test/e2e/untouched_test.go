package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/test/e2e/harness"
)

// quiet is how long nothing may be written before the kernel counts as settled.
const quiet = 1500 * time.Millisecond

// state is what the kernel of node N1 holds at one moment, and how to see that it was left alone.
type state struct {
	node       *harness.Host
	generation uint32
	rules      harness.Rules
}

// settled waits until the node's kernel has not been written to for a while, and returns its state.
func settled(t *testing.T, c *harness.Cluster, proxy *harness.Proxy) state {
	t.Helper()
	last, since := generation(t, c.N1), time.Now()
	harness.Eventually(t, startMax, "the kernel settled", func(context.Context) error {
		if now := generation(t, c.N1); now != last {
			last, since = now, time.Now()
		}
		if time.Since(since) < quiet {
			return fmt.Errorf("still written to, generation %d; sluice reported %d batches", last, len(c.Log(proxy).Batches))
		}
		return nil
	})
	return state{node: c.N1, generation: last, rules: saveRules(t, c.N1)}
}

// mustBeUntouched fails the test when anything at all was written since.
func (s state) mustBeUntouched(t *testing.T, when string) {
	t.Helper()
	if now := generation(t, s.node); now != s.generation {
		t.Errorf("%s: the kernel was written to, generation %d, then %d", when, s.generation, now)
	}
	mustBeUntouched(t, when, s.rules, saveRules(t, s.node))
}

// mustHaveLeftAlone fails the test when the rules of one Service were written since, though others may
// have been.
func (s state) mustHaveLeftAlone(t *testing.T, when, service string) {
	t.Helper()
	if now := generation(t, s.node); now == s.generation {
		t.Errorf("%s: generation is still %d though something was written; are the tools iptables-legacy?", when, now)
	}
	mustBeUntouched(t, when, s.rules.OfService(service), saveRules(t, s.node).OfService(service))
}

// mustBeUntouched compares rules. Traffic must have counted in them, or unchanged counters would prove
// nothing.
func mustBeUntouched(t *testing.T, when string, before, now harness.Rules) {
	t.Helper()
	if before.Counted() == 0 {
		t.Fatalf("%s: no rule had counted a packet before", when)
	}
	if err := now.Untouched(before); err != nil {
		t.Errorf("%s: %v", when, err)
	}
}

func saveRules(t *testing.T, h *harness.Host) harness.Rules {
	t.Helper()
	rules, err := harness.SaveRules(h)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

func generation(t *testing.T, h *harness.Host) uint32 {
	t.Helper()
	number, err := harness.Generation(h)
	if err != nil {
		t.Fatal(err)
	}
	return number
}

func startTraffic(t *testing.T, client *harness.Host, targets []harness.Target) *harness.Traffic {
	t.Helper()
	traffic, err := harness.StartTraffic(t.Context(), client, targets...)
	if err != nil {
		t.Fatal(err)
	}
	return traffic
}

func stopTraffic(t *testing.T, traffic *harness.Traffic) {
	t.Helper()
	exchanges, err := traffic.Stop()
	if err != nil {
		t.Error(err)
	}
	if exchanges == 0 {
		t.Error("the traffic exchanged nothing")
	}
	t.Logf("%d exchanges went well", exchanges)
}
