// SPDX-License-Identifier: Apache-2.0

package expect_test

import (
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/sluice-proxy/sluice/test/scenarios/expect"
	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
	"github.com/sluice-proxy/sluice/test/scenarios/list"
	"github.com/sluice-proxy/sluice/test/scenarios/play"
	"github.com/sluice-proxy/sluice/test/scenarios/script"
)

// harmless are the verbs that do nothing to where packets go, so that the reference
// can still speak of what follows them.
var harmless = []string{"settle", "rules", "session", "spread", "sleep", "metric", "event", "log", "get", "sticky", "flow"}

// comparedMin is how many questions of the list the reference has to have an answer
// to in each mode, so that it cannot become silent unnoticed.
const comparedMin = 60

// TestState_AgreesWithScenarioList asks the reference what the scenarios of the list ask the proxy. If the two differ,
// one of them is wrong.
func TestState_AgreesWithScenarioList(t *testing.T) {
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
				state := expect.New(expect.Options{Mode: mode, Flags: plan.Flags, PodPort: plan.PodPort})
				err = plan.Examine(state, func(q play.Asked) error {
					if slices.ContainsFunc(q.Left, func(verb string) bool { return !slices.Contains(harmless, verb) }) {
						silent++
						return nil
					}
					w, err := state.Judge(q.Question)
					if errors.As(err, &expect.Unsure{}) {
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
func agrees(w expect.Wanted, q play.Asked) bool {
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

// TestState_Rows compares the reference with the expectations in testdata/rows.txt.
func TestState_Rows(t *testing.T) {
	text, err := os.ReadFile("testdata/rows.txt")
	if err != nil {
		t.Fatal(err)
	}
	rows, err := script.Parse("rows.txt", string(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range []string{"iptables", "nftables"} {
		for _, row := range rows {
			t.Run(mode+"/"+row.ID, func(t *testing.T) {
				for _, j := range judged(t, row, mode) {
					if j.err != nil || !agrees(j.wanted, j.Asked) {
						t.Errorf("line %d: %s: got %v of %v, error %v", j.Line.Number, j.Line.Text, j.wanted, j.Question, j.err)
					}
				}
			})
		}
	}
}

// judgment is what the reference says to a question.
type judgment struct {
	play.Asked
	wanted expect.Wanted
	err    error
}

// judged asks the reference all questions of a scenario, of which there are some.
func judged(t *testing.T, s script.Scenario, mode string) []judgment {
	t.Helper()
	plan, err := play.NewPlan(s, mode)
	if err != nil {
		t.Fatal(err)
	}
	state := expect.New(expect.Options{Mode: mode, Flags: plan.Flags, PodPort: plan.PodPort})
	var all []judgment
	if err := plan.Examine(state, func(q play.Asked) error {
		w, err := state.Judge(q.Question)
		all = append(all, judgment{q, w, err})
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Fatalf("%v asks for nothing in mode %s", s, mode)
	}
	return all
}

// TestState_Unsure: the reference has no answer where several are possible.
func TestState_Unsure(t *testing.T) {
	for name, lines := range map[string]string{
		"slices disagree about the zones of an endpoint": "service\n slice one a(zones=za)\n slice two a(zones=zb)\n p1 -> cluster => a",
		"a datagram of the node that is not let through": "service ports=p80:80/UDP\n node -> cluster/udp => refused",
		"an answer that takes another way":               "service\n endpoints b\n p2 -> cluster => b",
		"a pod that its slice puts elsewhere, to itself": "service\n endpoints p1(node=none)\n p1 -> cluster => p1",
		"a flag that it does not know":                   "flag --feature-gates=AllowServiceExternalIPs=false\n service\n p1 -> cluster => refused",
		"an endpoint at which nothing is":                "service ports=p80:80:7\n endpoints a\n p1 -> cluster => a",
		"a program of the node":                          "service\n x -> node:8080 => node",
		"a loopback address":                             "service type=NodePort\n endpoints a\n node -> loopback:30080 => a",
		"a client with another's address":                "service\n endpoints a\n x@p1 -> cluster => a",
		"addresses that no Service has":                  "service\n x -> vip:7 => refused",
		"a way to tell pods that does not exist":         "flag --detect-local-mode=Other\n service\n p1 -> cluster => refused",
	} {
		t.Run(name, func(t *testing.T) {
			all, err := script.Parse("f", "S-X-1 "+name+"\n "+lines)
			if err != nil {
				t.Fatal(err)
			}
			for _, mode := range []string{"iptables", "nftables"} {
				for _, j := range judged(t, all[0], mode) {
					if !errors.As(j.err, &expect.Unsure{}) {
						t.Errorf("mode %s: %v: got %v, error %v; want none and Unsure", mode, j.Question, j.wanted, j.err)
					}
				}
			}
		})
	}
}

// TestWanted_String: a wanted answer is printed in the form that scenarios use.
func TestWanted_String(t *testing.T) {
	for want, w := range map[string]expect.Wanted{
		"refused":       {Fate: fixture.Refused},
		"silence":       {Fate: fixture.Silent},
		"a b as client": {Sources: map[string]fixture.Source{"b": fixture.AsClient, "a": fixture.AsClient}},
		"a b":           {Sources: map[string]fixture.Source{"b": fixture.AsNode, "a": fixture.AsClient}},
		"c":             {Sources: map[string]fixture.Source{"c": ""}},
	} {
		if got := w.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
