// SPDX-License-Identifier: Apache-2.0

package actors

import "github.com/sluice-proxy/sluice/service"

// Forget drops the view of a machine that is going to rest, if it is applied everywhere, so that nothing reads it
// before the next change. The next change resolves the view again from the same inputs, which are kept anyway. A large
// view stays, because resolving it again would take longer than the change.
func (m *Machine) Forget() {
	if !m.viewed || m.dirty || m.size() > forgetMax {
		return
	}
	for i := range m.sent {
		line := &m.sent[i]
		if !line.submitted || !line.settled || !line.reported && m.outputs[i].Programmed != nil {
			return
		}
	}
	m.view = nil
}

// forgetMax is the number of endpoints up to which a view is forgotten. Resolving ten takes 5 µs.
const forgetMax = 64

// size is the number of endpoints from which the view was resolved.
func (m *Machine) size() (n int) {
	for _, s := range m.slices {
		n += len(s.Endpoints)
	}
	return n
}

// remember resolves a forgotten view again. It must be called before the view's inputs change.
func (m *Machine) remember() {
	if m.view == nil {
		view := service.Resolve(m.key, m.spec, m.slices, m.facts)
		m.view = &view
	}
}
