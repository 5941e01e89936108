// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// TestCut_NeverEmpty: two large Services leave together. Neither has chains that could be written before the others.
func TestCut_NeverEmpty(t *testing.T) {
	a, b := service.Key{Namespace: "ns", Name: "a"}, service.Key{Namespace: "ns", Name: "b"}
	dispatch := &dataplane.Object{
		ID: dataplane.ID{Container: "nat", Name: "KUBE-SERVICES"}, Body: "-j A\n-j B",
		Links: &dataplane.Links{Parts: []dataplane.Part{{Owner: a}, {Owner: b}}},
	}
	changes := []dataplane.Change{{ID: dispatch.ID, Before: dispatch, Owner: service.Node}}
	for i := range 20 {
		for _, owner := range []service.Key{a, b} {
			o := &dataplane.Object{ID: dataplane.ID{Container: "nat", Name: fmt.Sprint(owner.Name, i)}, Body: "-j RETURN"}
			changes = append(changes, dataplane.Change{ID: o.ID, Before: o, Owner: owner})
		}
	}
	w := &Writer{turns: turns{most: 10}}
	if now := w.Cut(changes); len(now) != len(changes) {
		t.Errorf("%d of %d changes", len(now), len(changes))
	}
}
