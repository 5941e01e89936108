package ledger

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
)

// served and refused are objects of a frontend, of which "x" is a number.
func served(x int, body string) dataplane.Object  { return frontendIn("@frontends", x, body) }
func refused(x int, body string) dataplane.Object { return frontendIn("@no-local-endpoints", x, body) }

func frontendIn(container string, x int, body string) dataplane.Object {
	name := string([]byte{192, 0, 2, byte(x), 6, 0, 0, 0, 0, 80, 0, 0})
	return dataplane.Object{ID: dataplane.ID{Container: container, Name: name}, Kind: dataplane.Element, Body: body}
}

// hairpin is an object that Services share, whoever owns it.
func hairpin() dataplane.Object {
	return dataplane.Object{ID: dataplane.ID{Container: "@hairpins", Name: "pod"}, Kind: dataplane.Element}
}

// news returns what a ledger tells once everything has landed.
func news(l *Ledger) string {
	if b := l.Plan(); b != nil {
		l.Settle(b, landed())
	}
	return spelled(l.Shadows())
}

func spelled(shadows []Shadow) string {
	var lines []string
	for _, s := range shadows {
		word := "lost to"
		if s.Over {
			word = "no longer lost to"
		}
		lines = append(lines, fmt.Sprint(s.Key.Name, " ", word, " ", s.By.Name, ": ", s.Frontend))
	}
	return strings.Join(lines, "; ")
}

func TestAShadowIsToldOnceAndItsEndToo(t *testing.T) {
	l := New(nil, names{})
	expect := func(when, want string) {
		t.Helper()
		if got := news(l); got != want {
			t.Fatalf("%s: %q, want %q", when, got, want)
		}
	}
	l.Want(fragment("young", 9, 1, served(1, "young"), served(2, "young"), hairpin()))
	expect("alone", "")
	l.Want(fragment("old", 1, 1, served(1, "old"), hairpin()))
	expect("an older one came", "young lost to old: 192.0.2.1:80/tcp")
	if s := l.Stats(); s.Shadowed != 1 {
		t.Fatalf("%d shadowed", s.Shadowed)
	}
	expect("again", "")
	l.Want(fragment("young", 9, 2, served(1, "young 2"), refused(1, "young"), hairpin()))
	l.Want(fragment("old", 1, 2, served(1, "old 2"), refused(1, "old")))
	expect("two objects of the same frontend, and other content", "")
	l.Want(fragment("old", 1, 3, refused(1, "old")))
	expect("one of them left", "")
	l.Want(fragment("older", 0, 1, refused(1, "older")))
	expect("an even older one", "old lost to older: 192.0.2.1:80/tcp; young lost to older: 192.0.2.1:80/tcp")
	l.Want(fragment("older", 0, 2))
	expect("which left", "old no longer lost to older: 192.0.2.1:80/tcp; young lost to old: 192.0.2.1:80/tcp")
	l.Want(fragment("old", 1, 4))
	expect("the winner left", "young no longer lost to old: 192.0.2.1:80/tcp")
	if s := l.Stats(); s.Shadowed != 0 || len(l.shadows.states) != 0 {
		t.Fatalf("%d shadowed, %d kept", s.Shadowed, len(l.shadows.states))
	}
}

func TestAShadowIsToldWhenTheKernelHasIt(t *testing.T) {
	l := New(nil, names{})
	l.Want(fragment("young", 9, 1, served(1, "young")))
	l.Want(fragment("old", 1, 1, served(1, "old")))
	b := l.Plan()
	l.Settle(b, dataplane.Receipt{Outcome: dataplane.Busy})
	if got := l.Shadows(); got != nil {
		t.Fatalf("told %v of a write that failed", got)
	}
	// What the search for somebody to blame takes out and puts back is not told.
	l.Hold(key("old"))
	l.Release(key("old"))
	if got := news(l); got != "young lost to old: 192.0.2.1:80/tcp" {
		t.Fatalf("after it landed: %q", got)
	}
	l.Want(fragment("old", 1, 2))
	l.Want(fragment("old", 1, 3, served(1, "old")))
	if got := news(l); got != "" {
		t.Fatalf("gone and back within a batch: %q", got)
	}
}

// TestShadowsAgainstAWalkQuick plays random changes, ages and holds against a walk
// over all claims.
func TestShadowsAgainstAWalkQuick(t *testing.T) {
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 0))
		l, told := New(nil, names{}), map[shadowKey]bool{}
		for step := range 200 {
			name := fmt.Sprint("s", random.IntN(12))
			switch random.IntN(8) {
			case 0:
				l.Hold(key(name))
			case 1:
				l.Release(key(name))
			default:
				objects := []dataplane.Object{hairpin()}
				for x := range 3 {
					for _, of := range []func(int, string) dataplane.Object{served, refused} {
						if random.IntN(3) == 0 {
							objects = append(objects, of(x, name+strconv.Itoa(random.IntN(2))))
						}
					}
				}
				l.Want(fragment(name, random.IntN(4), uint64(step+1), objects...))
			}
			if random.IntN(3) > 0 {
				continue
			}
			if b := l.Plan(); b != nil {
				l.Settle(b, landed())
			}
			for _, s := range l.Shadows() {
				id := shadowKey{s.Key, s.Frontend}
				told[id] = true
				if s.Over {
					delete(told, id)
				}
			}
			if want := walk(l); fmt.Sprint(told) != fmt.Sprint(want) || l.Stats().Shadowed != len(want) {
				t.Fatalf("seed %d, step %d: told of %v, counted %d, want %v", seed, step, told, l.Stats().Shadowed, want)
			}
		}
	}
}

// walk finds the shadowed frontends by looking at every claim.
func walk(l *Ledger) map[shadowKey]bool {
	found := map[shadowKey]bool{}
	for id, e := range l.entries.all() {
		f, ok := (names{}).Frontend(id)
		if !ok || e.claims.contest == nil {
			continue
		}
		for _, c := range e.claims.contest.ranked[1:] {
			found[shadowKey{c.by.key, f}] = true
		}
	}
	return found
}

// TestManyWhoWantOneFrontendAreCheap: the worst order is the one in which each
// newcomer wins against all who came before.
func TestManyWhoWantOneFrontendAreCheap(t *testing.T) {
	const many = 10000
	l := New(nil, names{})
	began := time.Now()
	for i := range many {
		l.Want(fragment("s"+strconv.Itoa(i), many-i, 1, served(1, strconv.Itoa(i))))
	}
	l.Settle(l.Plan(), landed())
	if n := len(l.Shadows()); n != many-1 {
		t.Fatalf("%d told", n)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("%d claims took %v", many, took)
	}
}

// TestSharingCostsNoAllocation: a change of a Service that shares hairpins with
// others, but no frontend, allocates what it allocates alone.
func TestSharingCostsNoAllocation(t *testing.T) {
	allocations := func(others int) float64 {
		l := New(nil, names{})
		for i := range others {
			l.Want(fragment("other"+strconv.Itoa(i), 1, 1, served(i+10, "other"), hairpin()))
		}
		with, without := fragment("a", 2, 1, served(1, "1"), hairpin()), fragment("a", 2, 1, served(1, "2"))
		l.Want(with)
		l.Settle(l.Plan(), landed())
		return testing.AllocsPerRun(200, func() {
			l.Want(without)
			l.Want(with)
			if l.Shadows() != nil {
				t.Error("somebody lost")
			}
		})
	}
	if alone, among := allocations(0), allocations(20); among > alone {
		t.Errorf("%v allocations among others, %v alone", among, alone)
	}
}
