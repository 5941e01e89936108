// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
	nftkernel "github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	nftrender "github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/nftmodel"
)

// served is one Service as a kernel has it.
type served struct {
	n     int
	state state
	view  service.View
	// resolved are the node's facts in the view. Those of the state may be newer.
	resolved *service.NodeFacts
}

func serve(n int, s state) served { return served{n, s, s.view(keyOf(n)), s.facts} }

func (s served) equal(other served) bool {
	return s.state.equal(other.state) && s.resolved.Equal(other.resolved)
}

// expectedItems returns the proxy's table as it has to be: what Services share is as those want it of which
// nothing is held back. It joins what each wants alone; itemsInFull is the same, made in one piece.
func (w *world) expectedItems(family service.Family, all []served, as form) (items, error) {
	node, err := w.layer(family, nil, as)
	if err != nil {
		return nil, err
	}
	table := maps.Clone(node.all)
	for _, s := range w.heldLast(family, w.contest(family, all)) {
		mine, err := w.layer(family, w.fragment(family, s), as)
		if err != nil {
			return nil, err
		}
		for _, item := range mine.own {
			if _, claimed := table[item.Name]; !claimed {
				table[item.Name] = item.Body
			}
		}
	}
	return table, nil
}

// itemsInFull computes the proxy's table from scratch: everything is rendered, and a kernel without a past
// takes it in one transaction.
func (w *world) itemsInFull(family service.Family, all []served, as form) (items, error) {
	claims := newClaims(w.nodeObjects(family))
	render := nftrender.NewRenderer(family, w.settings.options)
	for _, s := range w.heldLast(family, w.contest(family, all)) {
		claims.add(s.view.Key, render.Service(context.Background(), &s.view, s.state.facts))
	}
	return claims.items(family, as)
}

// checkJoin objects if the table in full is not the joined one.
func (w *world) checkJoin(family service.Family, all []served, joined items) {
	full, err := w.itemsInFull(family, all, asRendered)
	if err == nil && !maps.Equal(joined, full) {
		err = fmt.Errorf("%v: the simulation joins a table of %d parts to %d others, or with other content", family, len(full), len(joined))
	}
	if err != nil {
		w.monitor.object(err)
	}
}

// claims are objects, each as the first has it who wants it.
type claims struct {
	objects []dataplane.Object
	owners  map[dataplane.ID]service.Key
}

func newClaims(node []dataplane.Object) *claims {
	c := &claims{owners: map[dataplane.ID]service.Key{}}
	c.add(service.Node, node)
	return c
}

func (c *claims) add(owner service.Key, rendered []dataplane.Object) {
	for _, o := range rendered {
		if _, claimed := c.owners[o.ID]; !claimed {
			c.owners[o.ID] = owner
			c.objects = append(c.objects, o)
		}
	}
}

// items returns what a kernel has that takes all of it in one transaction.
func (c *claims) items(family service.Family, as form) (items, error) {
	objects := as.of(c.objects)
	kernel := nftmodel.NewKernel()
	batch := &dataplane.Batch{}
	for i := range objects {
		batch.Changes = append(batch.Changes, dataplane.Change{ID: objects[i].ID, After: &objects[i], Owner: c.owners[objects[i].ID]})
	}
	writer := nftkernel.NewWriter(family, nftkernel.WriterConfig{Open: kernel.Open})
	if receipt := writer.Write(context.Background(), batch); receipt.Outcome != dataplane.Landed {
		return nil, fmt.Errorf("the expected table cannot be written: %v", receipt.Err)
	}
	table := items{}
	for _, item := range kernel.Items(family) {
		table[item.Name] = item.Body
	}
	return table, nil
}

// heldLast sorts Services: those of which nothing is held back come first.
func (w *world) heldLast(family service.Family, all []served) []served {
	held := func(s served) int {
		if w.cluster.heldBack(s.n, family) {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(all, func(a, b served) int { return cmp.Or(held(a)-held(b), a.view.Key.Compare(b.view.Key)) })
	return all
}

// hairpins is the set of endpoints that reach themselves. Its elements bear no Service's
// name: those of a former process stay while a Service is held back that they may belong
// to, unless a Service that has them as well gives them up.
var hairpins = nftrender.SetName("hairpins")

// choices returns every combination of what may be in a family's kernel; usually there is
// one. Services that are held back may have left one of several states.
func (w *world) choices(family service.Family) [][]served {
	const most = 64
	kernel := newReading(w, family)
	combinations := [][]served{nil}
	for _, n := range w.cluster.numbers() {
		if w.isVague(n, family) {
			continue
		}
		candidates := kernel.distinct(n, w.cluster.candidates(n, family))
		var next [][]served
		for _, c := range combinations {
			for _, s := range candidates {
				if len(next) < most {
					next = append(next, append(slices.Clip(c), s))
				}
			}
		}
		combinations = next
	}
	return combinations
}

// reading is what the kernel holds for a family, as the proxy's objects.
type reading struct {
	*world
	family  service.Family
	objects []dataplane.Object
	// named has the elements that bear a Service's name.
	named map[service.Key][]*dataplane.Object
}

func newReading(w *world, family service.Family) *reading {
	writer := nftkernel.NewWriter(family, nftkernel.WriterConfig{Open: w.kernel.Open})
	objects, err := writer.Read(context.Background())
	if err != nil {
		w.monitor.object(err)
	}
	r := &reading{
		world: w, family: family, objects: objects, named: map[service.Key][]*dataplane.Object{},
	}
	for i := range objects {
		if owner, named := (nftrender.Origin{}).Owner(&objects[i]); named {
			r.named[owner] = append(r.named[owner], &objects[i])
		}
	}
	return r
}

// distinct returns the candidates of a Service that differ in their rules, newest first.
func (r *reading) distinct(n int, candidates []state) []served {
	if len(candidates) == 1 {
		return []served{serve(n, candidates[0])}
	}
	seen := map[uint64]bool{}
	var out []served
	for _, s := range slices.Backward(candidates) {
		candidate := serve(n, s)
		f := r.fragment(r.family, candidate)
		if !seen[f.Digest] && r.plausible(n, f) {
			seen[f.Digest] = true
			out = append(out, candidate)
		}
	}
	if len(out) == 0 {
		out = append(out, serve(n, candidates[0]))
	}
	return out
}

// plausible reports whether the kernel holds at a Service's ClusterIP, which no other
// Service has, what a fragment wants there, and whether it wants all that bears its name.
func (r *reading) plausible(n int, f *dataplane.Fragment) bool {
	address := string(clusterIP(r.family, n).AsSlice())
	at := func(objects []dataplane.Object) map[dataplane.ID]string {
		some := map[dataplane.ID]string{}
		for _, o := range objects {
			if o.Kind == dataplane.Element && strings.HasPrefix(o.ID.Name, address) {
				some[o.ID] = o.Body
			}
		}
		return some
	}
	wanted, there := at(f.Objects), at(r.objects)
	for id, body := range wanted {
		if there[id] != body {
			return false
		}
	}
	wants := map[dataplane.ID]string{}
	for _, o := range f.Objects {
		wants[o.ID] = o.Body
	}
	return len(wanted) == len(there) && !slices.ContainsFunc(r.named[keyOf(n)], func(o *dataplane.Object) bool {
		body, is := wants[o.ID]
		return !is || body != o.Body
	})
}
