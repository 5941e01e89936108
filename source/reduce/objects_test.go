// SPDX-License-Identifier: Apache-2.0

package reduce

import (
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-proxy/sluice/service"
)

// newService is a dual-stack ClusterIP Service with one TCP port, with changes
// applied.
func newService(changes ...func(*corev1.Service)) *corev1.Service {
	object := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns1", Name: "svc1"},
		Spec: corev1.ServiceSpec{
			Type:       corev1.ServiceTypeClusterIP,
			ClusterIP:  "10.96.0.1",
			ClusterIPs: []string{"10.96.0.1", "fd00:10:96::1"},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol},
			Ports:      []corev1.ServicePort{{Name: "p80", Protocol: corev1.ProtocolTCP, Port: 80}},
		},
	}
	for _, change := range changes {
		change(object)
	}
	return object
}

// loadBalancer turns a Service into one of type LoadBalancer with a node port,
// local external traffic and a health-check port.
func loadBalancer(object *corev1.Service) {
	object.Spec.Type = corev1.ServiceTypeLoadBalancer
	object.Spec.Ports[0].NodePort = 30080
	object.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	object.Spec.HealthCheckNodePort = 32000
	object.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.5"}, {IP: "2001:db8::5"}}
}

// newSlice is an IPv4 slice of ns1/svc1 with one ready endpoint.
func newSlice(changes ...func(*discoveryv1.EndpointSlice)) *discoveryv1.EndpointSlice {
	object := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns1",
			Name:      "svc1-abc",
			Labels:    map[string]string{discoveryv1.LabelServiceName: "svc1"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{
			Name: new("p80"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(8080)),
		}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.244.0.1"}}},
	}
	for _, change := range changes {
		change(object)
	}
	return object
}

func addrs(texts ...string) (list []netip.Addr) {
	for _, text := range texts {
		list = append(list, netip.MustParseAddr(text))
	}
	return list
}

func prefixes(texts ...string) (list []netip.Prefix) {
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

// checkWarnings compares the fields that are warned about, and requires every
// warning to name the object and to say something.
func checkWarnings(t *testing.T, warnings []service.Warning, object string, fields ...string) {
	t.Helper()
	var got []string
	for _, w := range warnings {
		got = append(got, w.Field)
		if w.Object != object || w.Problem == "" {
			t.Errorf("warning %q, want one about %q", w, object)
		}
	}
	if !slices.Equal(got, fields) {
		t.Errorf("warnings %v, want them for the fields %v", warnings, fields)
	}
}

// sameLists compares element by element; an empty list equals a nil one.
func sameLists[T comparable](a, b service.PerFamily[[]T]) bool {
	return slices.Equal(a[service.IPv4], b[service.IPv4]) && slices.Equal(a[service.IPv6], b[service.IPv6])
}

// lenient is a policy that allows every scheduler.
var lenient = Policy{Schedulers: Schedulers}
