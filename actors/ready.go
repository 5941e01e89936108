// SPDX-License-Identifier: Apache-2.0

package actors

import (
	"context"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// Ready is everything that a turn has decided. The actor carries it out.
type Ready struct {
	// Events are for Config.Listen.
	Events []Event
	// View is the present view; nil for the actor of the node, and if no listener needs it.
	View *service.View
	// Fragments has an entry per output, nil if the domain has the fragment. It is nil if nothing was rendered.
	Fragments []*dataplane.Fragment
	// Programmed are the outputs in which View is newly applied.
	Programmed []int
}

// Conclude ends a turn that began at a time. It resolves the view and renders, unless nothing has changed. If the
// context ends first, the result may be incomplete and must be dropped, with the machine.
func (m *Machine) Conclude(ctx context.Context, began time.Time) (r Ready) {
	if m.resolve() {
		m.trace.Seen = dataplane.MomentOf(began)
		r.Fragments = m.fragments(ctx)
	}
	m.cause, m.trace = Cause{}, dataplane.Trace{}
	if m.key != service.Node {
		r.View = m.view
	}
	r.Programmed = m.programmed()
	r.Events, m.events = m.events, nil
	return r
}

// resolve resolves the view, and reports whether there is something to render.
func (m *Machine) resolve() bool {
	if !m.dirty {
		return false
	}
	m.dirty = false
	refacted := m.refacted
	m.refacted = false
	if m.key == service.Node {
		return refacted
	}
	view := service.Resolve(m.key, m.spec, m.slices, m.facts)
	m.measure(view.Excess)
	if m.viewed && !refacted && view.Equal(m.view) && !m.outstanding() {
		return false
	}
	m.view, m.viewed = &view, true
	for i := range m.sent {
		m.sent[i].reported = false
	}
	return true
}

// measure records whether the Service is above the limit.
func (m *Machine) measure(e service.Excess) {
	before := m.large
	switch m.large = e.LeftOut > 0; {
	case m.large && !before:
		m.events = append(m.events, TooLarge{Key: m.key, Excess: e})
	case before && !m.large:
		m.events = append(m.events, Fits{Key: m.key})
	}
}

// outstanding reports whether some domain needs a fragment although the view is equal: nothing was submitted to it, or
// the Service is gone, or exists again.
func (m *Machine) outstanding() bool {
	for _, line := range m.sent {
		if !line.submitted || line.gone != m.gone() {
			return true
		}
	}
	return false
}

func (m *Machine) gone() bool { return m.spec == nil && m.key != service.Node }

// fragments renders the view, or the scaffold for the node's actor, for each output.
func (m *Machine) fragments(ctx context.Context) []*dataplane.Fragment {
	all := make([]*dataplane.Fragment, len(m.outputs))
	for i := range m.outputs {
		var objects []dataplane.Object
		if r := m.outputs[i].Renderer; m.key == service.Node {
			objects = dataplane.RenderNode(ctx, r, m.facts)
		} else {
			objects = r.Service(ctx, m.view, m.facts)
		}
		if ctx.Err() != nil {
			return nil // the objects may be incomplete
		}
		all[i] = m.fragment(i, objects)
	}
	return all
}

// fragment makes a fragment from the objects rendered for an output. It returns nil
// if the domain already has this fragment.
func (m *Machine) fragment(output int, objects []dataplane.Object) *dataplane.Fragment {
	f := dataplane.NewFragment(m.key, objects)
	line := &m.sent[output]
	f.Gone = m.gone()
	if line.submitted && line.digest == f.Digest && line.gone == f.Gone {
		return nil
	}
	m.revision = m.revision.Next()
	f.Revision = m.revision
	f.Trigger, f.Received = m.cause.Trigger, m.cause.Received
	f.Trace = m.trace
	f.Trace.Endpoints = m.endpoints(m.outputs[output].Family)
	*line = sent{submitted: true, digest: f.Digest, gone: f.Gone, revision: f.Revision}
	return f
}

// endpoints counts the endpoints that may get new connections in a family.
func (m *Machine) endpoints(family service.Family) (n uint32) {
	for i := range m.view.Ports[family] {
		n += uint32(len(m.view.Ports[family][i].Reachable()))
	}
	return n
}

// programmed returns the outputs in which the present view is newly and fully applied. It returns each of them once.
func (m *Machine) programmed() (outputs []int) {
	for i := range m.sent {
		line := &m.sent[i]
		if m.outputs[i].Programmed == nil || !m.viewed || !line.submitted || !line.settled || line.reported {
			continue
		}
		line.reported = true
		outputs = append(outputs, i)
	}
	return outputs
}
