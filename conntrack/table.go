package conntrack

import (
	"net/netip"
	"slices"
	"time"

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
	// grace is how long flows stay after the last endpoint has gone, and graces are
	// the claims whose time runs, in the order in which it ends.
	grace  time.Duration
	graces []grace
}

// claim is one Service's on a frontend. Nearly always there is exactly one.
type claim struct {
	by               service.Key
	serving, resting []netip.AddrPort
	// emptied is since when nothing serves, as long as the grace lasts; zero
	// otherwise.
	emptied time.Time
}

// grace is the time for which a claim's flows stay that lead to no endpoint.
type grace struct {
	of    frontend
	by    service.Key
	since time.Time
}

func newTable(grace time.Duration) *table {
	return &table{
		grace:     grace,
		services:  map[service.Key][]port{},
		frontends: map[frontend][]claim{},
		pending:   map[frontend]service.Key{},
	}
}

// put takes note of what a Service is now. All its frontends become pending, those
// it had and those it has, even if nothing differs: between two pictures that are
// equal there may have been one that was in force too briefly to be told.
func (t *table) put(key service.Key, p picture, now time.Time) {
	for _, f := range p.overtaken {
		t.pending[f] = key
	}
	// A grace that runs or has run out goes on as long as nothing serves.
	emptied := map[frontend]time.Time{}
	for _, old := range t.services[key] {
		for _, f := range old.frontends {
			for _, c := range t.frontends[f] {
				if c.by == key && len(c.serving) == 0 {
					emptied[f] = c.emptied
				}
			}
			t.withdraw(f, key)
		}
	}
	for _, port := range p.ports {
		for _, f := range port.frontends {
			c := claim{by: key, serving: port.serving, resting: port.resting}
			if len(c.serving) == 0 {
				since, empty := emptied[f]
				if !empty {
					since = now
					t.graces = append(t.graces, grace{f, key, since})
				}
				c.emptied = since
			}
			t.frontends[f] = append(t.frontends[f], c)
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

// expire ends the graces whose time is over, which makes their frontends pending, and
// gives when the next one ends; false when none runs.
func (t *table) expire(now time.Time) (next time.Time, runs bool) {
	for len(t.graces) > 0 {
		g := t.graces[0]
		if end := g.since.Add(t.grace); end.After(now) {
			return end, true
		}
		t.graces = t.graces[1:]
		claims := t.frontends[g.of]
		for i := range claims {
			// Another one may have begun since.
			if c := &claims[i]; c.by == g.by && c.emptied.Equal(g.since) {
				c.emptied = time.Time{}
				t.pending[g.of] = g.by
			}
		}
	}
	t.graces = nil
	return time.Time{}, false
}

// doubt makes every frontend in force pending: rules were missing for a while, so that
// there may be flows through any.
func (t *table) doubt() {
	for f, claims := range t.frontends {
		if _, pending := t.pending[f]; !pending {
			t.pending[f] = claims[0].by
		}
	}
}

// judge reports whether a flow of a pending frontend is stale, and whose change has
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
//   - Where nothing serves, a flow to an endpoint that is still known stays, and any
//     other stays for the grace: who comes back in a moment finds its clients.
//   - After that, or when the frontend is no Service's any more, a flow that is
//     translated goes, so that its client meets what the rules say now. One that is
//     not translated has never been led anywhere by a Service.
//
// Where a frontend is on a loopback address, a flow without translation is one to
// a process of this host, which may be the proxy itself (package localport).
func isStale(f *flow, claims []claim) bool {
	served, waits := false, false
	for i := range claims {
		c := &claims[i]
		if holds(c.serving, f.answerer) {
			return false
		}
		served = served || len(c.serving) > 0
		waits = waits || !c.emptied.IsZero() || holds(c.resting, f.answerer)
	}
	if served {
		return f.translated() || !f.destination.Addr().IsLoopback()
	}
	return f.translated() && !waits
}

// holds reports whether an endpoint is among others, which are sorted.
func holds(endpoints []netip.AddrPort, e netip.AddrPort) bool {
	_, found := slices.BinarySearchFunc(endpoints, e, netip.AddrPort.Compare)
	return found
}
