// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
)

// rejectedButFor is the receipt of a batch of several transactions, of which the first has landed.
func rejectedButFor(b *dataplane.Batch, landed func(dataplane.ID) bool) dataplane.Receipt {
	r := dataplane.Receipt{Outcome: dataplane.Rejected, Certain: map[dataplane.ID]*dataplane.Object{}}
	for _, c := range b.Changes {
		r.Certain[c.ID] = c.Before
		if landed(c.ID) {
			r.Certain[c.ID] = c.After
		}
	}
	return r
}

// TestHold_KeepsWhatLanded: a held Service keeps the landed objects of its rejected write, except incomplete frontends
// and unreferenced objects. Withhold also removes the rest of a new Service, but nothing of a Service found at startup.
func TestHold_KeepsWhatLanded(t *testing.T) {
	leadsTo := func(o dataplane.Object, chain string) dataplane.Object {
		o.Links = dataplane.LinkTo(dataplane.ID{Container: "nat", Name: chain})
		return o
	}
	l := New(nil, names{}, nil)
	l.Want(fragment("emptied", 1, chain("e", "rules"), chain("e2", "rules")))
	l.Want(fragment("new", 1, chain("n", "rules"), leadsTo(frontendIn("@frontends", 1, "new→nat/n"), "n"),
		slot(1, 0, "new"), firewall(1, "new", 7)[0], firewall(1, "new", 7)[1], chain("aside", "rules"),
		chain("late", "rules"), leadsTo(frontendIn("@frontends", 2, "new→nat/late"), "late")))
	l.Observe([]dataplane.Object{chain("e", ""), chain("e2", "")})
	l.Adopt(nil, labels{})
	b := l.Plan()
	l.Settle(b, rejectedButFor(b, func(id dataplane.ID) bool { return id.Name != "late" && id.Name != "e2" }))
	l.Hold(key("emptied"))
	l.Hold(key("new"))
	b = l.Plan()
	vip := func(x int) string { return frontendIn("", x, "").ID.Name }
	if got, want := changes(b), vip(2)+":new→nat/late>- aside:rules>- "; got != want {
		t.Errorf("held: %q, want %q", got, want)
	}
	l.Settle(b, landed())
	if l.Withhold(key("emptied")) || !l.Withhold(key("new")) || l.Withhold(key("new")) {
		t.Error("withheld what a former process has left, or not what is new")
	}
	b = l.Plan()
	ranges := firewall(1, "", 7)
	want := ranges[1].ID.Name + ":new>- " + slot(1, 0, "").ID.Name + ":new>- " + vip(1) + ":new>- " + vip(1) + ":new→nat/n>- n:rules>- "
	if got := changes(b); got != want {
		t.Errorf("withheld: %q, want %q", got, want)
	}
	l.Settle(b, landed())
	l.Release(key("emptied"))
	if got := changes(l.Plan()); got != "e2:>rules " {
		t.Errorf("released: %q", got)
	}
}

// TestHold_TakesBackEndpointsLandedAhead: when a large Service is rejected after its endpoints landed and before its
// frontends did, the hold takes these endpoints back. Only a complete frontend stays.
func TestHold_TakesBackEndpointsLandedAhead(t *testing.T) {
	in := func(o dataplane.Object, refs ...string) dataplane.Object {
		o.Links = dataplane.LinkTo(dataplane.ID{Container: "set", Name: o.ID.Container})
		for _, name := range refs {
			o.Links.Refs = append(o.Links.Refs, chain(name, "").ID)
		}
		return o
	}
	to := func(chain string, x int) dataplane.Object {
		return in(frontendIn("@frontends", x, "a→nat/"+chain), chain)
	}
	endpoint := func(x, at int, ip string) dataplane.Object { return in(slot(x, at, "to "+ip+":80")) }
	frontends := dataplane.Object{ID: dataplane.ID{Container: "set", Name: "@frontends"}}
	endpoints := dataplane.Object{ID: dataplane.ID{Container: "set", Name: "@cluster-endpoints-a"}}
	const older, newer = "10.0.0.1", "10.0.0.2"
	l := New(nil, names{}, nil)
	l.Want(fragment("node", 1, frontends, endpoints))
	l.Want(fragment("a", 1, chain("of1", ""), chain("of2", ""),
		to("of2", 1), endpoint(1, 0, newer), endpoint(1, 1, newer), // larger
		to("of1", 2), endpoint(2, 0, newer), // leads where it led
		to("of1", 3), endpoint(3, 0, newer), // new
		to("of1", 4), endpoint(4, 0, newer))) // new and complete
	l.Observe([]dataplane.Object{frontends, endpoints, chain("of1", ""),
		to("of1", 1), endpoint(1, 0, older), to("of1", 2), endpoint(2, 0, older)})
	l.Adopt(nil, labels{})
	b := l.Plan()
	l.Settle(b, rejectedButFor(b, func(id dataplane.ID) bool {
		return id.Container == "@cluster-endpoints-a" || id == to("", 4).ID
	}))
	l.Hold(key("a"))
	back := func(x int) string { return endpoint(x, 0, "").ID.Name + ":to 10.0.0.2:80>to 10.0.0.1:80 " }
	gone := func(x, at int) string { return endpoint(x, at, "").ID.Name + ":to 10.0.0.2:80>- " }
	if got, want := changes(l.Plan()), back(1)+gone(1, 1)+back(2)+gone(3, 0); got != want {
		t.Errorf("held: %q, want %q", got, want)
	}
}

// TestHold_KeepsFormerReleaseBehindFrontend: a hold keeps leftover chains of a previous release, with the chains they
// refer to, if a restored frontend leads there.
func TestHold_KeepsFormerReleaseBehindFrontend(t *testing.T) {
	l := New(nil, names{}, nil)
	frontend := frontendIn("@frontends", 1, "damaged→nat/external")
	frontend.Links = dataplane.LinkTo(dataplane.ID{Container: "nat", Name: "external"})
	l.Want(fragment("damaged", 1, frontend, chain("external", "a rule→nat/new"), chain("new", "rules")))
	l.Observe([]dataplane.Object{chain("external", "a rule→nat/old"), chain("old", "rules")})
	l.Adopt(nil, labels{})
	b := l.Plan()
	l.Settle(b, rejectedButFor(b, func(id dataplane.ID) bool { return id == frontend.ID }))
	l.Hold(key("damaged"))
	if got := changes(l.Plan()); got != "" {
		t.Errorf("held: %q, want nothing to change", got)
	}
}

// TestHold_BothKeepSharedFormerChain: two held Services each keep a leftover chain that both lead to, so it stays when
// one of them is tried again. (When only the first held Service claimed it, the kernel rejected its deletion.)
func TestHold_BothKeepSharedFormerChain(t *testing.T) {
	l := New(nil, names{}, nil)
	left := []dataplane.Object{chain("old", "rules")}
	for i, name := range []string{"one", "two"} {
		frontend := frontendIn("@frontends", i, name+"→nat/"+name)
		frontend.Links = dataplane.LinkTo(dataplane.ID{Container: "nat", Name: name})
		l.Want(fragment(name, 1, frontend, chain(name, "a rule→nat/new"), chain("new", "rules")))
		left = append(left, chain(name, "a rule→nat/old"))
	}
	l.Observe(left)
	l.Adopt(nil, labels{})
	b := l.Plan()
	l.Settle(b, rejectedButFor(b, func(id dataplane.ID) bool { _, is := (names{}).Frontend(id); return is }))
	l.Hold(key("one"))
	l.Hold(key("two"))
	if got := changes(l.Plan()); got != "" {
		t.Errorf("held: %q, want nothing to change", got)
	}
	for _, name := range []string{"one", "two"} {
		l.Release(key(name))
		if got, want := changes(l.Plan()), "new:->rules "+name+":a rule→nat/old>a rule→nat/new "; got != want {
			t.Errorf("%s is tried again: %q, want %q", name, got, want)
		}
		l.Hold(key(name))
	}
}
