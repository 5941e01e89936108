// SPDX-License-Identifier: Apache-2.0

package generate

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
	"github.com/sluice-proxy/sluice/test/scenarios/model"
	"github.com/sluice-proxy/sluice/test/scenarios/play"
	"github.com/sluice-proxy/sluice/test/scenarios/script"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// seedsVariable is the name of the variable of the environment that says how many
// seeds are played, and firstVariable with which one to begin.
const (
	seedsVariable = "SCENARIO_SEEDS"
	firstVariable = "SCENARIO_SEED"
)

// shrinkMax bounds the attempts to shorten a failure.
const shrinkMax = 60

// TestGenerator_ScenariosInMemory plays generated scenarios on the model of nf_tables. Play more of them with
// SCENARIO_SEEDS=2000, and one again with SCENARIO_SEEDS=1 SCENARIO_SEED=N.
func TestGenerator_ScenariosInMemory(t *testing.T) {
	seeds := uint64(12)
	if testenv.All() {
		seeds = 60
	}
	seeds, first := number(t, seedsVariable, seeds), number(t, firstVariable, 1)
	for played := range seeds {
		s, why, err := Shrink(first+played, model.Mode, inMemory(t), shrinkMax)
		if err != nil {
			t.Fatalf("seed %d: %v", first+played, err)
		}
		if why != nil {
			t.Errorf("seed %d: %v\n%s", first+played, why, Text(s))
		}
	}
	t.Logf("%d seeds from %d on", seeds, first)
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
func inMemory(t *testing.T) Fails {
	return func(s script.Scenario) (failure error) {
		synctest.Test(t, func(t *testing.T) { failure = playIn(t.Context(), s, nil) })
		return failure
	}
}

// playIn plays a scenario in memory, in the world that wrap makes of it.
func playIn(ctx context.Context, s script.Scenario, wrap func(play.World) play.World) error {
	plan, err := play.NewPlan(s, model.Mode)
	if err != nil {
		return err
	}
	world := model.NewWorld(model.Options{Flags: plan.Flags, PodPort: plan.PodPort, Seed: 1})
	seen := play.World(world)
	if wrap != nil {
		seen = wrap(world)
	}
	return errors.Join(plan.Play(ctx, seen, world), world.Close())
}

// liar is a world in which x is never answered over IPv6, as if a proxy forgot it.
type liar struct{ play.World }

func (l liar) Ask(ctx context.Context, q fixture.Question) (fixture.Answer, error) {
	got, err := l.World.Ask(ctx, q)
	if q.From == "x" && q.Family == service.IPv6 && err == nil && got.Fate == fixture.Answered && got.Name != fixture.Beyond {
		return fixture.Answer{Fate: fixture.Silent}, nil
	}
	return got, err
}

// TestShrink_LieFoundAndShortened: a wrong answer is found, and its scenario is shortened to a Service, a slice and the
// question.
func TestShrink_LieFoundAndShortened(t *testing.T) {
	fails := func(s script.Scenario) (failure error) {
		synctest.Test(t, func(t *testing.T) {
			failure = playIn(t.Context(), s, func(w play.World) play.World { return liar{w} })
		})
		return failure
	}
	s, why, err := Shrink(2, model.Mode, fails, shrinkMax)
	if err != nil {
		t.Fatal(err)
	}
	if why == nil || !strings.Contains(why.Error(), "got silence") {
		t.Fatalf("the lie was not found: %v\n%s", why, Text(s))
	}
	const linesMax = 4 // modes, service, slice, question
	if len(s.Lines) > linesMax {
		t.Errorf("%d lines are left, want %d at most:\n%s", len(s.Lines), linesMax, Text(s))
	}
	again, err := script.Parse("f", Text(s))
	if err != nil {
		t.Fatal(err)
	}
	if fails(again[0]) == nil {
		t.Errorf("what is printed does not fail:\n%s", Text(s))
	}
	if failure := inMemory(t)(again[0]); failure != nil {
		t.Errorf("it fails without the lie, too: %v\n%s", failure, Text(s))
	}
}

// TestShrink_LeavesPassing: a passing scenario is played once and returned unchanged.
func TestShrink_LeavesPassing(t *testing.T) {
	played := 0
	s, why, err := Shrink(1, "iptables", func(script.Scenario) error { played++; return nil }, shrinkMax)
	if err != nil || why != nil || played != 1 {
		t.Errorf("played %d times, failure %v, error %v", played, why, err)
	}
	whole, err := Scenario(1, "iptables")
	if err != nil || Text(whole) != Text(s) {
		t.Errorf("got, with error %v,\n%s\nwant\n%s", err, Text(s), Text(whole))
	}
}

// TestShrink_StopsAtBound: Shrink plays a scenario no more often than allowed.
func TestShrink_StopsAtBound(t *testing.T) {
	const attempts = 7
	played := 0
	_, why, err := Shrink(1, "iptables", func(script.Scenario) error { played++; return context.Canceled }, attempts)
	if err != nil || why == nil || played != attempts+1 {
		t.Errorf("played %d times, want %d; failure %v, error %v", played, attempts+1, why, err)
	}
}
