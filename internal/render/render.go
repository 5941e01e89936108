// Package render computes what Sluice would have in a kernel, without one. It runs the
// renderers, layouts and ledger of the proxy once over a complete cache. The command
// "sluice render" uses it.
package render

import (
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ledger"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
)

// Objects returns everything that a domain would have for the Services in a cache. The
// layout is nil for a domain that can change single elements; otherwise it must be new.
func Objects(renderer dataplane.Renderer, layout dataplane.Layout,
	cache *source.Cache, facts *service.NodeFacts) []dataplane.Object {
	return ObjectsOf(renderer, layout, cache, facts, cache.Keys())
}

// ObjectsOf is Objects as if the cache had some of its Services only.
func ObjectsOf(renderer dataplane.Renderer, layout dataplane.Layout,
	cache *source.Cache, facts *service.NodeFacts, keys []service.Key) []dataplane.Object {
	book := ledger.New(layout, renderer.Naming())
	book.Want(dataplane.NewFragment(service.Node, time.Time{}, renderer.Node(facts)))
	for _, key := range keys {
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
