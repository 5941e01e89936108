// SPDX-License-Identifier: Apache-2.0

package actors

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// TestMachine_ForgettingChangesNothing compares a machine that forgets its view after each turn with a machine that
// never does, over random messages and acks.
func TestMachine_ForgettingChangesNothing(t *testing.T) {
	told := []Output{{Name: "one", Renderer: renderer{}, Programmed: unheard}, {Name: "two", Renderer: renderer{}}}
	forgotten := 0
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		forgets, keeps := NewMachine(web, 1, told), NewMachine(web, 1, told)
		var last [2]*dataplane.Fragment
		for step := range 60 {
			var message Message
			switch rng.IntN(16) {
			case 0:
				message = SpecChanged{Spec: spec()}
			case 1:
				message = SpecChanged{}
			case 2, 3:
				message = SliceChanged{Name: "s", Slice: slice("s", fmt.Sprintf("10.0.0.%d", rng.IntN(3)), "10.0.1.1")}
			case 4:
				message = SliceChanged{Name: "s"}
			default:
				if i := rng.IntN(2); last[i] != nil {
					message = applied(told[i].Name, last[i])
				}
			}
			fresh := &service.NodeFacts{Name: fmt.Sprint("n", step)}
			hydrated, refacted := rng.IntN(10) == 0 || step == 0, rng.IntN(10) == 0
			var outcome [2]string
			for n, m := range []*Machine{keeps, forgets} {
				if hydrated {
					m.Hydrate(service.Snapshot{Spec: spec(), Slices: []*service.Slice{slice("s", "10.0.0.9")}}, facts, time.Now())
				}
				if refacted {
					m.SetFacts(fresh)
				}
				if message != nil {
					m.Step(message)
				}
				ready := m.Conclude(t.Context(), noon)
				for i, f := range ready.Fragments {
					if f != nil {
						last[i] = f
						outcome[n] += fmt.Sprint(f.Objects, f.Revision, f.Gone, f.Trace.Causes, f.Trace.Endpoints)
					}
				}
				if outcome[n] += fmt.Sprint(ready.Programmed, m.State()); ready.Programmed != nil {
					outcome[n] += fmt.Sprint(*ready.View)
				}
			}
			if outcome[0] != outcome[1] {
				t.Fatalf("seed %d, step %d:\n%s\nwith a view that was forgotten:\n%s", seed, step, outcome[0], outcome[1])
			}
			if forgets.Forget(); forgets.view == nil {
				forgotten++
			}
		}
	}
	if forgotten < 250 {
		t.Errorf("forgotten %d times in 3,000 turns", forgotten)
	}
}

// TestMachine_Forget: a machine keeps its view until it is applied everywhere and observers were told, and then forgets
// it. It keeps a large view.
func TestMachine_Forget(t *testing.T) {
	m := live(slice("s", "10.0.0.1"))
	if m.Forget(); m.view == nil {
		t.Error("forgotten before it was resolved")
	}
	fragments := turn(m)
	m.Step(applied("one", fragments[0]))
	if m.Forget(); m.view == nil {
		t.Error("forgotten before it is applied everywhere")
	}
	m.Step(applied("two", fragments[1]))
	if m.Forget(); m.view == nil {
		t.Error("forgotten before observers were told")
	}
	turn(m)
	if m.Forget(); m.view != nil {
		t.Error("kept although nobody will ask for it")
	}
	large := make([]string, forgetMax+1)
	for i := range large {
		large[i] = fmt.Sprintf("10.0.1.%d", i)
	}
	m.Step(SliceChanged{Name: "s", Slice: slice("s", large...)})
	for i, f := range turn(m) {
		m.Step(applied(outputs[i].Name, f))
	}
	if m.Forget(); m.view == nil {
		t.Error("a large view was forgotten")
	}
}
