// SPDX-License-Identifier: Apache-2.0

package reduce

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/sluice-proxy/sluice/service"
)

func TestEndpointSlice_Ignored(t *testing.T) {
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
			slice, warnings := lenient.EndpointSlice(newSlice(tt.change))
			if slice != nil {
				t.Errorf("got %+v, want nil", slice)
			}
			checkWarnings(t, warnings, tt.object, tt.warned)
		})
	}
}

// TestEndpointSlice_ReducedWhole: a slice with a trigger and IPv6 endpoints is reduced completely, whichever controller
// manages it.
func TestEndpointSlice_ReducedWhole(t *testing.T) {
	trigger := time.Date(2026, 1, 2, 3, 4, 5, 678901234, time.UTC)
	slice, warnings := lenient.EndpointSlice(newSlice(func(o *discoveryv1.EndpointSlice) {
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

func TestEndpointSlice_Trigger(t *testing.T) {
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
		slice, warnings := lenient.EndpointSlice(newSlice(func(o *discoveryv1.EndpointSlice) { o.Annotations = tt.annotations }))
		if !slice.Trigger.Equal(tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, slice.Trigger, tt.want)
		}
		checkWarnings(t, warnings, "EndpointSlice ns1/svc1-abc", tt.warned...)
	}
}

// BenchmarkEndpointSlice reduces a full slice, as the slice controller makes it by default.
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
		lenient.EndpointSlice(object)
	}
}

func TestEndpointSlice_Ports(t *testing.T) {
	tests := []struct {
		name   string
		port   discoveryv1.EndpointPort
		want   []service.SlicePort
		warned []string
	}{
		{"named", discoveryv1.EndpointPort{Name: new("dns"), Protocol: new(corev1.ProtocolUDP), Port: new(int32(5353))},
			[]service.SlicePort{{Name: "dns", Protocol: service.UDP, Port: 5353}}, nil},
		{"the empty name is a name", discoveryv1.EndpointPort{Name: new(""), Protocol: new(corev1.ProtocolSCTP), Port: new(int32(1))},
			[]service.SlicePort{{Protocol: service.SCTP, Port: 1}}, nil},
		{"no name", discoveryv1.EndpointPort{Protocol: new(corev1.ProtocolTCP), Port: new(int32(80))}, nil, []string{"ports[0].name"}},
		{"no number", discoveryv1.EndpointPort{Name: new("a")}, nil, []string{"ports[0].port"}},
		{"number 0", discoveryv1.EndpointPort{Name: new("a"), Port: new(int32(0))}, nil, []string{"ports[0].port"}},
		{"number out of range", discoveryv1.EndpointPort{Name: new("a"), Port: new(int32(70000))}, nil, []string{"ports[0].port"}},
		{"no protocol means TCP", discoveryv1.EndpointPort{Name: new("a"), Port: new(int32(80))},
			[]service.SlicePort{{Name: "a", Protocol: service.TCP, Port: 80}}, nil},
		{"unknown protocol", discoveryv1.EndpointPort{Name: new("a"), Protocol: new(corev1.Protocol("ICMP")), Port: new(int32(80))},
			nil, []string{"ports[0].protocol"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			good := discoveryv1.EndpointPort{Name: new("good"), Port: new(int32(1))}
			slice, warnings := lenient.EndpointSlice(newSlice(func(o *discoveryv1.EndpointSlice) {
				o.Ports = []discoveryv1.EndpointPort{tt.port, good}
			}))
			want := append(slices.Clone(tt.want), service.SlicePort{Name: "good", Port: 1})
			if !slices.Equal(slice.Ports, want) {
				t.Errorf("got %+v, want %+v", slice.Ports, want)
			}
			checkWarnings(t, warnings, "EndpointSlice ns1/svc1-abc", tt.warned...)
		})
	}
}

// TestEndpointSlice_WithoutPorts: a slice without ports keeps its endpoints and causes no warning.
func TestEndpointSlice_WithoutPorts(t *testing.T) {
	slice, warnings := lenient.EndpointSlice(newSlice(func(o *discoveryv1.EndpointSlice) { o.Ports = nil }))
	if len(slice.Ports) != 0 || len(slice.Endpoints) != 1 {
		t.Errorf("got %+v", slice)
	}
	checkWarnings(t, warnings, "EndpointSlice ns1/svc1-abc")
}

func TestEndpointSlice_Addresses(t *testing.T) {
	tests := []struct {
		name      string
		kind      discoveryv1.AddressType
		addresses []string
		want      string // empty: skipped
		warned    string
	}{
		{"IPv4", discoveryv1.AddressTypeIPv4, []string{"10.244.0.1"}, "10.244.0.1", ""},
		{"IPv6", discoveryv1.AddressTypeIPv6, []string{"fd00::1"}, "fd00::1", ""},
		{"only the first counts", discoveryv1.AddressTypeIPv4, []string{"10.244.0.1", "bad"}, "10.244.0.1", ""},
		{"canonical", discoveryv1.AddressTypeIPv4, []string{"010.244.0.001"}, "10.244.0.1", ""},
		{"mapped", discoveryv1.AddressTypeIPv4, []string{"::ffff:10.244.0.1"}, "10.244.0.1", ""},
		{"none", discoveryv1.AddressTypeIPv4, nil, "", "endpoints[0].addresses"},
		{"unparsable", discoveryv1.AddressTypeIPv4, []string{"bad"}, "", "endpoints[0].addresses[0]"},
		{"of the other family", discoveryv1.AddressTypeIPv4, []string{"fd00::1"}, "", "endpoints[0].addresses[0]"},
		{"mapped is not IPv6", discoveryv1.AddressTypeIPv6, []string{"::ffff:10.244.0.1"}, "", "endpoints[0].addresses[0]"},
		{"with a zone", discoveryv1.AddressTypeIPv6, []string{"fe80::1%eth0"}, "", "endpoints[0].addresses[0]"},
	}
	good := map[discoveryv1.AddressType]string{
		discoveryv1.AddressTypeIPv4: "10.244.9.9",
		discoveryv1.AddressTypeIPv6: "fd00::99",
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			slice, warnings := lenient.EndpointSlice(newSlice(func(o *discoveryv1.EndpointSlice) {
				o.AddressType = tt.kind
				// A good one behind shows that the bad one stops nothing.
				o.Endpoints = []discoveryv1.Endpoint{
					{Addresses: tt.addresses}, {Addresses: []string{good[tt.kind]}},
				}
			}))
			var got, want []string
			for _, e := range slice.Endpoints {
				got = append(got, e.Addr.String())
			}
			if tt.want != "" {
				want = append(want, tt.want)
			}
			if want = append(want, good[tt.kind]); !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
			var warned []string
			if tt.warned != "" {
				warned = append(warned, tt.warned)
			}
			checkWarnings(t, warnings, "EndpointSlice ns1/svc1-abc", warned...)
		})
	}
}

func TestEndpointSlice_Conditions(t *testing.T) {
	yes, no := new(true), new(false)
	tests := []struct {
		name                        string
		ready, serving, terminating *bool
		want                        service.SliceEndpoint
	}{
		{"all unknown", nil, nil, nil, service.SliceEndpoint{Ready: true, Serving: true}},
		{"all true", yes, yes, yes, service.SliceEndpoint{Ready: true, Serving: true, Terminating: true}},
		{"all false", no, no, no, service.SliceEndpoint{}},
		{"terminating", no, yes, yes, service.SliceEndpoint{Serving: true, Terminating: true}},
		{"not ready, nothing else known", no, nil, nil, service.SliceEndpoint{Serving: true}},
	}
	for _, tt := range tests {
		slice, _ := lenient.EndpointSlice(newSlice(func(o *discoveryv1.EndpointSlice) {
			o.Endpoints[0].Conditions = discoveryv1.EndpointConditions{
				Ready: tt.ready, Serving: tt.serving, Terminating: tt.terminating,
			}
		}))
		got := slice.Endpoints[0]
		if got.Ready != tt.want.Ready || got.Serving != tt.want.Serving || got.Terminating != tt.want.Terminating {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// TestEndpointSlice_NodeNameAndHints: each endpoint keeps its node name, zone and hints.
func TestEndpointSlice_NodeNameAndHints(t *testing.T) {
	slice, warnings := lenient.EndpointSlice(newSlice(func(o *discoveryv1.EndpointSlice) {
		o.Endpoints = []discoveryv1.Endpoint{
			{Addresses: []string{"10.244.0.1"}, NodeName: new("n1"), Zone: new("za"), Hints: &discoveryv1.EndpointHints{
				ForZones: []discoveryv1.ForZone{{Name: "za"}, {Name: "zb"}},
				ForNodes: []discoveryv1.ForNode{{Name: "n1"}},
			}},
			{Addresses: []string{"bad"}, Hints: &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "zx"}}}},
			{Addresses: []string{"10.244.0.2"}},
			{Addresses: []string{"10.244.0.3"}, Hints: &discoveryv1.EndpointHints{}},
			{Addresses: []string{"10.244.0.4"}, Hints: &discoveryv1.EndpointHints{ForNodes: []discoveryv1.ForNode{{Name: "n2"}}}},
		}
	}))
	want := []service.SliceEndpoint{
		{Location: &service.Location{NodeName: "n1", Zone: "za", ForZones: []string{"za", "zb"}, ForNodes: []string{"n1"}}},
		{}, {},
		{Location: &service.Location{ForNodes: []string{"n2"}}},
	}
	if len(slice.Endpoints) != len(want) {
		t.Fatalf("%d endpoints, want %d", len(slice.Endpoints), len(want))
	}
	for i, w := range want {
		e := &slice.Endpoints[i]
		if !e.Where().Equal(w.Where()) || (e.Location == nil) != (w.Location == nil) {
			t.Errorf("endpoint %d: got %+v, want %+v", i, e.Where(), w.Where())
		}
	}
	checkWarnings(t, warnings, "EndpointSlice ns1/svc1-abc", "endpoints[1].addresses[0]")
}
