package kernel

import (
	"slices"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/service"
)

// TestLargeServicesTakeTurns: two large Services change all the time, as a tenant may do. Neither waits for the other.
func TestLargeServicesTakeTurns(t *testing.T) {
	a, b, small := service.Key{Namespace: "a", Name: "x"}, service.Key{Namespace: "b", Name: "x"}, service.Key{Namespace: "c", Name: "x"}
	var changes []dataplane.Change
	for range 30 {
		changes = append(changes, dataplane.Change{Owner: a}, dataplane.Change{Owner: b})
	}
	changes = append(changes, dataplane.Change{Owner: small})
	var last service.Key
	var served []service.Key
	for range 4 {
		var now []dataplane.Change
		now, last = turn(changes, 10, last)
		if served = append(served, last); len(now) == len(changes) || now[len(now)-1].Owner != small {
			t.Errorf("%d now of %d; the small Service waits", len(now), len(changes))
		}
	}
	if !slices.Equal(served, []service.Key{a, b, a, b}) {
		t.Errorf("turns of %v", served)
	}
}

// TestSlotsOfUnknownStateChangeWithTheirFrontends: packets may look them up already.
func TestSlotsOfUnknownStateChangeWithTheirFrontends(t *testing.T) {
	large := service.Key{Namespace: "a", Name: "x"}
	slots := render.ContainerOf(render.SetName("local-endpoints"))
	changes := []dataplane.Change{{ID: dataplane.ID{Container: inFrontends}, Owner: large, Before: &dataplane.Object{}, After: &dataplane.Object{}}}
	for range 30 {
		changes = append(changes,
			dataplane.Change{ID: dataplane.ID{Container: slots}, Owner: large, After: &dataplane.Object{}, Unsure: true},
			dataplane.Change{ID: dataplane.ID{Container: slots}, Owner: large, Before: &dataplane.Object{}})
	}
	now, _ := turn(changes, 10, service.Key{})
	if len(now) != 31 {
		t.Errorf("%d changes, want the frontend and 30 slots of unknown state", len(now))
	}
}
