package sim

import (
	"cmp"
	"context"
	"fmt"
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
}

func serve(n int, s state) served { return served{n, s, s.view(keyOf(n))} }

// expectedItems computes the proxy's table from scratch: everything is rendered, what Services share
// is as those want it of which nothing is held back, and a kernel without a past takes it in one
// transaction. Translate, when set, gives the objects another form.
func (w *world) expectedItems(
	family service.Family, all []served, translate func([]dataplane.Object) []dataplane.Object,
) (map[nftmodel.Name]string, error) {
	render := nftrender.NewRenderer(family, w.settings.options)
	var objects []dataplane.Object
	owners := map[dataplane.ID]service.Key{}
	claim := func(owner service.Key, rendered []dataplane.Object) {
		for _, o := range rendered {
			if _, claimed := owners[o.ID]; !claimed {
				owners[o.ID] = owner
				objects = append(objects, o)
			}
		}
	}
	claim(service.Node, render.Node(w.cluster.facts()))
	for _, s := range w.heldLast(family, w.contest(family, all)) {
		claim(s.view.Key, render.Service(context.Background(), &s.view, s.state.facts))
	}
	if translate != nil {
		objects = translate(objects)
	}
	kernel := nftmodel.NewKernel()
	batch := &dataplane.Batch{}
	for i := range objects {
		batch.Changes = append(batch.Changes, dataplane.Change{ID: objects[i].ID, After: &objects[i], Owner: owners[objects[i].ID]})
	}
	writer := nftkernel.NewWriter(family, nftkernel.WriterConfig{Open: kernel.Open})
	if receipt := writer.Write(context.Background(), batch); receipt.Outcome != dataplane.Landed {
		return nil, fmt.Errorf("the expected table cannot be written: %v", receipt.Err)
	}
	items := map[nftmodel.Name]string{}
	for _, item := range kernel.Items(family) {
		items[item.Name] = item.Body
	}
	return items, nil
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
	family  service.Family
	render  *nftrender.Renderer
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
		family: family, render: nftrender.NewRenderer(family, w.settings.options), objects: objects,
		named: map[service.Key][]*dataplane.Object{},
	}
	for i := range objects {
		if owner, named := writer.Owner(&objects[i]); named {
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
		f := dataplane.NewFragment(keyOf(n), r.render.Service(context.Background(), &candidate.view, s.facts))
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
