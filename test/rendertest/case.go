package rendertest

import (
	"context"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// Case is one situation in one family, and the options O of the renderer for it.
type Case[O any] struct {
	Name string
	// Make returns the view and may change the facts. A nil view renders the scaffold.
	Make    func(w World, facts *service.NodeFacts) *service.View
	Options O
}

// Renderer is a backend's renderer.
type Renderer interface {
	Node(facts *service.NodeFacts) []dataplane.Object
	Service(ctx context.Context, view *service.View, facts *service.NodeFacts) []dataplane.Object
}

// Render returns the objects of a case. The renderer is for the same family and has the case's options.
func (c Case[O]) Render(family service.Family, renderer Renderer) []dataplane.Object {
	w := WorldOf(family)
	facts := w.Facts()
	if view := c.Make(w, facts); view != nil {
		return renderer.Service(context.Background(), view, facts)
	}
	return renderer.Node(facts)
}

// ScaffoldOnly is a Case.Make for the scaffold with the usual facts.
func ScaffoldOnly(World, *service.NodeFacts) *service.View { return nil }
