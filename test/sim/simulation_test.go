package sim

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
)

// seeds is how many scenarios are played; SLUICE_SIM_SEEDS overrides it.
const seeds = 40

// TestSimulation plays scenarios that seeds have chosen. SLUICE_SIM_SEED=n plays
// that one alone and tells everything that happens.
func TestSimulation(t *testing.T) {
	if seed, ok := number(t, "SLUICE_SIM_SEED"); ok {
		simulate(t, generate(seed), func(line string) { fmt.Println(line) })
		return
	}
	count, ok := number(t, "SLUICE_SIM_SEEDS")
	if !ok {
		count = seeds
	}
	var mu sync.Mutex
	seen := tally{}
	t.Run("seeds", func(t *testing.T) {
		for seed := uint64(1); seed <= count; seed++ {
			t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
				t.Parallel()
				for what, times := range simulate(t, generate(seed), nil) {
					mu.Lock()
					seen[what] += times
					mu.Unlock()
				}
			})
		}
	})
	if count >= seeds {
		checkVariety(t, seen)
	}
}

// checkVariety looks whether everything that a simulation is for has happened:
// one in which nothing goes wrong would prove little.
func checkVariety(t *testing.T, seen tally) {
	for _, what := range []string{
		"supervisor.Failed", "supervisor.Stuck", "supervisor.Returned", "supervisor.Parked", "supervisor.Unparked",
		"aggregator.Quarantined", "aggregator.Freed", "aggregator.NodeAtFault", "aggregator.AuditDone",
		"write landed", "write busy", "write unknown", "write rejected", "write unsupported",
		"packet untouched", "packet delivered", "packet rejected", "packet dropped",
	} {
		if seen[what] == 0 {
			t.Errorf("never seen: %s", what)
		}
	}
	for _, w := range slices.Concat(peace, unrest) {
		if seen["event "+string(w.do)] == 0 {
			t.Errorf("never happened: %s", w.do)
		}
	}
	t.Logf("seen: %v", seen)
}

func number(t *testing.T, name string) (uint64, bool) {
	text := os.Getenv(name)
	if text == "" {
		return 0, false
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n, true
}

// shrinkTries bounds what a failure may cost.
const shrinkTries = 100

// simulate plays a scenario; when that fails, it looks for a shorter one.
func simulate(t *testing.T, s scenario, log func(string)) tally {
	t.Helper()
	seen, err := run(t, s, log)
	if err == nil {
		return seen
	}
	short := s
	short.events = shrink(s.events, func(events []event) bool {
		if _, e := run(t, scenario{s.seed, events}, nil); e != nil {
			err = e
			return true
		}
		return false
	}, shrinkTries)
	t.Errorf("seed %d: %v\n\nReplay with SLUICE_SIM_SEED=%d, or put this into regression_test.go:\n\nscenario{%d, %s}",
		s.seed, err, s.seed, s.seed, literal(short.events))
	return seen
}
