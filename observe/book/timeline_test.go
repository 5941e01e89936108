// SPDX-License-Identifier: Apache-2.0

package book

import (
	"reflect"
	"testing"
	"time"
	"unsafe"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/observe/state"
	"github.com/sluice-proxy/sluice/service"
)

// TestTimeline_KeepsNewest: a timeline contains the newest changes, up to its limit.
func TestTimeline_KeepsNewest(t *testing.T) {
	b := newBook(1)
	key := serviceKey(0)
	done := time.Now()
	for n := range 3*state.TimelineMax + 7 {
		done = done.Add(time.Millisecond)
		b.Aggregator(aggregator.Applied{
			Domain: domain4, At: done, Batched: done.Add(-20 * time.Microsecond), Batch: uint64(n),
			Contribution: dataplane.Contribution{
				Key: key, Revision: service.Revision{Incarnation: 1, Sequence: uint64(n)}, Received: done.Add(-80 * time.Microsecond),
				Trigger: done.Add(-time.Hour),
				Trace: dataplane.Trace{
					Causes: dataplane.CauseEndpoints, Endpoints: 3,
					Seen: dataplane.MomentOf(done.Add(-60 * time.Microsecond)), Rendered: dataplane.MomentOf(done.Add(-40 * time.Microsecond)),
				},
			},
		})
		got := b.Timeline(key)
		if len(got) != min(n+1, state.TimelineMax) {
			t.Fatalf("%d changes are remembered after %d", len(got), n+1)
		}
		for i, c := range got {
			want := state.Change{
				Domain: domain4, Revision: service.Revision{Incarnation: 1, Sequence: uint64(n - i)}.String(), Causes: []string{"endpoints"},
				Outcome: state.Applied, Received: done.Add(-time.Duration(i)*time.Millisecond - 80*time.Microsecond).Round(0).UTC(),
				SeenMicros: 20, RenderedMicros: 40, BatchedMicros: 60, DoneMicros: 80, Batch: uint64(n - i), Endpoints: 3,
			}
			if !reflect.DeepEqual(c, want) { // the trigger is older than the process
				t.Fatalf("change %d: %+v, want %+v", i, c, want)
			}
		}
	}
}

// TestTimeline_IncludesRejections: a timeline contains a rejection.
func TestTimeline_IncludesRejections(t *testing.T) {
	b := newBook(1)
	b.Aggregator(aggregator.Quarantined{Domain: domain4, Key: serviceKey(0), Reason: "no", At: time.Now()})
	got := b.Timeline(serviceKey(0))
	if len(got) != 1 || got[0].Outcome != state.Held {
		t.Errorf("%+v", got)
	}
	if len(b.Timeline(serviceKey(1))) != 0 {
		t.Error("a Service without an actor has a timeline")
	}
}

// TestTimeline_MemoryBounded: at 10,000 Services, all timelines together are below 10 MiB, and a change allocates
// nothing once a timeline is full.
func TestTimeline_MemoryBounded(t *testing.T) {
	if size := unsafe.Sizeof(step{}); size != 48 {
		t.Errorf("a step has %d bytes", size)
	}
	b := newBook(1)
	e := aggregator.Applied{Domain: domain4, At: time.Now(), Contribution: dataplane.Contribution{Key: serviceKey(0)}}
	for range state.TimelineMax {
		b.Aggregator(e)
	}
	var event aggregator.Event = e
	if n := testing.AllocsPerRun(100, func() { b.Aggregator(event) }); n > 0 {
		t.Errorf("%v allocations per change", n)
	}
	if got := cap(b.locked(serviceKey(0)).records[serviceKey(0)].timeline.steps); got != state.TimelineMax {
		t.Errorf("room for %d changes", got)
	}
}

// TestLook_ServiceRecord: the record of one Service contains its state, actor and changes; a Service without an actor
// has none.
func TestLook_ServiceRecord(t *testing.T) {
	b := newBook(2)
	at := time.Now()
	b.Aggregator(aggregator.Applied{Domain: domain4, At: at, Contribution: dataplane.Contribution{Key: serviceKey(0), Received: at.Add(-time.Millisecond)}})
	look := b.Look()
	r, known := look.Service(serviceKey(0))
	if !known || r.State != state.Applied || r.Actor.State != state.ActorRunning || r.Changes != 1 || !r.LastChange.Equal(at) || *r.LastMicros != 1000 {
		t.Errorf("%+v, %v", r, known)
	}
	if r, known := look.Service(serviceKey(1)); !known || r.State != state.Pending || r.LastMicros != nil || r.Changes != 0 {
		t.Errorf("%+v, %v", r, known)
	}
	if _, known := look.Service(serviceKey(7)); known {
		t.Error("a Service without an actor has a record")
	}
}
