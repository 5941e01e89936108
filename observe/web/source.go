// SPDX-License-Identifier: Apache-2.0

package web

import (
	"net/http"
	"net/netip"
	"sync"
)

// SourceOf returns where a request comes from. The owner of an IPv6 address has the whole /64. A request needs a
// connection, so the address is not forged.
func SourceOf(r *http.Request) netip.Prefix {
	at, _ := netip.ParseAddrPort(r.RemoteAddr) // the zero value is an address as well
	addr, bits := at.Addr().Unmap().WithZone(""), 64
	if addr.Is4() {
		bits = 32
	}
	from, _ := addr.Prefix(bits)
	return from
}

// Places bound requests in progress: all, and those of each source. Any goroutine may use them.
type Places struct {
	all, each int
	mu        sync.Mutex
	taken     int
	of        map[netip.Prefix]int
}

// NewPlaces returns places for all requests, of which one source may take up to each.
func NewPlaces(all, each int) *Places {
	return &Places{all: all, each: each, of: map[netip.Prefix]int{}}
}

// Take takes a place, and reports whether there was one. If so, the caller must call Leave.
func (p *Places) Take(from netip.Prefix) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken >= p.all || p.of[from] >= p.each {
		return false
	}
	p.taken++
	p.of[from]++
	return true
}

// Leave leaves a place.
func (p *Places) Leave(from netip.Prefix) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	if p.of[from]--; p.of[from] == 0 {
		delete(p.of, from)
	}
}
