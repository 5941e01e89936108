// SPDX-License-Identifier: Apache-2.0

package actors

import "github.com/sluice-proxy/sluice/service"

// objectsMax is the default of Config.ObjectsMax.
const objectsMax = 50_000

// Measure reports whether a Service needs more than most objects in some domain, and returns the first such domain. It
// only counts: it neither resolves nor renders.
func Measure(outputs []Output, spec *service.Spec, from []*service.Slice, facts *service.NodeFacts, most int) (excess TooLarge, found bool) {
	if spec == nil {
		return excess, false
	}
	for i := range outputs {
		output, objects := &outputs[i], 0
		service.Sizes(spec, from, output.Family, func(port service.PortSize) {
			objects += output.Renderer.Size(port, facts)
		})
		if objects > most {
			return TooLarge{Key: spec.Key, Domain: output.Name, Objects: objects, Max: most}, true
		}
	}
	return excess, false
}

// measure sets excess: whether the Service asks for too much in some domain.
func (m *Machine) measure() {
	before := m.excess
	var found TooLarge
	m.excess = false
	if m.objectsMax > 0 {
		found, m.excess = Measure(m.outputs, m.spec, m.slices, m.facts, m.objectsMax)
	}
	switch {
	case m.excess && !before:
		m.events = append(m.events, found)
	case before && !m.excess:
		m.events = append(m.events, Fits{Key: m.key})
	}
}
