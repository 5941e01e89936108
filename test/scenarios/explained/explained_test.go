// SPDX-License-Identifier: Apache-2.0

package explained

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/sluice-proxy/sluice/internal/explain"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
)

// TestJudge: an answer must be one of the possible ones, in fate, endpoint and source.
func TestJudge(t *testing.T) {
	deliveredTo := func(masqueraded bool, to ...string) *explain.Answer {
		a := &explain.Answer{Verdict: explain.Delivered}
		for _, one := range to {
			a.Outcomes = append(a.Outcomes, explain.Outcome{Verdict: explain.Delivered, To: one, Masqueraded: masqueraded})
		}
		return a
	}
	ends := func(v explain.Verdict) *explain.Answer {
		return &explain.Answer{Verdict: v, Outcomes: []explain.Outcome{{Verdict: v, To: "192.0.2.41:80"}}}
	}
	const a, b = "10.244.1.10:8080", "10.244.2.20:8080"
	asClient := func(name string) fixture.Answer { return fixture.Answer{Name: name, Source: fixture.AsClient} }
	asNode := func(name string) fixture.Answer { return fixture.Answer{Name: name, Source: fixture.AsNode} }
	refused, silent := fixture.Answer{Fate: fixture.Refused}, fixture.Answer{Fate: fixture.Silent}
	for _, c := range []struct {
		name       string
		said       *explain.Answer
		got        fixture.Answer
		othersDrop bool
		agrees     bool
	}{
		{"an endpoint", deliveredTo(false, a, b), asClient("b"), false, true},
		{"another endpoint", deliveredTo(false, a, b), asClient("c"), false, false},
		{"another source", deliveredTo(false, a), asNode("a"), false, false},
		{"masqueraded", deliveredTo(true, a), asNode("a"), false, true},
		{"silence", deliveredTo(true, a), silent, false, false},
		{"refused", ends(explain.Refused), refused, false, true},
		{"refused, but dropped", ends(explain.Refused), silent, false, false},
		{"dropped", ends(explain.Dropped), silent, false, true},
		{"dropped, but refused", ends(explain.Dropped), refused, false, false},
		{"untouched", ends(explain.Untouched), asClient(fixture.Beyond), false, true},
		{"untouched, but delivered", ends(explain.Untouched), asClient("a"), false, false},
		{"untouched, but silence", ends(explain.Untouched), silent, false, false},
		{"which a rule of others makes", ends(explain.Untouched), silent, true, true},
	} {
		q := fixture.Question{Family: service.IPv4, From: "x"}
		from := fixture.MustAddress(service.IPv4, "x")
		comparison := Comparison{OthersDrop: c.othersDrop, Counts: &Counts{}}
		err := comparison.judge(q, c.said, func(e fixture.End) fixture.Answer {
			return fixture.AnswerTo(q, from, netip.Addr.IsLoopback, e)
		}, map[fixture.Answer]int{c.got: 3})
		_, disagrees := errors.AsType[*DisagreementError](err)
		if disagrees == c.agrees || c.agrees != (comparison.Counts.Packets.Load() == 3) {
			t.Errorf("%s: %v, %v, want agreement: %t", c.name, err, comparison.Counts, c.agrees)
		}
		if comparison.Counts.Note(err); comparison.Counts.Disagreements.Load() == 1 == c.agrees {
			t.Errorf("%s: %v", c.name, comparison.Counts)
		}
	}
}
