// SPDX-License-Identifier: Apache-2.0

package reduce

import (
	"fmt"
	"strings"
	"testing"
	"unsafe"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/sluice-proxy/sluice/service"
)

// TestPlaces_Shared: endpoints with the same location share it, so a slice takes only 40 bytes and no allocation for
// each further endpoint.
func TestPlaces_Shared(t *testing.T) {
	object := func(endpoints int) *discoveryv1.EndpointSlice {
		return newSlice(func(o *discoveryv1.EndpointSlice) {
			o.Endpoints = nil
			for i := range endpoints {
				o.Endpoints = append(o.Endpoints, discoveryv1.Endpoint{
					Addresses: []string{fmt.Sprintf("10.244.0.%d", i)}, NodeName: new("n1"), Zone: new("za"),
					Hints: &discoveryv1.EndpointHints{
						ForZones: []discoveryv1.ForZone{{Name: "za"}}, ForNodes: []discoveryv1.ForNode{{Name: "n1"}, {Name: "n2"}},
					},
				})
			}
		})
	}
	first, _ := lenient.EndpointSlice(object(2))
	second, _ := lenient.EndpointSlice(object(1))
	if place := first.Endpoints[0].Location; place != first.Endpoints[1].Location || place != second.Endpoints[0].Location {
		t.Error("endpoints of one place have several")
	}
	if size := unsafe.Sizeof(service.SliceEndpoint{}); size > 40 {
		t.Errorf("an endpoint of a slice takes %d bytes", size)
	}
	allocations := func(endpoints int) float64 {
		o := object(endpoints)
		return testing.AllocsPerRun(100, func() { lenient.EndpointSlice(o) })
	}
	if few, many := allocations(2), allocations(100); many > few {
		t.Errorf("%v allocations for a slice of 2, %v for one of 100", few, many)
	}
}

// TestPlaces_DifferentKeptApart: locations with different nodes, zones or hints are unequal.
func TestPlaces_DifferentKeptApart(t *testing.T) {
	zones := func(names ...string) (hints []discoveryv1.ForZone) {
		for _, name := range names {
			hints = append(hints, discoveryv1.ForZone{Name: name})
		}
		return hints
	}
	nodes := []discoveryv1.ForNode{{Name: "b"}}
	endpoints := []discoveryv1.Endpoint{
		{NodeName: new("ab")}, {NodeName: new("a"), Zone: new("b")}, {Zone: new("ab")}, {NodeName: new("a")},
		{Hints: &discoveryv1.EndpointHints{ForZones: zones("a", "b")}}, {Hints: &discoveryv1.EndpointHints{ForZones: zones("ab")}},
		{Hints: &discoveryv1.EndpointHints{ForZones: zones("a"), ForNodes: nodes}}, {Hints: &discoveryv1.EndpointHints{ForNodes: nodes}},
	}
	for i := range endpoints {
		for j := range endpoints {
			if placeOf(&notes{}, path{}, &endpoints[i]).Equal(placeOf(&notes{}, path{}, &endpoints[j])) != (i == j) {
				t.Errorf("endpoints %d and %d: %+v, %+v", i, j, placeOf(&notes{}, path{}, &endpoints[i]), placeOf(&notes{}, path{}, &endpoints[j]))
			}
		}
	}
}

// TestPlaces_InvalidNamesOmitted: invalid names of zones and nodes are dropped with a warning, and the rest of the
// endpoint stays.
func TestPlaces_InvalidNamesOmitted(t *testing.T) {
	long := func(n int) string { return strings.Repeat("a", n) }
	for _, c := range []struct {
		node, zone, forZone, forNode string
		warnings                     int
	}{
		{long(253), long(63), long(63), long(253), 0},
		{long(254), long(64), long(64), long(254), 4},
		{"a\x1b[2K", "b\a", "c\r\n", "d\u202e", 4},
		{"a b", "é", "\"", "a/b", 4},
	} {
		o := newSlice(func(o *discoveryv1.EndpointSlice) {
			o.Endpoints = []discoveryv1.Endpoint{{
				Addresses: []string{"10.244.0.1"}, NodeName: &c.node, Zone: &c.zone,
				Hints: &discoveryv1.EndpointHints{
					ForZones: []discoveryv1.ForZone{{Name: c.forZone}, {Name: "z"}}, ForNodes: []discoveryv1.ForNode{{Name: c.forNode}, {Name: "n"}},
				},
			}}
		})
		slice, warnings := lenient.EndpointSlice(o)
		if len(warnings) != c.warnings {
			t.Errorf("%.20q: %d warnings, want %d: %v", c.zone, len(warnings), c.warnings, warnings)
		}
		want := service.Location{ForZones: []string{"z"}, ForNodes: []string{"n"}}
		if c.warnings == 0 {
			want = service.Location{NodeName: c.node, Zone: c.zone, ForZones: []string{c.forZone, "z"}, ForNodes: []string{c.forNode, "n"}}
		}
		if got := slice.Endpoints[0].Where(); !got.Equal(&want) {
			t.Errorf("%.20q: got %.200v", c.zone, got)
		}
		if len(o.Endpoints[0].Hints.ForZones) != 2 || o.Endpoints[0].Hints.ForZones[0].Name != c.forZone {
			t.Error("the API object was changed")
		}
	}
}
