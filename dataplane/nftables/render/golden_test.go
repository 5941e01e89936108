// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/dataplane/nftables/rules"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/rendertest"
	"github.com/sluice-proxy/sluice/test/writertest"
)

// TestRenderer_GoldenRuleset compares the whole ruleset of a few Services, in nft's syntax, with files that a person
// can review.
func TestRenderer_GoldenRuleset(t *testing.T) {
	for _, family := range service.Families {
		f := writertest.NewFixture(family)
		r := render.NewRenderer(family, render.Options{MasqueradeBit: 14})
		facts := f.Facts()
		objects := r.Node(&facts)
		for i, spec := range f.Variety() {
			slice := f.Slice(f.A, f.B, f.C)
			slice.Service = spec.Key
			var from []*service.Slice
			if i < 4 || spec.Key.Name == "denying" {
				from = append(from, slice)
			}
			view := service.Resolve(spec.Key, &spec, from, &facts)
			objects = append(objects, r.Service(context.Background(), &view, &facts)...)
		}
		objects = dataplane.NewFragment(service.Node, objects).Objects
		got, err := render.Text(family, objects)
		if err != nil {
			t.Fatal(err)
		}
		rendertest.Golden(t, "ruleset-"+family.String()+".nft", got)
	}
}

// TestRenderer_Deterministic: equal views render to equal objects, with any renderer and regardless of earlier
// renderings.
func TestRenderer_Deterministic(t *testing.T) {
	for _, family := range service.Families {
		f := writertest.NewFixture(family)
		used := render.NewRenderer(family, render.Options{MasqueradeBit: 14})
		for name, facts := range f.AllFacts() {
			for _, spec := range f.Variety() {
				slice := f.Slice(f.C, f.A, f.B)
				slice.Service = spec.Key
				view := service.Resolve(spec.Key, &spec, []*service.Slice{slice}, &facts)
				fresh := render.NewRenderer(family, render.Options{MasqueradeBit: 14})
				a, b := used.Service(context.Background(), &view, &facts), fresh.Service(context.Background(), &view, &facts)
				if !slices.EqualFunc(a, b, func(a, b dataplane.Object) bool {
					return dataplane.Same(&a, &b) && slices.Equal(a.Refs(), b.Refs()) && a.Kind == b.Kind
				}) {
					t.Errorf("%s, %s: two renderers disagree on %s", family, name, spec.Key)
				}
			}
		}
	}
}

// TestRenderer_SharedObjectsEqual: the identity of an object that belongs to neither a frontend nor one Service determines
// its body, for all Services and all facts about the node. The ledger only counts the claims for such an object.
func TestRenderer_SharedObjectsEqual(t *testing.T) {
	for _, family := range service.Families {
		f := writertest.NewFixture(family)
		r := render.NewRenderer(family, render.Options{MasqueradeBit: 14})
		bodies, shared := map[dataplane.ID]string{}, 0
		for name, facts := range f.AllFacts() {
			for _, spec := range f.Variety() {
				slice := f.Slice(f.A, f.B, f.C)
				slice.Service = spec.Key
				view := service.Resolve(spec.Key, &spec, []*service.Slice{slice}, &facts)
				for _, o := range r.Service(context.Background(), &view, &facts) {
					if _, ofFrontend := r.Naming().Frontend(o.ID); ofFrontend || strings.Contains(o.ID.Container+o.ID.Name, "/") {
						continue
					}
					body, known := bodies[o.ID]
					if bodies[o.ID] = o.Body; known {
						shared++
					}
					if known && body != o.Body {
						t.Errorf("%s, %s: %s wants another %v", family, name, spec.Key, o.ID)
					}
				}
			}
		}
		if shared < 100 {
			t.Errorf("%s: %d objects are too few to prove anything", family, shared)
		}
	}
}

// TestRenderer_ReferencedObjectsRendered: every object that a rendered object refers to is rendered with it or with the
// scaffold.
func TestRenderer_ReferencedObjectsRendered(t *testing.T) {
	for _, family := range service.Families {
		f := writertest.NewFixture(family)
		r := render.NewRenderer(family, render.Options{MasqueradeBit: 14})
		for name, facts := range f.AllFacts() {
			scaffold := r.Node(&facts)
			for i, spec := range f.Variety() {
				slice := f.Slice(f.A, f.B)
				slice.Service = spec.Key
				view := service.Resolve(spec.Key, &spec, []*service.Slice{slice}, &facts)
				all := append(slices.Clone(scaffold), r.Service(context.Background(), &view, &facts)...)
				there := map[dataplane.ID]bool{}
				for _, o := range all {
					there[o.ID] = true
				}
				for _, o := range all {
					for _, ref := range o.Refs() {
						if !there[ref] {
							t.Errorf("%s, %s, Service %d: %v refers to %v, which is not rendered", family, name, i, o.ID, ref)
						}
					}
				}
			}
		}
	}
}

// TestRenderer_RulesRoundTrip: the body of each rendered chain is decoded as rules with a text, and encoding them
// yields the same bytes.
func TestRenderer_RulesRoundTrip(t *testing.T) {
	for _, family := range service.Families {
		f := writertest.NewFixture(family)
		r := render.NewRenderer(family, render.Options{MasqueradeBit: 14})
		seen := 0
		for name, facts := range f.AllFacts() {
			objects := r.Node(&facts)
			for _, spec := range f.Variety() {
				slice := f.Slice(f.A, f.B, f.C)
				slice.Service = spec.Key
				view := service.Resolve(spec.Key, &spec, []*service.Slice{slice}, &facts)
				objects = append(objects, r.Service(context.Background(), &view, &facts)...)
			}
			for _, o := range objects {
				if o.ID.Container != "chain" {
					continue
				}
				chain := rules.DecodeChain(o.ID.Name, []byte(o.Body))
				seen += len(chain.Rules)
				if string(chain.Encode()) != o.Body {
					t.Errorf("%s, %s: %s comes back as %+v", family, name, o.ID.Name, chain)
				}
				for i := range chain.Rules {
					if _, err := chain.Rules[i].Text(family); err != nil {
						t.Errorf("%s, %s: rule %d of %s: %v", family, name, i+1, o.ID.Name, err)
					}
				}
			}
		}
		if seen < 100 {
			t.Errorf("%s: %d rules are too few to prove anything", family, seen)
		}
	}
}
