// Package render tells what Sluice would have in a kernel, without one: the same
// renderers, layouts and ledger as in the proxy, run once over a full picture.
package render

import (
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ledger"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
)

// Objects gives everything that a domain would hold for the Services in a cache.
// Which of two Services has what both claim, the ledger decides as ever. The
// layout is nil for a domain that can change single elements; another one belongs
// to this call.
func Objects(renderer dataplane.Renderer, layout dataplane.Layout, cache *source.Cache, facts *service.NodeFacts) []dataplane.Object {
	book := ledger.New(layout, renderer.Naming())
	book.Want(dataplane.NewFragment(service.Node, time.Time{}, renderer.Node(facts)))
	for _, key := range cache.Keys() {
		found := cache.Snapshot(key)
		view := service.Resolve(key, found.Spec, found.Slices, facts)
		book.Want(dataplane.NewFragment(key, view.Created, renderer.Service(&view, facts)))
	}
	// Nothing is known to be in the kernel, so the difference is everything.
	changes := book.Plan().Changes
	objects := make([]dataplane.Object, 0, len(changes))
	for i := range changes {
		objects = append(objects, *changes[i].After)
	}
	return objects
}
