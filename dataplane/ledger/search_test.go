// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// at is the endpoint of these tests.
var at = netip.MustParseAddrPort("10.0.0.1:80")

const toAt, toOther = "to 10.0.0.2:80 10.0.0.1:80", "to 10.0.0.2:80"

// sought searches in portions of one object, and calls between after each.
func sought(l *Ledger, at netip.AddrPort, between func(visited int)) (*Sought, bool) {
	found := &Sought{At: at}
	s := l.Search([]*Sought{found}, 1)
	for visited := 1; !s.Step(); visited++ {
		if between != nil {
			between(visited)
		}
	}
	return found, s.End()
}

func (s *Sought) is(keys ...service.Key) bool { return slices.Equal(s.By, keys) }

// TestSearch_KnownAndWanted: a search finds the Services of wanted objects and of objects whose removal is pending or
// in flight, but not of removed objects.
func TestSearch_KnownAndWanted(t *testing.T) {
	l := New(nil, names{}, nil)
	l.Want(fragment("a", 1, chain("x", toAt), chain("y", toOther)))
	if found, unsure := sought(l, at, nil); !found.is(key("a")) || unsure {
		t.Errorf("wanted: %+v, unsure %v", found, unsure)
	}
	l.Settle(l.Plan(), landed())
	l.Want(fragment("a", 2, chain("x", toOther), chain("y", toOther)))
	if found, _ := sought(l, at, nil); !found.is(key("a")) {
		t.Errorf("its removal is pending: %+v", found)
	}
	batch := l.Plan()
	if found, _ := sought(l, at, nil); !found.is(key("a")) {
		t.Errorf("its removal is in flight: %+v", found)
	}
	l.Settle(batch, landed())
	if found, unsure := sought(l, at, nil); !found.is() || unsure {
		t.Errorf("removed: %+v, unsure %v", found, unsure)
	}
	if len(l.searches) != 0 {
		t.Error("a search that ended is in progress")
	}
}

// TestSearch_MatchesPorts: a search matches the given port, and any port if it is 0.
func TestSearch_MatchesPorts(t *testing.T) {
	l := New(nil, names{}, nil)
	l.Want(fragment("a", 1, chain("x", toAt)))
	for port, want := range map[uint16]bool{0: true, 80: true, 81: false} {
		if found, _ := sought(l, netip.AddrPortFrom(at.Addr(), port), nil); found.is(key("a")) != want {
			t.Errorf("port %d: %+v", port, found)
		}
	}
}

// TestSearch_KeptByHeldService: a search finds objects that a held Service keeps, and is unsure after a write with an
// unknown outcome.
func TestSearch_KeptByHeldService(t *testing.T) {
	l := New(nil, names{}, nil)
	l.Want(fragment("a", 1, chain("x", toAt)))
	l.Settle(l.Plan(), landed())
	l.Want(fragment("a", 2, chain("x", toOther)))
	l.Hold(key("a"))
	if found, _ := sought(l, at, nil); !found.is(key("a")) {
		t.Errorf("%+v", found)
	}
	l.Release(key("a"))
	l.Settle(l.Plan(), dataplane.Receipt{Outcome: dataplane.Unknown})
	if _, unsure := sought(l, at, nil); !unsure {
		t.Error("after an unknown outcome, the search is sure")
	}
}

// TestSearch_FindsMovingEndpoint: a search finds an endpoint that moves to another object in each pause of the search.
func TestSearch_FindsMovingEndpoint(t *testing.T) {
	for round := range 20 {
		l := New(nil, names{}, nil)
		in := round % 2
		move := func(sequence int) {
			bodies := [2]string{toOther, toOther}
			bodies[in] = toAt
			l.Want(fragment("a", uint64(sequence), chain("x", bodies[0]), chain("y", bodies[1])))
			l.Settle(l.Plan(), landed())
			in = 1 - in
		}
		move(1)
		if found, _ := sought(l, at, func(visited int) { move(1 + visited) }); !found.is(key("a")) {
			t.Fatalf("round %d: %+v", round, found)
		}
	}
}

// TestSearch_SurvivesChanges: a search finds an unchanged object while other objects are added and removed.
func TestSearch_SurvivesChanges(t *testing.T) {
	const services = 200
	l := New(nil, names{}, nil)
	for i := range services {
		l.Want(fragment(fmt.Sprint("s", i), 1, chain(fmt.Sprint("c", i), "to 10.0.1.1:80")))
	}
	l.Want(fragment("a", 1, chain("x", toAt)))
	l.Settle(l.Plan(), landed())
	found, _ := sought(l, at, func(visited int) {
		i := visited * 7 % services
		l.Want(fragment(fmt.Sprint("s", i), uint64(1+visited)))
		l.Want(fragment(fmt.Sprint("n", visited), 1, chain(fmt.Sprint("new", visited), "to 10.0.2.1:80")))
		if visited < services {
			l.Settle(l.Plan(), landed())
		}
	})
	if !found.is(key("a")) {
		t.Errorf("%+v", found)
	}
}

// TestSearch_NamesFewServices: a search names a limited number of Services and reports whether there are more.
func TestSearch_NamesFewServices(t *testing.T) {
	l := New(nil, names{}, nil)
	for i := range SendersMax + 2 {
		l.Want(fragment(fmt.Sprint("s", i), 1, chain(fmt.Sprint("c", i), toAt), chain(fmt.Sprint("d", i), toAt)))
	}
	if found, _ := sought(l, at, nil); len(found.By) != SendersMax || !found.More {
		t.Errorf("%+v", found)
	}
}

func BenchmarkSearch(b *testing.B) {
	const objects = 1_000_000
	l := New(nil, names{}, nil)
	all := make([]dataplane.Object, 0, 10)
	for i := range objects {
		all = append(all, chain(fmt.Sprint("c", i), "x"))
		if len(all) == cap(all) {
			l.Want(dataplane.NewFragment(key(fmt.Sprint("s", i)), all))
			all = make([]dataplane.Object, 0, 10)
		}
	}
	l.Settle(l.Plan(), landed())
	for b.Loop() {
		s := l.Search([]*Sought{{At: at}}, 256)
		for !s.Step() {
		}
		s.End()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/objects, "ns/object")
}
