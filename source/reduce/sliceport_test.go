package reduce

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/sluice-proxy/sluice/service"
)

func TestSlicePorts(t *testing.T) {
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
			slice, warnings := EndpointSlice(newSlice(func(o *discoveryv1.EndpointSlice) {
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

func TestSliceWithoutPorts(t *testing.T) {
	slice, warnings := EndpointSlice(newSlice(func(o *discoveryv1.EndpointSlice) { o.Ports = nil }))
	if len(slice.Ports) != 0 || len(slice.Endpoints) != 1 {
		t.Errorf("got %+v", slice)
	}
	checkWarnings(t, warnings, "EndpointSlice ns1/svc1-abc")
}
