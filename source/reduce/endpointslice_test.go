package reduce

import (
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/sluice-proxy/sluice/service"
)

func TestIgnoredSlices(t *testing.T) {
	label := "metadata.labels[" + discoveryv1.LabelServiceName + "]"
	tests := []struct {
		name   string
		change func(*discoveryv1.EndpointSlice)
		object string
		warned string
	}{
		{"FQDN", func(o *discoveryv1.EndpointSlice) { o.AddressType = discoveryv1.AddressTypeFQDN },
			"EndpointSlice ns1/svc1-abc", "addressType"},
		{"no address type", func(o *discoveryv1.EndpointSlice) { o.AddressType = "" },
			"EndpointSlice ns1/svc1-abc", "addressType"},
		{"no service name", func(o *discoveryv1.EndpointSlice) { o.Labels = nil },
			"EndpointSlice ns1/svc1-abc", label},
		{"empty service name", func(o *discoveryv1.EndpointSlice) { o.Labels[discoveryv1.LabelServiceName] = "" },
			"EndpointSlice ns1/svc1-abc", label},
		{"no namespace", func(o *discoveryv1.EndpointSlice) { o.Namespace = "" },
			"EndpointSlice svc1-abc", "metadata"},
		{"no name", func(o *discoveryv1.EndpointSlice) { o.Name = "" },
			"EndpointSlice ns1/", "metadata"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			slice, warnings := EndpointSlice(newSlice(tt.change))
			if slice != nil {
				t.Errorf("got %+v, want nil", slice)
			}
			checkWarnings(t, warnings, tt.object, tt.warned)
		})
	}
}

func TestSliceIsReducedWhole(t *testing.T) {
	trigger := time.Date(2026, 1, 2, 3, 4, 5, 678901234, time.UTC)
	slice, warnings := EndpointSlice(newSlice(func(o *discoveryv1.EndpointSlice) {
		o.AddressType = discoveryv1.AddressTypeIPv6
		// Whoever manages the slice, it counts.
		o.Labels[discoveryv1.LabelManagedBy] = "somebody"
		o.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: trigger.Format(time.RFC3339Nano)}
		o.Endpoints[0].Addresses[0] = "fd00:10:244::1"
	}))
	want := &service.Slice{
		Service: service.Key{Namespace: "ns1", Name: "svc1"},
		Name:    "svc1-abc",
		Family:  service.IPv6,
		Ports:   []service.SlicePort{{Name: "p80", Protocol: service.TCP, Port: 8080}},
		Endpoints: []service.SliceEndpoint{
			{Addr: netip.MustParseAddr("fd00:10:244::1"), Ready: true, Serving: true},
		},
	}
	if !slice.Equal(want) {
		t.Errorf("got  %+v\nwant %+v", slice, want)
	}
	if !slice.Trigger.Equal(trigger) {
		t.Errorf("trigger %v, want %v", slice.Trigger, trigger)
	}
	checkWarnings(t, warnings, "EndpointSlice ns1/svc1-abc")
}

func TestTrigger(t *testing.T) {
	annotation := "metadata.annotations[" + corev1.EndpointsLastChangeTriggerTime + "]"
	tests := []struct {
		name        string
		annotations map[string]string
		want        time.Time
		warned      []string
	}{
		{"absent", nil, time.Time{}, nil},
		{"whole seconds", map[string]string{corev1.EndpointsLastChangeTriggerTime: "2026-01-02T03:04:05Z"},
			time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), nil},
		{"unparsable", map[string]string{corev1.EndpointsLastChangeTriggerTime: "yesterday"}, time.Time{}, []string{annotation}},
	}
	for _, tt := range tests {
		slice, warnings := EndpointSlice(newSlice(func(o *discoveryv1.EndpointSlice) { o.Annotations = tt.annotations }))
		if !slice.Trigger.Equal(tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, slice.Trigger, tt.want)
		}
		checkWarnings(t, warnings, "EndpointSlice ns1/svc1-abc", tt.warned...)
	}
}

// BenchmarkEndpointSlice reduces a full slice, as the slice controller makes
// them by default.
func BenchmarkEndpointSlice(b *testing.B) {
	object := newSlice()
	object.Endpoints = nil
	for i := range 100 {
		object.Endpoints = append(object.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{netip.AddrFrom4([4]byte{10, 244, 0, byte(i)}).String()},
			NodeName:  new("node-" + string(rune('a'+i%26))),
			Hints:     &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "za"}}},
		})
	}
	b.ReportAllocs()
	for b.Loop() {
		EndpointSlice(object)
	}
}
