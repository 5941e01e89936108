// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"testing/synctest"

	"github.com/sluice-proxy/sluice/test/scenarios/list"
	"github.com/sluice-proxy/sluice/test/scenarios/model"
	"github.com/sluice-proxy/sluice/test/scenarios/play"
)

// modelledMin is how many scenarios of a mode must be playable without a kernel, so that a mistake
// that skips them is noticed.
const modelledMin = 4

// TestScenarios_InMemory plays every scenario whose statements need no kernel, on kernels in memory. The same scenarios
// run on the real kernel (make scenarios), so if the two differ, one of them fails.
func TestScenarios_InMemory(t *testing.T) {
	all, err := list.All()
	if err != nil {
		t.Fatal(err)
	}
	played := 0
	for _, scenario := range all {
		plan, err := play.NewPlan(scenario, model.Mode)
		if err != nil {
			t.Fatal(err)
		}
		if !plan.Applies || plan.Kernel != "" {
			continue
		}
		played++
		t.Run(plan.ID, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { playModel(t, plan) }) })
	}
	if played < modelledMin {
		t.Errorf("only %d scenarios were played, want %d or more", played, modelledMin)
	}
}

func playModel(t *testing.T, plan *play.Plan) {
	world := model.NewWorld(model.Options{Flags: plan.Flags, PodPort: plan.PodPort, Seed: 1})
	defer func() {
		if err := world.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := plan.Play(t.Context(), world, world); err != nil {
		t.Error(err)
	}
}
