package sim

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
)

// TestConfluence: the same final state of the cluster, however it was told and
// in whatever bursts, ends in the same rules to the letter.
func TestConfluence(t *testing.T) {
	for seed := uint64(1); seed <= 3; seed++ {
		original := story(seed)
		want := kernelText(t, seed, merged(newDice(seed, 81), original))
		if !strings.Contains(want, "-j DNAT") {
			t.Fatalf("seed %d: the final state has no endpoint: it would prove nothing", seed)
		}
		for name, rewrite := range rewrites {
			for as := range habits {
				t.Run(fmt.Sprintf("seed=%d/%s/habit=%d", seed, name, as), func(t *testing.T) {
					t.Parallel()
					d := newDice(seed, 82)
					if got := kernelText(t, seed, paused(d, rewrite(d, original), as)); got != want {
						t.Errorf("the rules are\n%s\nwant\n%s", got, want)
					}
				})
			}
		}
	}
}

// story gives what the API says in the scenario of a seed.
func story(seed uint64) []event {
	g := &generator{dice: newDice(seed, 83), services: 12, chances: peace, habit: hasty}
	for _, w := range peace {
		g.total += w.often
	}
	g.populate()
	for range 60 {
		g.add(g.verb())
	}
	return g.events
}

// kernelText plays a history and gives both kernels' rules.
func kernelText(t *testing.T, seed uint64, history []event) (text string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w, err := newWorld(seed, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range append(history, event{do: quiet}) {
			if err = w.happen(e); err != nil {
				t.Errorf("%v: %v", e, err)
				break
			}
		}
		for _, n := range w.nodes {
			for _, table := range tables {
				saved, err := n.kernel.Save(t.Context(), table)
				if err != nil {
					t.Error(err)
				}
				text += string(saved)
			}
		}
		if err := w.close(); err != nil {
			t.Error(err)
		}
	})
	return text
}
