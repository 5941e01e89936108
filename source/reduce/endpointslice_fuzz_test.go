package reduce

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/sluice-proxy/sluice/service"
)

func FuzzEndpointSlice(f *testing.F) {
	addSeeds(f, newSlice(), newSlice(func(o *discoveryv1.EndpointSlice) {
		o.Endpoints[0].NodeName = new("n1")
		o.Endpoints[0].Hints = &discoveryv1.EndpointHints{
			ForZones: []discoveryv1.ForZone{{Name: "za"}},
			ForNodes: []discoveryv1.ForNode{{Name: "n1"}},
		}
	}))
	f.Fuzz(func(t *testing.T, data []byte) {
		object := newSlice()
		if !read(data, object, &object.AddressType, &object.Ports, &object.Endpoints, &object.Annotations) {
			return
		}
		slice, warnings := EndpointSlice(object)
		again, warningsAgain := EndpointSlice(object)
		if !slice.Equal(again) || !slices.Equal(warnings, warningsAgain) {
			t.Fatalf("equal objects, different results: %+v %v, %+v %v", slice, warnings, again, warningsAgain)
		}
		checkComplete(t, warnings)
		if slice == nil {
			return
		}
		checkSlice(t, slice)
		checkArrival(t, slice)
	})
}

// checkSlice states what everyone behind relies on, whatever the object was.
func checkSlice(t *testing.T, slice *service.Slice) {
	t.Helper()
	if slice.Service.Namespace == "" || slice.Service.Name == "" || slice.Name == "" {
		t.Errorf("slice %q of %q", slice.Name, slice.Service)
	}
	for _, port := range slice.Ports {
		if port.Port == 0 {
			t.Errorf("port %+v", port)
		}
	}
	for i := range slice.Endpoints {
		checkAddr(t, slice.Family, slice.Endpoints[i].Addr)
	}
}

// checkArrival resolves the slice together with one that lists the same endpoints
// the other way round, in either order of arrival.
func checkArrival(t *testing.T, slice *service.Slice) {
	t.Helper()
	other := *slice
	other.Name = slice.Name + "-2"
	other.Endpoints = slices.Clone(slice.Endpoints)
	slices.Reverse(other.Endpoints)

	spec, _ := Service(newService(loadBalancer, func(o *corev1.Service) {
		o.Spec.Ports = nil
		for i, port := range slice.Ports {
			o.Spec.Ports = append(o.Spec.Ports, corev1.ServicePort{
				Name:     port.Name,
				Protocol: []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}[port.Protocol],
				Port:     int32(i + 1),
			})
		}
	}))
	facts := &service.NodeFacts{Name: "n1", Zone: "za"}
	x := service.Resolve(spec.Key, spec, []*service.Slice{slice, &other}, facts)
	y := service.Resolve(spec.Key, spec, []*service.Slice{&other, slice}, facts)
	if !x.Equal(&y) {
		t.Errorf("the order of arrival matters: %+v, %+v", x, y)
	}
	for i := range x.Ports[slice.Family] {
		for _, e := range x.Ports[slice.Family][i].Reachable() {
			usable := slices.ContainsFunc(slice.Endpoints, func(s service.SliceEndpoint) bool {
				return s.Addr == e.AddrPort.Addr() && (s.Ready || (s.Serving && s.Terminating))
			})
			if !usable {
				t.Errorf("%s is reachable and not usable", e)
			}
		}
	}
}
