// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"net/netip"
	"slices"
	"sync"

	"github.com/sluice-proxy/sluice/service"
)

// expectations hold the endpoints of each Service's last view, applied or not. The kernel may
// apply a view before the family cleaner receives it: a write takes effect before its writer
// returns, and the ack passes through the Service's actor. A flow that begins in between is not
// stale, although it seems so by the family cleaner's older picture. If a sweep deleted it, the
// answer to its client would be lost.
//
// A sweep looks here after it has read the flow, and a view is submitted before the kernel can
// apply it. So the sweep finds the view by which the flow began, or a later one. A flow that is
// kept because of a view is judged again when that view is programmed. An actor does not report
// a view as programmed after it has submitted another one, so the last view of either kind counts.
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

// putDrain stores the drain picture of a Service's last view, which may be nil. It returns the picture for the family
// cleaner, marked as unknown if it replaces one with other endpoints that was submitted but not applied.
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

// lead reports whether the last view of some Service leads a flow to the endpoint to which it goes.
func (e *expectations) lead(f *flow) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, to := range []frontend{f.destination, nodePort(f.destination.Port())} {
		for i := range e.frontends[to] {
			if holds(e.frontends[to][i].serving, f.answerer) {
				return true
			}
		}
	}
	return false
}
