package actors

import "github.com/sluice-proxy/sluice/service"

// objectsMax is the default of Config.ObjectsMax.
const objectsMax = 50_000

// allocatedShare is how many objects of allocated frontends count as one: a Service of thousands of
// endpoints with a few load balancer VIPs is legitimate, and must not stop following them in a rollout.
const allocatedShare = 10

// weigh counts the objects of one service port in a domain.
func weigh(output *Output, port service.PortSize, facts *service.NodeFacts) int {
	allocated := output.Renderer.Size(port.Allocated(), facts)
	return output.Renderer.Size(port, facts) - allocated + (allocated+allocatedShare-1)/allocatedShare
}

// measure sets excess: whether the Service asks for too much in some domain. That is
// decided before anything is resolved or rendered, by counting.
func (m *Machine) measure() {
	before := m.excess
	m.excess = false
	if m.key == service.Node || m.spec == nil || m.objectsMax == 0 {
		m.fits(before)
		return
	}
	for i := range m.outputs {
		output, objects := &m.outputs[i], 0
		service.Sizes(m.spec, m.slices, output.Family, func(port service.PortSize) {
			objects += weigh(output, port, m.facts)
		})
		if objects <= m.objectsMax {
			continue
		}
		if m.excess = true; !before {
			m.events = append(m.events, TooLarge{Key: m.key, Domain: output.Name, Objects: objects, Max: m.objectsMax})
		}
		return
	}
	m.fits(before)
}

// fits reports that the Service is no longer too large.
func (m *Machine) fits(before bool) {
	if before {
		m.events = append(m.events, Fits{Key: m.key})
	}
}
