// SPDX-License-Identifier: Apache-2.0

package cleaner

import (
	"net/netip"
	"slices"
	"sync"

	"github.com/sluice-proxy/sluice/service"
)

// expectations say where each Service's last view leads, applied or not. The kernel may follow
// such a view before the family cleaner knows it: a write takes effect before its writer returns,
// and the ack passes through the Service's actor. A flow that begins in between is not
// stale, though the picture that the family cleaner has says so. Without this, its answer would be
// lost with it.
//
// A sweep asks after it has seen the flow, and a view is submitted before the kernel can
// follow it, so each flow that began by a submitted view finds the view here or a later
// one. Flows that are kept for a view are judged again when that view is programmed. An
// actor reports no view as programmed after it has submitted another, so the last one of
// both kinds counts.
type expectations struct {
	mu        sync.Mutex
	services  map[service.Key][]port
	frontends map[frontend][]claim
	drains    map[service.Key]expectedDrain
}

// expectedDrain is the last view of a Service with a drain deadline.
type expectedDrain struct {
	picture *drainPicture
	applied bool
}

func newExpectations() *expectations {
	return &expectations{services: map[service.Key][]port{}, frontends: map[frontend][]claim{}, drains: map[service.Key]expectedDrain{}}
}

// put stores the ports of a Service's last view.
func (e *expectations) put(key service.Key, ports []port) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, old := range e.services[key] {
		for _, f := range old.frontends {
			left := slices.DeleteFunc(e.frontends[f], func(c claim) bool { return c.by == key })
			if e.frontends[f] = left; len(left) == 0 {
				delete(e.frontends, f)
			}
		}
	}
	delete(e.services, key)
	if len(ports) == 0 {
		return
	}
	e.services[key] = ports
	for _, p := range ports {
		for _, f := range p.frontends {
			e.frontends[f] = append(e.frontends[f], claim{by: key, serving: p.serving})
		}
	}
}

// putDrain stores where a Service's last view leads new connections, if it has a drain deadline. It returns the
// picture for the family cleaner, which does not see submitted views that were overtaken.
func (e *expectations) putDrain(key service.Key, p *drainPicture, applied bool) *drainPicture {
	e.mu.Lock()
	defer e.mu.Unlock()
	if p == nil {
		delete(e.drains, key)
		return nil
	}
	if last := e.drains[key]; !last.applied {
		p = p.overtaking(last.picture)
	}
	e.drains[key] = expectedDrain{p, applied}
	return p
}

// wants reports whether a Service's last view leads new connections to an endpoint of a port.
func (e *expectations) wants(key service.Key, id drainID, endpoint netip.AddrPort) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.drains[key].picture
	if p == nil {
		return false
	}
	port := p.port(id)
	return port != nil && holds(port.targets, endpoint)
}

// lead reports whether a last view leads a flow to where it goes.
func (e *expectations) lead(f *flow) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, to := range []frontend{f.To, nodePort(f.To.Port())} {
		for i := range e.frontends[to] {
			if holds(e.frontends[to][i].serving, f.Answerer) {
				return true
			}
		}
	}
	return false
}
