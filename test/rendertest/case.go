// SPDX-License-Identifier: Apache-2.0

package rendertest

import (
	"context"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// Case is one situation in one family, and the options of the mode's renderer for it, if they are not the usual ones.
type Case struct {
	Name string
	// Make returns the view and may change the facts. A nil view renders the scaffold.
	Make    func(w World, facts *service.NodeFacts) *service.View
	Options any
}

// render returns the objects of a case. The renderer is for the same family and has the case's options.
func (c Case) render(family service.Family, renderer dataplane.Renderer) []dataplane.Object {
	w := WorldOf(family)
	facts := w.Facts()
	if view := c.Make(w, facts); view != nil {
		return renderer.Service(context.Background(), view, facts)
	}
	return renderer.Node(facts)
}

// scaffoldOnly is a Case.Make for the scaffold with the usual facts.
func scaffoldOnly(World, *service.NodeFacts) *service.View { return nil }

// everywhere are the cases that all modes have.
var everywhere = []Case{
	{Name: "cluster-ip", Make: func(w World, _ *service.NodeFacts) *service.View {
		return w.View(w.Port())
	}},
	{Name: "external-cluster", Make: func(w World, _ *service.NodeFacts) *service.View {
		return w.View(w.OpenPort())
	}},
	{Name: "external-local", Make: func(w World, _ *service.NodeFacts) *service.View {
		p := w.OpenPort()
		p.ExternalLocal, p.Local = true, w.Endpoints(1)
		view := w.View(p)
		view.HealthCheckNodePort = 32000
		return view
	}},
	{Name: "scaffold", Make: scaffoldOnly},
}
