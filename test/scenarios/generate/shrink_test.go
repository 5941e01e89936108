package generate

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
	"github.com/sluice-proxy/sluice/test/scenarios/play"
	"github.com/sluice-proxy/sluice/test/scenarios/script"
)

// liar is a world in which x is never answered over IPv6, as if a proxy forgot it.
type liar struct{ play.World }

func (l liar) Ask(ctx context.Context, q fixture.Question) (fixture.Answer, error) {
	got, err := l.World.Ask(ctx, q)
	if q.From == "x" && q.Family == service.IPv6 && err == nil && got.Fate == fixture.Answered && got.Name != fixture.Beyond {
		return fixture.Answer{Fate: fixture.Silent}, nil
	}
	return got, err
}

// TestLieIsFoundAndShortened: a wrong answer is found, and what is left of its
// scenario is a Service, a slice and the question.
func TestLieIsFoundAndShortened(t *testing.T) {
	const mode = "nftables"
	fails := func(s script.Scenario) (failure error) {
		synctest.Test(t, func(t *testing.T) {
			failure = playIn(t.Context(), s, mode, func(w play.World) play.World { return liar{w} })
		})
		return failure
	}
	s, why, err := Shrink(2, mode, fails, shrinkMax)
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
	if failure := inMemory(t, mode)(again[0]); failure != nil {
		t.Errorf("it fails without the lie, too: %v\n%s", failure, Text(s))
	}
}

// TestShrinkLeavesWhatPasses: a scenario that holds is played once.
func TestShrinkLeavesWhatPasses(t *testing.T) {
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

// TestShrinkStopsAtItsBound: it plays no more often than it may.
func TestShrinkStopsAtItsBound(t *testing.T) {
	const attempts = 7
	played := 0
	_, why, err := Shrink(1, "iptables", func(script.Scenario) error { played++; return context.Canceled }, attempts)
	if err != nil || why == nil || played != attempts+1 {
		t.Errorf("played %d times, want %d; failure %v, error %v", played, attempts+1, why, err)
	}
}
