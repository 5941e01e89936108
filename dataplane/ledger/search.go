// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/sluice-proxy/sluice/service"
)

// Search looks for the objects that send new connections to some endpoints. It visits all objects in
// portions, between which the ledger may change. What changes in the meantime is looked at again, so after
// the last portion, each object was looked at as it is then: an endpoint that moves from one object to
// another one is not overlooked.
//
// The kernel has an object as it is known or, while it is written, as it is wanted. Both are looked at. If
// it may be otherwise (entry.unsure), the search proves nothing.
type Search struct {
	ledger *Ledger
	asked  map[netip.Addr][]*Sought
	next   func() (int, bool)
	stop   func()
	unsure bool
	// present is the entry that is looked at, for meet, which is allocated once.
	present *entry
	meet    func(netip.AddrPort)
}

// SendersMax bounds the Services that a search names for an endpoint.
const SendersMax = 10

// Sought is an endpoint and who sends new connections to it.
type Sought struct {
	// At is the endpoint. Port 0 stands for all ports of the address.
	At netip.AddrPort
	// By are Services that sent to it at some moment of the search; service.Node for an object of no
	// Service. More is set if there are others.
	By   []service.Key
	More bool
}

// Search begins a search for endpoints, in portions of some objects. The caller calls Step until it reports true, and
// End in any case.
func (l *Ledger) Search(sought []*Sought, portion int) *Search {
	s := &Search{ledger: l, asked: make(map[netip.Addr][]*Sought, len(sought))}
	for _, at := range sought {
		s.asked[at.At.Addr()] = append(s.asked[at.At.Addr()], at)
	}
	s.meet = s.met
	s.next, s.stop = iter.Pull(s.visit(portion))
	l.searches = append(l.searches, s)
	return s
}

// visit looks at all entries. It yields after each portion.
func (s *Search) visit(portion int) iter.Seq[int] {
	return func(yield func(int) bool) {
		visited := 0
		for e := range s.ledger.entries.walk() {
			s.look(e)
			if visited++; visited%portion == 0 && !yield(visited) {
				return
			}
		}
	}
}

// Step visits a portion of the objects, and reports whether that was the last one.
func (s *Search) Step() (done bool) {
	_, more := s.next()
	return !more
}

// End ends the search. It reports whether the state of some object in the kernel was not known.
func (s *Search) End() (unsure bool) {
	s.stop()
	s.ledger.searches = slices.DeleteFunc(s.ledger.searches, func(other *Search) bool { return other == s })
	return s.unsure
}

// look notes the endpoints of an entry.
func (s *Search) look(e *entry) {
	s.unsure = s.unsure || e.unsure
	s.present = e
	if e.known != nil {
		s.ledger.naming.Sends(e.known, s.meet)
	}
	if e.wanted != nil && e.wanted != e.known {
		s.ledger.naming.Sends(e.wanted, s.meet)
	}
}

// met notes that the present entry sends to an endpoint.
func (s *Search) met(at netip.AddrPort) {
	for _, sought := range s.asked[at.Addr()] {
		if port := sought.At.Port(); port != 0 && port != at.Port() {
			continue
		}
		switch by := s.present.owner(); {
		case slices.Contains(sought.By, by):
		case len(sought.By) < SendersMax:
			sought.By = append(sought.By, by)
		default:
			sought.More = true
		}
	}
}
