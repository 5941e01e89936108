package conntrack

import (
	"net/netip"
	"slices"

	"github.com/sluice-proxy/sluice/service"
)

// table holds what is in force in one family, and what has yet to be cleaned. It
// is pure and belongs to one keeper.
//
// Invariant: frontends holds exactly the claims of the pictures in services.
type table struct {
	// services has the Services with UDP ports.
	services  map[service.Key][]port
	frontends map[frontend][]claim
	// pending are the frontends that something has changed about since they
	// were last cleaned, each with the last Service that changed it.
	pending map[frontend]service.Key
}

// claim is one Service's on a frontend. Nearly always there is exactly one.
type claim struct {
	by      service.Key
	serving []netip.AddrPort
}

func newTable() *table {
	return &table{
		services:  map[service.Key][]port{},
		frontends: map[frontend][]claim{},
		pending:   map[frontend]service.Key{},
	}
}

// put takes note of what a Service is now. All its frontends become pending, those
// it had and those it has, even if nothing differs: between two pictures that are
// equal there may have been one that was in force too briefly to be told.
func (t *table) put(key service.Key, p picture) {
	for _, f := range p.overtaken {
		t.pending[f] = key
	}
	for _, old := range t.services[key] {
		for _, f := range old.frontends {
			t.withdraw(f, key)
		}
	}
	for _, now := range p.ports {
		for _, f := range now.frontends {
			t.frontends[f] = append(t.frontends[f], claim{by: key, serving: now.serving})
			t.pending[f] = key
		}
	}
	if len(p.ports) == 0 {
		delete(t.services, key)
		return
	}
	t.services[key] = p.ports
}

func (t *table) withdraw(f frontend, key service.Key) {
	t.pending[f] = key
	left := slices.DeleteFunc(t.frontends[f], func(c claim) bool { return c.by == key })
	if len(left) == 0 {
		delete(t.frontends, f)
		return
	}
	t.frontends[f] = left
}

// judge tells whether a flow of a pending frontend is stale, and whose change has
// made it so. Node ports answer on the addresses for which onNode is true.
//
// A frontend with an address of its own comes before a node port with the same
// number, as in the kernel's rules.
func (t *table) judge(f *flow, onNode func(netip.Addr) bool) (by service.Key, stale bool) {
	by, pending := t.pending[f.destination]
	claims := t.frontends[f.destination]
	if len(claims) == 0 {
		number := nodePort(f.destination.Port())
		whose, numberPending := t.pending[number]
		if (pending || numberPending) && onNode(f.destination.Addr()) {
			claims = t.frontends[number]
			if !pending {
				by, pending = whose, true
			}
		}
	}
	return by, pending && isStale(f, claims)
}

// isStale judges a flow through a frontend with these claims, possibly none.
//
//   - A flow to an endpoint that serves stays, whatever happens to the others.
//   - Where something serves, any other flow goes, be it to an endpoint that has
//     left or to no endpoint: its next packet finds one that serves.
//   - Where nothing serves, or the frontend is no Service's any more, a flow that
//     is translated goes, so that its client meets what the rules say now. One
//     that is not translated has never been led anywhere by a Service.
//
// Where a frontend is on a loopback address, a flow without translation is one to
// a process of this host, which may be the proxy itself (package localport).
func isStale(f *flow, claims []claim) bool {
	served := false
	for _, c := range claims {
		if _, found := slices.BinarySearchFunc(c.serving, f.answerer, netip.AddrPort.Compare); found {
			return false
		}
		served = served || len(c.serving) > 0
	}
	return f.translated() || served && !f.destination.Addr().IsLoopback()
}
