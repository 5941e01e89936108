package generate

import (
	"context"
	"errors"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/test/scenarios/model"
	"github.com/sluice-proxy/sluice/test/scenarios/play"
	"github.com/sluice-proxy/sluice/test/scenarios/script"
)

// seedsVariable is the name of the variable of the environment that says how many
// seeds are played, and firstVariable with which one to begin. Without the first,
// as many are played as fit into timeMax.
const (
	seedsVariable = "SCENARIO_SEEDS"
	firstVariable = "SCENARIO_SEED"
	timeMax       = 9 * time.Second
)

// seedsMin is how many seeds of a mode are played however long it takes: a run that
// plays none proves nothing.
const seedsMin = 5

// shrinkMax bounds the attempts to shorten a failure.
const shrinkMax = 60

// TestGeneratedScenariosInMemory plays scenarios that are made up, on kernels in
// memory. Play more of them with SCENARIO_SEEDS=2000, and one again with
// SCENARIO_SEEDS=1 SCENARIO_SEED=N.
func TestGeneratedScenariosInMemory(t *testing.T) {
	seeds, first := number(t, seedsVariable, 0), number(t, firstVariable, 1)
	for _, mode := range []string{"iptables", "nftables"} {
		t.Run(mode, func(t *testing.T) {
			start, played := time.Now(), uint64(0)
			for ; played < seedsMin || (seeds == 0 && time.Since(start) < timeMax) || played < seeds; played++ {
				if played == seeds && seeds > 0 {
					break
				}
				s, why, err := Shrink(first+played, mode, inMemory(t, mode), shrinkMax)
				if err != nil {
					t.Fatalf("seed %d: %v", first+played, err)
				}
				if why != nil {
					t.Errorf("seed %d: %v\n%s", first+played, why, Text(s))
				}
			}
			t.Logf("%d seeds from %d on", played, first)
		})
	}
}

func number(t *testing.T, variable string, otherwise uint64) uint64 {
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}

// inMemory plays scenarios in worlds of their own, where time costs nothing.
func inMemory(t *testing.T, mode string) Fails {
	return func(s script.Scenario) (failure error) {
		synctest.Test(t, func(t *testing.T) { failure = playIn(t.Context(), s, mode, nil) })
		return failure
	}
}

// playIn plays a scenario in memory, in the world that wrap makes of it.
func playIn(ctx context.Context, s script.Scenario, mode string, wrap func(play.World) play.World) error {
	plan, err := play.NewPlan(s, mode)
	if err != nil {
		return err
	}
	world, err := model.NewWorld(model.Options{Mode: mode, Flags: plan.Flags, PodPort: plan.PodPort, Seed: 1})
	if err != nil {
		return err
	}
	seen := play.World(world)
	if wrap != nil {
		seen = wrap(world)
	}
	return errors.Join(plan.Play(ctx, seen, world), world.Close())
}
