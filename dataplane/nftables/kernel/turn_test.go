// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"slices"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// TestTurns_LargeServicesAlternate: large Services take turns. Two large Services change all the time, as a tenant
// may do. Neither waits for the other.
func TestTurns_LargeServicesAlternate(t *testing.T) {
	a, b, small := service.Key{Namespace: "a", Name: "x"}, service.Key{Namespace: "b", Name: "x"}, service.Key{Namespace: "c", Name: "x"}
	var changes []dataplane.Change
	for range 30 {
		changes = append(changes, dataplane.Change{Owner: a}, dataplane.Change{Owner: b})
	}
	changes = append(changes, dataplane.Change{Owner: small})
	var last service.Key
	var served []service.Key
	for range 4 {
		var now, left []dataplane.Change
		now, left, last = turn(changes, 10, last)
		if served = append(served, last); len(now)+len(left) != len(changes) || now[len(now)-1].Owner != small {
			t.Errorf("%d now and %d later of %d; the small Service waits", len(now), len(left), len(changes))
		}
	}
	if !slices.Equal(served, []service.Key{a, b, a, b}) {
		t.Errorf("turns of %v", served)
	}
}
