// SPDX-License-Identifier: Apache-2.0

package reduce

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-proxy/sluice/service"
)

func FuzzService(f *testing.F) {
	addSeeds(f, newService(), newService(loadBalancer))
	f.Fuzz(func(t *testing.T, data []byte) {
		object := newService()
		if !read(data, object, &object.Spec, &object.Status.LoadBalancer) {
			return
		}
		spec, warnings := lenient.Service(object)
		again, warningsAgain := lenient.Service(object)
		if !spec.Equal(again) || !slices.Equal(warnings, warningsAgain) {
			t.Fatalf("equal objects, different results: %+v %v, %+v %v", spec, warnings, again, warningsAgain)
		}
		checkComplete(t, warnings)
		if spec == nil {
			return
		}
		checkSpec(t, spec)
		facts := &service.NodeFacts{Name: "n1"}
		x, y := service.Resolve(spec.Key, spec, nil, facts), service.Resolve(spec.Key, again, nil, facts)
		if !x.Equal(&y) {
			t.Errorf("equal specs, different views: %+v, %+v", x, y)
		}
	})
}

// checkSpec states what everyone behind relies on, whatever the object was.
func checkSpec(t *testing.T, spec *service.Spec) {
	t.Helper()
	if spec.Key.Namespace == "" || spec.Key.Name == "" {
		t.Errorf("key %q", spec.Key)
	}
	for _, family := range service.Families {
		if ip := spec.ClusterIPs[family]; ip.IsValid() {
			checkAddr(t, family, ip)
		}
		checkUnique(t, spec.ExternalIPs[family])
		checkUnique(t, spec.LoadBalancerVIPs[family])
		checkUnique(t, spec.SourceRanges[family])
		for _, ip := range slices.Concat(spec.ExternalIPs[family], spec.LoadBalancerVIPs[family]) {
			checkAddr(t, family, ip)
		}
		for _, prefix := range spec.SourceRanges[family] {
			checkAddr(t, family, prefix.Addr())
			if prefix != prefix.Masked() || prefix.Bits() == 0 {
				t.Errorf("source range %s", prefix)
			}
		}
	}
	var identities []string
	for _, port := range spec.Ports {
		identities = append(identities, port.Protocol.String()+" "+port.Name)
		if port.Port == 0 {
			t.Errorf("port %+v", port)
		}
	}
	checkUnique(t, identities)
	if spec.AffinitySeconds < 0 || spec.AffinitySeconds > affinityMaxSeconds {
		t.Errorf("affinity of %d s", spec.AffinitySeconds)
	}
	if spec.HealthCheckNodePort != 0 && !spec.ExternalLocal {
		t.Errorf("health-check port %d without policy Local", spec.HealthCheckNodePort)
	}
}

// checkAddr requires a canonical address of a family: the kernel must see one
// spelling only.
func checkAddr(t *testing.T, family service.Family, addr netip.Addr) {
	t.Helper()
	if addr != addr.Unmap() || addr.Zone() != "" || service.FamilyOf(addr) != family || !addr.IsValid() {
		t.Errorf("%s is no canonical %s address", addr, family)
	}
}

func checkUnique[T comparable](t *testing.T, list []T) {
	t.Helper()
	for i := range list {
		if slices.Contains(list[:i], list[i]) {
			t.Errorf("%v occurs twice in %v", list[i], list)
		}
	}
}

// checkComplete requires warnings that a reader can act on.
func checkComplete(t *testing.T, warnings []service.Warning) {
	t.Helper()
	for _, w := range warnings {
		if w.Object == "" || w.Field == "" || w.Problem == "" || w.Effect == "" {
			t.Errorf("incomplete warning %+v", w)
		}
	}
}

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
		slice, warnings := lenient.EndpointSlice(object)
		again, warningsAgain := lenient.EndpointSlice(object)
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

	spec, _ := lenient.Service(newService(loadBalancer, func(o *corev1.Service) {
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

func FuzzNode(f *testing.F) {
	addSeeds(f, &corev1.Node{Spec: corev1.NodeSpec{PodCIDRs: []string{"10.244.0.0/24"}}})
	f.Fuzz(func(t *testing.T, data []byte) {
		object := &corev1.Node{}
		if !read(data, object, &object.Labels, &object.Spec.PodCIDRs, &object.Spec.Taints, &object.Status.Addresses) {
			return
		}
		node, warnings := Node(object)
		checkComplete(t, warnings)
		for _, addr := range node.Addresses {
			checkAddr(t, service.FamilyOf(addr), addr)
		}
		for _, family := range service.Families {
			if prefix := node.PodCIDRs[family]; prefix.IsValid() {
				checkAddr(t, family, prefix.Addr())
			}
		}
	})
}

// words are what the fuzzer builds strings from: the good, the bad and the ones
// that have meaning to some field.
var words = []string{
	"", "ns1", "svc1", "svc1-abc", "p80", "None", "bad", " ",
	"10.96.0.1", "010.96.0.1", "10.244.0.1", "10.244.0.2", "::ffff:10.244.0.1", "fd00::1", "FD00:0::1", "fe80::1%eth0",
	"10.0.0.0/8", " 10.1.2.3/08 ", "0.0.0.0/0", "fd00::/64", "::/0", "::ffff:10.0.0.0/104", "10.0.0.0/33",
	"IPv4", "IPv6", "FQDN", "TCP", "UDP", "SCTP", "ICMP",
	"ClusterIP", "NodePort", "LoadBalancer", "ExternalName", "Local", "Cluster", "ClientIP", "VIP", "Proxy",
	"n1", "n2", "za", "zb", "2026-01-02T03:04:05.678Z", "kubernetes.io/service-name",
	"endpoints.kubernetes.io/last-change-trigger-time", "topology.kubernetes.io/zone", "InternalIP", "ExternalIP",
}

var numbers = []int64{0, 1, 80, 8080, 10800, 30080, 65535, 65536, 86401, -1, -2147483648, 2147483647}

// filler turns bytes into objects. When the bytes run out, all else stays empty.
type filler []byte

func (f *filler) next(n int) int {
	if len(*f) == 0 {
		return 0
	}
	first := (*f)[0]
	*f = (*f)[1:]
	return int(first) % n
}

func (f *filler) fill(v reflect.Value) {
	if len(*f) == 0 || !v.CanSet() {
		return
	}
	if _, ok := v.Addr().Interface().(*metav1.Time); ok {
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			f.fill(v.Field(i))
		}
	case reflect.Pointer:
		if f.next(3) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			f.fill(v.Elem())
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), f.next(5), 8))
		for i := range v.Len() {
			f.fill(v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range f.next(4) {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			f.fill(key)
			f.fill(value)
			v.SetMapIndex(key, value)
		}
	case reflect.String:
		v.SetString(words[f.next(len(words))])
	case reflect.Bool:
		v.SetBool(f.next(2) == 1)
	case reflect.Int32, reflect.Int64:
		v.SetInt(numbers[f.next(len(numbers))])
	}
}

// read makes an object from the fuzzer's bytes: JSON is decoded, anything else
// fills the given fields. It tells whether there is an object to look at.
func read(data []byte, object any, fields ...any) bool {
	if len(data) > 0 && data[0] == '{' {
		return json.Unmarshal(data, object) == nil
	}
	f := filler(data)
	for _, field := range fields {
		f.fill(reflect.ValueOf(field).Elem())
	}
	return true
}

// addSeeds returns the fuzzer an object as JSON, and bytes for the filler that
// begin in different places.
func addSeeds(f *testing.F, objects ...any) {
	for _, object := range objects {
		data, err := json.Marshal(object)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for start := range 4 {
		data := make([]byte, 300)
		for i := range data {
			data[i] = byte((start*61 + i*i*7 + i) % 251)
		}
		f.Add(data)
	}
}
