// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// TestLayout_Confluence: after puts and removals in any order, with flushes at any time, the chains are the same as if
// composed from the remaining elements in one step.
func TestLayout_Confluence(t *testing.T) {
	for _, family := range service.Families {
		for _, c := range []Container{services, nodePorts, hairpin, refused, refusedPorts} {
			for _, seed := range testenv.Variants[uint64](0, 1) {
				t.Run(fmt.Sprintf("%s/%s/%d", family, c.Chain, seed), func(t *testing.T) {
					testConfluence(t, c, family, rand.New(rand.NewPCG(seed, 1)))
				})
			}
		}
	}
}

func testConfluence(t *testing.T, c Container, family service.Family, rnd *rand.Rand) {
	p := population{
		container: c, layout: New(family, []Container{c}),
		draw: keyMaker(c, family, rnd), rnd: rnd, items: map[string]item{},
	}
	k := kernel{}
	flushEvery := 1 + rnd.IntN(40)
	// The population swells and shrinks, so that chains split and merge.
	targets := []int{400, 20, 33, 32, 0, 280}
	if testenv.All() {
		targets = []int{400, 20, 900, 33, 32, 0, 280}
	}
	for _, target := range targets {
		for len(p.items) != target {
			p.step(target)
			if rnd.IntN(flushEvery) == 0 {
				k.apply(p.layout.Flush())
			}
		}
		k.apply(p.layout.Flush())
		if again := p.layout.Flush(); len(again) != 0 {
			t.Fatalf("a second flush gives %d objects, want none", len(again))
		}
		compare(t, k, fromScratch(c, family, p.items, rnd))
		checkInvariants(t, c, k, p.items)
		if t.Failed() {
			t.Fatalf("at %d elements", target)
		}
	}
}

// population is a layout and what it should hold.
type population struct {
	container Container
	layout    *Layout
	draw      func() string
	rnd       *rand.Rand
	items     map[string]item
	// names are in the order of drawing; some are no longer in items.
	names []string
}

// step moves the population towards the target, with detours.
func (p *population) step(target int) {
	grow := len(p.items) < target
	if p.rnd.IntN(5) == 0 {
		grow = !grow
	}
	if grow || len(p.names) == 0 {
		name := p.draw()
		i := makeItem(p.container, name)
		p.items[name] = i
		p.names = append(p.names, name)
		p.layout.Put(i.object, owner)
		return
	}
	n := p.rnd.IntN(len(p.names))
	name := p.names[n]
	p.names = slices.Delete(p.names, n, n+1)
	delete(p.items, name)
	p.layout.Remove(dataplane.ID{Container: p.container.Name(), Name: name})
}

func fromScratch(c Container, family service.Family, items map[string]item, rnd *rand.Rand) kernel {
	layout, k := New(family, []Container{c}), kernel{}
	names := slices.Sorted(maps.Keys(items))
	rnd.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for _, name := range names {
		layout.Put(items[name].object, owner)
	}
	k.apply(layout.Flush())
	return k
}

func compare(t *testing.T, got, want kernel) {
	t.Helper()
	for id, object := range want {
		if !reflect.DeepEqual(got[id], object) {
			t.Errorf("%s: got %+v\nwant %+v", id.Name, got[id], object)
		}
	}
	for id := range got {
		if want[id] == nil {
			t.Errorf("%s is still there", id.Name)
		}
	}
}
