// SPDX-License-Identifier: Apache-2.0

package actors

import (
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// triggered is a slice that the source stored at noon, some time after its change was caused.
func triggered(trigger time.Time, endpoint string) *service.Slice {
	s := slice("s", endpoint)
	s.Trigger, s.Received = trigger, noon
	return s
}

// TestMachine_TriggerOfSliceWithoutMessage: a fragment carries the trigger of a slice from a snapshot, even without a
// message about the slice, and only once. The message may have been dropped, never posted, or still be on its way.
func TestMachine_TriggerOfSliceWithoutMessage(t *testing.T) {
	trigger := noon.Add(-time.Second)
	one := triggered(trigger, "10.0.0.1")
	m := NewMachine(web, 3, outputs)
	m.Hydrate(service.Snapshot{Spec: spec(), Slices: []*service.Slice{one}}, facts, noon)
	for _, f := range turn(m) {
		if !f.Trigger.Equal(trigger) {
			t.Errorf("the first fragment has the trigger %v, want %v", f.Trigger, trigger)
		}
	}
	m.Step(SliceChanged{Name: one.Name, Slice: one, Cause: Cause{Trigger: trigger, Received: noon}})
	if f := turn(m); f != nil {
		t.Errorf("the slice's message made %+v", f)
	}
	for _, slices := range [][]*service.Slice{{one}, nil} { // in this order: a slice that comes back is news
		m.Hydrate(service.Snapshot{Spec: spec(), Slices: slices}, facts, noon)
		for _, f := range turn(m) {
			if !f.Trigger.IsZero() {
				t.Errorf("a snapshot with %d slices has the trigger %v, want none", len(slices), f.Trigger)
			}
		}
	}
}

// TestMachine_OldSliceGivesNoTrigger: a slice that is much older than the snapshot gives the fragment no trigger. The
// Service came long after its slice, so the trigger does not measure the change of the Service.
func TestMachine_OldSliceGivesNoTrigger(t *testing.T) {
	m := NewMachine(web, 3, outputs)
	one := triggered(noon.Add(-time.Second), "10.0.0.1")
	m.Hydrate(service.Snapshot{Spec: spec(), Slices: []*service.Slice{one}}, facts, noon.Add(triggerMax))
	for _, f := range turn(m) {
		if !f.Trigger.IsZero() {
			t.Errorf("the fragment has the trigger %v, want none", f.Trigger)
		}
	}
}
