// SPDX-License-Identifier: Apache-2.0

// Package render computes the objects that Sluice would write to a kernel, without a kernel. It runs the renderers,
// layouts and ledger of the proxy once over a complete cache. The commands "sluice plan" and "sluice explain" use it.
package render

import (
	"context"
	"iter"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ledger"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
)

// Views yields the view of each Service in a cache.
func Views(cache *source.Cache, facts *service.NodeFacts) iter.Seq[*service.View] {
	return func(yield func(*service.View) bool) {
		for _, key := range cache.Keys() {
			found := cache.Snapshot(key)
			if view := service.Resolve(key, found.Spec, found.Slices, facts); !yield(&view) {
				return
			}
		}
	}
}

// Objects returns all objects that a domain would contain for some Services. The layout is nil for a domain that can
// change single elements; otherwise it must be new.
func Objects(renderer dataplane.Renderer, layout dataplane.Layout,
	views iter.Seq[*service.View], facts *service.NodeFacts) []dataplane.Object {
	// Nothing is known to be in the kernel, so the difference is everything.
	changes := Ledger(renderer, layout, views, facts).Plan().Changes
	objects := make([]dataplane.Object, 0, len(changes))
	for i := range changes {
		objects = append(objects, *changes[i].After)
	}
	return objects
}

// Ledger returns the ledger of a domain that wants the objects of Objects, and in which the kernel has no objects. It
// renders the scaffold before it takes the first view.
func Ledger(renderer dataplane.Renderer, layout dataplane.Layout,
	views iter.Seq[*service.View], facts *service.NodeFacts) *ledger.Ledger {
	book := ledger.New(layout, renderer.Naming(), nil)
	book.Want(dataplane.NewFragment(service.Node, dataplane.RenderNode(context.Background(), renderer, facts)))
	for view := range views {
		book.Want(dataplane.NewFragment(view.Key, renderer.Service(context.Background(), view, facts)))
	}
	return book
}
