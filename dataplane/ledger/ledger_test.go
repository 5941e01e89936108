// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/testenv"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func key(name string) service.Key { return service.Key{Namespace: "ns", Name: name} }

func chain(name, body string) dataplane.Object {
	return dataplane.Object{ID: dataplane.ID{Container: "nat", Name: name}, Body: body}
}

// fragment makes a fragment of this sequence.
func fragment(name string, sequence uint64, objects ...dataplane.Object) *dataplane.Fragment {
	f := dataplane.NewFragment(key(name), objects)
	f.Revision = service.Revision{Incarnation: 1, Sequence: sequence}
	return f
}

// gone is the last fragment of a Service.
func gone(name string) *dataplane.Fragment {
	f := fragment(name, 1000)
	f.Gone = true
	return f
}

func landed() dataplane.Receipt { return dataplane.Receipt{Outcome: dataplane.Landed} }

func changes(b *dataplane.Batch) string {
	if b == nil {
		return ""
	}
	text := ""
	for _, c := range b.Changes {
		body := func(o *dataplane.Object) string {
			if o == nil {
				return "-"
			}
			return o.Body
		}
		text += fmt.Sprintf("%s:%s>%s ", c.ID.Name, body(c.Before), body(c.After))
	}
	return text
}

// TestPlan_DifferenceEmptyOnceLanded: a plan is the difference between wanted and known objects, and is empty once it
// landed.
func TestPlan_DifferenceEmptyOnceLanded(t *testing.T) {
	l := New(nil, names{}, nil)
	l.Want(fragment("a", 1, chain("x", "1"), chain("y", "1")))
	b := l.Plan()
	if got := changes(b); got != "x:->1 y:->1 " {
		t.Fatalf("first plan %q", got)
	}
	settled := l.Settle(b, landed())
	if len(settled) != 1 || settled[0].Key != key("a") {
		t.Fatalf("settled %v", settled)
	}
	if b := l.Plan(); b != nil {
		t.Fatalf("planned again: %q", changes(b))
	}
	l.Want(fragment("a", 2, chain("y", "2"), chain("z", "1")))
	b = l.Plan()
	if got := changes(b); got != "x:1>- y:1>2 z:->1 " {
		t.Fatalf("second plan %q", got)
	}
	l.Settle(b, landed())
	l.Want(gone("a"))
	b = l.Plan()
	if got := changes(b); got != "y:2>- z:1>- " {
		t.Fatalf("third plan %q", got)
	}
	l.Settle(b, landed())
	if s := l.Stats(); s != (Stats{}) {
		t.Fatalf("something is left of a Service that is gone: %+v", s)
	}
}

// TestSettle_FailedWriteLosesNothing: after a failed write, exactly the changes that did not land are planned again.
// After an unknown outcome, a change is marked as unsure.
func TestSettle_FailedWriteLosesNothing(t *testing.T) {
	l := New(nil, names{}, nil)
	l.Want(fragment("a", 1, chain("x", "1"), chain("y", "1")))
	first := l.Plan()
	if settled := l.Settle(first, dataplane.Receipt{Outcome: dataplane.Busy, Certain: map[dataplane.ID]*dataplane.Object{
		first.Changes[0].ID: nil, first.Changes[1].ID: nil}}); settled != nil {
		t.Fatalf("settled by a failure: %v", settled)
	}
	if again := l.Plan(); changes(again) != changes(first) {
		t.Fatalf("after a failure: %q, before: %q", changes(again), changes(first))
	}
	// Half of it landed.
	half := l.Plan()
	l.Settle(half, dataplane.Receipt{Outcome: dataplane.Rejected, Certain: map[dataplane.ID]*dataplane.Object{
		half.Changes[0].ID: half.Changes[0].After, half.Changes[1].ID: nil}})
	rest := l.Plan()
	if got := changes(rest); got != "y:->1 " {
		t.Fatalf("after half: %q", got)
	}
	// And an unknown outcome writes the object again, marked as unsure.
	l.Settle(rest, dataplane.Receipt{Outcome: dataplane.Unknown})
	if b := l.Plan(); len(b.Changes) != 1 || !b.Changes[0].Unsure {
		t.Fatalf("after an unknown outcome: %+v", b)
	} else if settled := l.Settle(b, landed()); len(settled) != 1 {
		t.Fatalf("settled %v", settled)
	}
}

// TestWant_RejectsFormerIncarnation: Want rejects a late fragment of a previous incarnation.
func TestWant_RejectsFormerIncarnation(t *testing.T) {
	l := New(nil, names{}, nil)
	reborn := fragment("a", 1, chain("x", "new"))
	reborn.Revision = service.Revision{Incarnation: 2, Sequence: 1}
	l.Want(reborn)
	if l.Want(fragment("a", 99, chain("x", "late"))) {
		t.Fatal("accepted")
	}
	if got := changes(l.Plan()); got != "x:->new " {
		t.Fatalf("plan %q", got)
	}
}

// TestHold_FallsBackToApplied: a held Service falls back to its applied objects, and stays held until it is released,
// even if it submits again.
func TestHold_FallsBackToApplied(t *testing.T) {
	l := New(nil, names{}, nil)
	l.Want(fragment("a", 1, chain("x", "good")))
	l.Settle(l.Plan(), landed())
	l.Want(fragment("a", 2, chain("x", "bad"), chain("y", "bad")))
	l.Want(fragment("b", 1, chain("z", "fine")))
	l.Hold(key("a"))
	b := l.Plan()
	if got := changes(b); got != "z:->fine " {
		t.Fatalf("with a held: %q", got)
	}
	if settled := l.Settle(b, landed()); len(settled) != 1 || settled[0].Key != key("b") {
		t.Fatalf("settled %v", settled)
	}
	// A held key stays held when it submits again, until it is released.
	l.Want(fragment("a", 3, chain("x", "mended")))
	if b := l.Plan(); b != nil {
		t.Fatalf("a held key wrote: %q", changes(b))
	}
	l.Release(key("a"))
	if got := changes(l.Plan()); got != "x:good>mended " {
		t.Fatalf("after release: %q", got)
	}
}

// TestObserve_AdoptsRepairsAndSweeps: after Observe, equal objects are adopted, and the plan repairs missing and
// different objects and removes unwanted ones.
func TestObserve_AdoptsRepairsAndSweeps(t *testing.T) {
	l := New(nil, names{}, nil)
	l.Want(fragment("a", 1, chain("equal", "1"), chain("different", "1"), chain("missing", "1")))
	drift := l.Observe([]dataplane.Object{chain("equal", "1"), chain("different", "2"), chain("unwanted", "3")})
	if drift != (Drift{Equal: 1, Missing: 1, Different: 1, Unwanted: 1}) {
		t.Fatalf("%+v", drift)
	}
	b := l.Plan()
	if got := changes(b); got != "different:2>1 missing:->1 unwanted:3>- " {
		t.Fatalf("plan %q", got)
	}
	l.Settle(b, landed())
	if drift := l.Observe([]dataplane.Object{chain("equal", "1"), chain("different", "1"), chain("missing", "1")}); drift.Any() {
		t.Fatalf("drift where there is none: %+v", drift)
	}
	if b := l.Plan(); b != nil {
		t.Fatalf("planned %q", changes(b))
	}
}

// TestWant_EarliestTriggerSurvivesCoalescing: of several fragments of one Service in a batch, the earliest trigger
// counts.
func TestWant_EarliestTriggerSurvivesCoalescing(t *testing.T) {
	l := New(nil, names{}, nil)
	for i, minute := range []int{7, 3, 5} {
		f := fragment("a", uint64(i+1), chain("x", fmt.Sprint(i)))
		f.Trigger = epoch.Add(time.Duration(minute) * time.Minute)
		l.Want(f)
	}
	if b := l.Plan(); !b.Contributions[0].Trigger.Equal(epoch.Add(3 * time.Minute)) {
		t.Fatalf("trigger %v", b.Contributions[0].Trigger)
	}
}

// TestLedger_ChangeCostIndependentOfServices: the number of steps for one change does not depend on the number of
// Services.
func TestLedger_ChangeCostIndependentOfServices(t *testing.T) {
	cost := func(services int) int {
		l := New(nil, names{}, nil)
		for i := range services {
			l.Want(fragment(fmt.Sprintf("s%d", i), 1, chain(fmt.Sprintf("c%d", i), "1")))
		}
		l.Settle(l.Plan(), landed())
		before := l.steps
		l.Want(fragment("s7", 2, chain("c7", "2")))
		l.Settle(l.Plan(), landed())
		return l.steps - before
	}
	if small, large := cost(100), cost(5000); small != large || small == 0 {
		t.Fatalf("%d steps among 100 Services, %d among 5,000", small, large)
	}
}

// TestLedger_ObsoleteFragmentIsFreed: the memory of an obsolete fragment is freed, although the ledger still contains
// equal objects of later fragments. A renderer cuts identities and bodies from one text per fragment.
func TestLedger_ObsoleteFragmentIsFreed(t *testing.T) {
	const objects = 10
	freed := make(chan uint64, 2*objects)
	l := New(nil, names{}, nil)
	render := func(sequence uint64) {
		bytes := []byte("ax,bx,cx,dx,ex,fx,gx,hx,ix,jx")
		bytes[3*(sequence%objects)+1] = 'y'
		text := string(bytes)
		runtime.AddCleanup(unsafe.StringData(text), func(sequence uint64) { freed <- sequence }, sequence)
		cut := []dataplane.Object{chain(fmt.Sprint("new in ", sequence), "1")}
		for i := range objects {
			cut = append(cut, dataplane.Object{ID: dataplane.ID{Container: "c", Name: text[3*i : 3*i+1]}, Body: text[3*i+1 : 3*i+2]})
		}
		l.Want(fragment("a", sequence, cut...))
		l.Settle(l.Plan(), landed())
	}
	for sequence := range uint64(objects) {
		render(sequence)
	}
	for wanted := objects - 1; wanted > 0; wanted-- {
		runtime.GC()
		select {
		case <-freed:
		case <-time.After(testenv.Patience):
			t.Fatalf("%d of %d obsolete fragments are still in memory", wanted, objects-1)
		}
	}
	runtime.KeepAlive(l)
}
