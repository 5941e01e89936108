// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"slices"

	"github.com/sluice-proxy/sluice/dataplane"
	nftrender "github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/nftmodel"
)

type items = map[nftmodel.Name]string

// form is how the objects of a table differ from those that are rendered.
type form int

const (
	asRendered form = iota
	// ofOtherRelease is as another release writes it.
	ofOtherRelease
	// withoutFrontends lacks what belongs to a frontend.
	withoutFrontends
)

func (f form) of(objects []dataplane.Object) []dataplane.Object {
	switch f {
	case ofOtherRelease:
		return translated(objects)
	case withoutFrontends:
		return slices.DeleteFunc(objects, func(o dataplane.Object) bool {
			_, is := nftrender.Naming{}.Frontend(o.ID)
			return is
		})
	}
	return objects
}

// drafts remembers what single Services want of the proxy's table: each check asks for many states of the
// table, which differ in few of them. It is for the node's facts of one time.
type drafts struct {
	facts  *service.NodeFacts
	of     map[serviceOf][]draft
	layers map[layerOf]layer
	// rendered counts the Services that were rendered.
	rendered int
}

type serviceOf struct {
	family service.Family
	n      int
}

// draft is what one Service wants in one state.
type draft struct {
	served   served
	fragment *dataplane.Fragment
}

type layerOf struct {
	family service.Family
	digest uint64 // of the Service's fragment; 0 for nothing but the node's own part
	form   form
}

// layer is the table of the node and one Service. Own lists what the node's part lacks.
type layer struct {
	all items
	own []nftmodel.Item
}

// drafted returns the drafts that hold for the node's facts of today.
func (w *world) drafted() *drafts {
	if now := w.cluster.facts(); w.drafts == nil || !w.drafts.facts.Equal(now) {
		w.drafts = &drafts{facts: now, of: map[serviceOf][]draft{}, layers: map[layerOf]layer{}}
	}
	return w.drafts
}

// fragment returns what a Service wants.
func (w *world) fragment(family service.Family, s served) *dataplane.Fragment {
	d, of := w.drafted(), serviceOf{family, s.n}
	for _, known := range slices.Backward(d.of[of]) {
		if known.served.equal(s) {
			return known.fragment
		}
	}
	d.rendered++
	render := nftrender.NewRenderer(family, w.settings.options)
	f := dataplane.NewFragment(keyOf(s.n), render.Service(context.Background(), &s.view, s.state.facts))
	d.of[of] = append(d.of[of], draft{s, f})
	return f
}

// layer returns what the node and a Service want in a form. Without a fragment it is the node alone.
func (w *world) layer(family service.Family, f *dataplane.Fragment, as form) (made layer, err error) {
	d, id := w.drafted(), layerOf{family, 0, as}
	if f != nil {
		id.digest = f.Digest
	}
	if known, is := d.layers[id]; is {
		return known, nil
	}
	claims, node := newClaims(w.nodeObjects(family)), layer{}
	if f != nil {
		claims.add(f.Key, f.Objects)
		node, err = w.layer(family, nil, as)
	}
	if err == nil {
		made.all, err = claims.items(family, as)
	}
	if err != nil {
		return layer{}, err
	}
	for name, body := range made.all {
		if _, is := node.all[name]; !is {
			made.own = append(made.own, nftmodel.Item{Name: name, Body: body})
		}
	}
	d.layers[id] = made
	return made, nil
}

func (w *world) nodeObjects(family service.Family) []dataplane.Object {
	return nftrender.NewRenderer(family, w.settings.options).Node(w.cluster.facts())
}
