// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/test/defects"
)

// TestMutations_TextsInCode: the code contains every text that a mutation replaces, and each mutation has a unique
// name, a sentence and campaigns.
func TestMutations_TextsInCode(t *testing.T) {
	names := map[string]bool{}
	for _, m := range mutations {
		if _, err := defects.Overlay("../..", t.TempDir(), m.edits...); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
		if names[m.name] || m.sentence == "" || len(m.campaigns) == 0 {
			t.Errorf("%q: the name is not unique, or something is missing", m.name)
		}
		names[m.name] = true
		for _, c := range m.campaigns {
			if c.harness == scenarios || c.harness == faulty {
				continue
			}
			if tests, _ := filepath.Glob(filepath.Join("../..", c.pkg, "*_test.go")); len(tests) == 0 {
				t.Errorf("%s: %s has no tests", m.name, c.pkg)
			}
		}
	}
}

func TestFirstFailure(t *testing.T) {
	for _, c := range []struct{ name, printed, where, what string }{
		{"a seed", "=== RUN   TestSimulation\n    simulation_test.go:33: seed 58: event 135: served worse\n\t\tmore\n", "seed 58", "event 135: served worse"},
		{"a seed at once", "=== RUN   TestSimulation\nseed 7 fails; looking for a shorter list of events: worse\n", "seed 7", "worse"},
		{"a test", "=== RUN   TestA\n=== RUN   TestA/one\n    a_test.go:3: want 1\n        more\n--- FAIL: TestA (0.00s)\n    --- FAIL: TestA/one (0.00s)\n", "TestA", "want 1"},
		{"a panic", "=== RUN   TestB\npanic: index out of range\n\ngoroutine 1\n", "TestB", "panic: index out of range"},
		{"nothing", "=== RUN   TestC\n--- PASS: TestC (0.00s)\nPASS\n", "", ""},
	} {
		where, what := firstFailure(strings.NewReader(c.printed))
		if where != c.where || what != c.what {
			t.Errorf("%s: %q, %q, want %q, %q", c.name, where, what, c.where, c.what)
		}
	}
}

func TestChoose(t *testing.T) {
	short, err := choose("", "", true)
	if err != nil || len(short) == 0 || len(short) == len(mutations) {
		t.Errorf("%d short ones of %d, %v", len(short), len(mutations), err)
	}
	if _, err := choose("no such name", "", false); err == nil {
		t.Error("no mistake was chosen, and no error returned")
	}
	if found, err := choose("", "scenarios", false); err != nil || len(found) != 5 {
		t.Errorf("%d are found by scenarios, %v", len(found), err)
	}
}
