package reduce

import (
	"fmt"
	"testing"
	"unsafe"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/sluice-proxy/sluice/service"
)

// TestPlacesAreShared also counts: what is kept of a slice does not grow with the number
// of endpoints, but for 40 bytes each.
func TestPlacesAreShared(t *testing.T) {
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

func TestPlacesThatDifferAreToldApart(t *testing.T) {
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
			if placeOf(&endpoints[i]).Equal(placeOf(&endpoints[j])) != (i == j) {
				t.Errorf("endpoints %d and %d: %+v, %+v", i, j, placeOf(&endpoints[i]), placeOf(&endpoints[j]))
			}
		}
	}
}
