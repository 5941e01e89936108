// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/nftmodel"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// TestConfluence: the same final state of the cluster leads to exactly the same rules, in any order and any bursts of
// events. make test has no pauses, which take most of the time.
func TestConfluence(t *testing.T) {
	tempos := testenv.Variants(hasty, steady, bursty)
	for _, seed := range testenv.Variants[uint64](1, 2, 3) {
		original := story(seed)
		want := finalItems(t, seed, merged(newRandom(seed, 81), original))
		isSlot := func(i nftmodel.Item) bool {
			return strings.HasPrefix(i.Set, "cluster-endpoints") && isElement(i)
		}
		if !slices.ContainsFunc(want, isSlot) {
			t.Fatalf("seed %d: the final state has no endpoint: it would prove nothing", seed)
		}
		for name, rewrite := range rewrites {
			for _, as := range tempos {
				t.Run(fmt.Sprintf("seed=%d/%s/rhythm=%d", seed, name, as), func(t *testing.T) {
					t.Parallel()
					d := newRandom(seed, 82)
					if got := finalItems(t, seed, paused(d, rewrite(d, original), as)); !slices.Equal(got, want) {
						t.Errorf("the tables hold\n%q\nwant\n%q", got, want)
					}
				})
			}
		}
	}
}

// story returns what the API says in the scenario of a seed.
func story(seed uint64) []event {
	g := &generator{random: newRandom(seed, 83), services: 12, chances: apiEvents, rhythm: hasty}
	for _, w := range apiEvents {
		g.total += w.often
	}
	g.populate()
	for range 60 {
		g.add(g.verb())
	}
	return g.events
}

// finalItems plays a history and returns what is in the kernel then.
func finalItems(t *testing.T, seed uint64, history []event) (items []nftmodel.Item) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w, err := newWorld(seed, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range append(history, event{do: settle}) {
			if err = w.happen(e); err != nil {
				t.Errorf("%v: %v", e, err)
				break
			}
		}
		for _, family := range service.Families {
			items = append(items, w.kernel.Items(family)...)
		}
		if err := w.close(); err != nil {
			t.Error(err)
		}
	})
	return items
}

// A history is a way to come to a state of the cluster: a list of what the API
// said. Those made here from one original all end in the same state.

// object is what an event is about.
type object struct {
	do   verb
	n, m int
}

func objectOf(e event) object {
	switch e.do {
	case setService, removeService:
		return object{setService, e.n, 0}
	case setSlice, moveSlice, removeSlice:
		return object{setSlice, e.n, e.m}
	default:
		return object{do: e.do}
	}
}

// rewrites are the ways to tell a history differently.
var rewrites = map[string]func(random, []event) []event{
	"original":  func(_ random, h []event) []event { return h },
	"shuffled":  shuffled,
	"doubled":   doubled,
	"repeated":  func(_ random, h []event) []event { return join(h, h) },
	"merged":    merged,
	"split":     split,
	"backwards": func(d random, h []event) []event { return join(backwards(h), merged(d, h)) },
	"emptied":   func(_ random, h []event) []event { return join(h, removals(h), h) },
}

func join(parts ...[]event) (all []event) {
	for _, part := range parts {
		all = append(all, part...)
	}
	return all
}

// shuffled mixes the objects; each keeps the order of its own events.
func shuffled(d random, h []event) []event {
	own := map[object][]event{}
	for _, e := range h {
		own[objectOf(e)] = append(own[objectOf(e)], e)
	}
	out := make([]event, len(h))
	for i, j := range d.Perm(len(h)) {
		o := objectOf(h[j])
		out[i], own[o] = own[o][0], own[o][1:]
	}
	return out
}

func doubled(_ random, h []event) (out []event) {
	for _, e := range h {
		out = append(out, e, e)
	}
	return out
}

// merged leaves the last event of each object, in any order.
func merged(d random, h []event) (out []event) {
	last := map[object]int{}
	for i, e := range h {
		last[objectOf(e)] = i
	}
	for _, i := range d.Perm(len(h)) {
		if last[objectOf(h[i])] == i {
			out = append(out, h[i])
		}
	}
	return out
}

// split takes a step in between to each event.
func split(d random, h []event) (out []event) {
	for _, e := range h {
		between := e
		between.variant = d.Uint64N(1 << 16)
		if d.percent(30) {
			between = removal(e)
		}
		out = append(out, between, e)
	}
	return out
}

func backwards(h []event) (out []event) {
	for i := range h {
		out = append(out, h[len(h)-1-i])
	}
	return out
}

func removals(h []event) (out []event) {
	for _, e := range h {
		out = append(out, removal(e))
	}
	return out
}

// removal is an event that removes what another is about, or changes what is always there.
func removal(e event) event {
	switch e.do {
	case setService, removeService:
		e.do = removeService
	case setSlice, moveSlice, removeSlice:
		e.do = removeSlice
	default:
		e.variant++
	}
	return e
}

// paused puts pauses into a history, as a rhythm does.
func paused(d random, h []event, as rhythm) []event {
	g := &generator{random: d, rhythm: as}
	for _, e := range h {
		g.events = append(g.events, e)
		g.rest()
	}
	return g.events
}
