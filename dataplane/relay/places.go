// SPDX-License-Identifier: Apache-2.0

package relay

import "sync"

// Places are the addresses of all open listeners of the relays that serve the same host. The zero
// value has none. Any goroutine may use it.
//
// A datagram whose source is one of them is forged, because listeners send to clients only. If a
// listener replied to it, the reply would arrive at a listener as the next request, without end.
type Places struct{ listeners sync.Map }

func (p *Places) add(l *Listener)    { p.listeners.Store(l.place, l) }
func (p *Places) remove(l *Listener) { p.listeners.CompareAndDelete(l.place, l) }

func (p *Places) has(place Place) bool {
	_, has := p.listeners.Load(place)
	return has
}
