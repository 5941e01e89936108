package reference_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
	"github.com/sluice-proxy/sluice/test/scenarios/list"
	"github.com/sluice-proxy/sluice/test/scenarios/play"
	"github.com/sluice-proxy/sluice/test/scenarios/reference"
)

// harmless are the verbs that do nothing to where packets go, so that the reference
// can still speak of what follows them.
var harmless = []string{"settle", "rules", "session", "spread", "sleep", "metric", "event", "log", "get", "sticky", "flow"}

// comparedMin is how many questions of the list the reference has to have an answer
// to in each mode, so that it cannot become silent unnoticed.
const comparedMin = 60

// TestTheListAgrees asks the reference what the scenarios of the list ask the
// proxy. Where the two differ, one of them is wrong.
func TestTheListAgrees(t *testing.T) {
	all, err := list.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range []string{"iptables", "nftables"} {
		t.Run(mode, func(t *testing.T) {
			compared, silent := 0, 0
			for _, s := range all {
				plan, err := play.NewPlan(s, mode)
				if err != nil {
					t.Fatal(err)
				}
				if !plan.Applies {
					continue
				}
				state := reference.New(reference.Options{Mode: mode, Flags: plan.Flags, PodPort: plan.PodPort})
				err = plan.Examine(state, func(q play.Asked) error {
					if slices.ContainsFunc(q.Left, func(verb string) bool { return !slices.Contains(harmless, verb) }) {
						silent++
						return nil
					}
					w, err := state.Judge(q.Question)
					if errors.As(err, &reference.Unsure{}) {
						silent++
						return nil
					}
					compared++
					if err != nil || !agrees(w, q) {
						t.Errorf("%v, line %d: %s: the reference wants %v of %v (%v)", s, q.Line.Number, q.Line.Text, w, q.Question, err)
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			t.Logf("%d questions compared, %d not", compared, silent)
			if compared < comparedMin {
				t.Errorf("only %d questions were compared, %d were not; want %d or more", compared, silent, comparedMin)
			}
		})
	}
}

// agrees compares what the reference wants with what a scenario says; either may
// leave open whom an endpoint takes for the client.
func agrees(w reference.Wanted, q play.Asked) bool {
	if w.Fate != q.Fate {
		return false
	}
	if w.Fate != fixture.Answered {
		return true
	}
	names := slices.Sorted(slices.Values(q.Names))
	if w.Sticky {
		// One of them, or several that are not all of them.
		for _, name := range names {
			if !slices.Contains(w.Names(), name) {
				return false
			}
		}
	} else if !slices.Equal(names, w.Names()) {
		return false
	}
	for _, source := range w.Sources {
		asNode := q.From == "node" && q.Saw == fixture.AsClient && source == fixture.AsNode
		if q.Saw != "" && source != "" && source != q.Saw && !asNode {
			return false
		}
	}
	return true
}
