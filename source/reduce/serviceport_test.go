package reduce

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sluice-proxy/sluice/service"
)

func TestServicePorts(t *testing.T) {
	tests := []struct {
		name   string
		ports  []corev1.ServicePort
		want   []service.Port
		warned []string
	}{
		{"none", nil, nil, nil},
		{"API order, every protocol",
			[]corev1.ServicePort{
				{Name: "z", Protocol: corev1.ProtocolSCTP, Port: 1, NodePort: 30001},
				{Name: "a", Protocol: corev1.ProtocolUDP, Port: 65535},
				{Name: "", Protocol: corev1.ProtocolTCP, Port: 80},
			},
			[]service.Port{
				{Name: "z", Protocol: service.SCTP, Port: 1, NodePort: 30001},
				{Name: "a", Protocol: service.UDP, Port: 65535},
				{Name: "", Protocol: service.TCP, Port: 80},
			}, nil},
		{"target port and app protocol have no say",
			[]corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080), AppProtocol: new("http")}},
			[]service.Port{{Port: 80}}, nil},
		{"same node port, another protocol",
			[]corev1.ServicePort{
				{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53, NodePort: 30053},
				{Name: "dns", Protocol: corev1.ProtocolTCP, Port: 53, NodePort: 30053},
			},
			[]service.Port{
				{Name: "dns", Protocol: service.UDP, Port: 53, NodePort: 30053},
				{Name: "dns", Protocol: service.TCP, Port: 53, NodePort: 30053},
			}, nil},
		{"numbers out of range",
			[]corev1.ServicePort{{Name: "a", Port: 0}, {Name: "b", Port: 70000}, {Name: "c", Port: -1}, {Name: "d", Port: 80}},
			[]service.Port{{Name: "d", Port: 80}},
			[]string{"spec.ports[0].port", "spec.ports[1].port", "spec.ports[2].port"}},
		{"node port out of range costs the node port",
			[]corev1.ServicePort{{Name: "a", Port: 80, NodePort: 70000}, {Name: "b", Port: 81, NodePort: -1}},
			[]service.Port{{Name: "a", Port: 80}, {Name: "b", Port: 81}},
			[]string{"spec.ports[0].nodePort", "spec.ports[1].nodePort"}},
		{"node port of any range", []corev1.ServicePort{{Port: 80, NodePort: 22}},
			[]service.Port{{Port: 80, NodePort: 22}}, nil},
		{"unknown protocol",
			[]corev1.ServicePort{{Name: "a", Protocol: "ICMP", Port: 80}, {Name: "b", Protocol: "tcp", Port: 81}, {Name: "c", Port: 82}},
			[]service.Port{{Name: "c", Port: 82}},
			[]string{"spec.ports[0].protocol", "spec.ports[1].protocol"}},
		{"duplicates: the first is kept",
			[]corev1.ServicePort{{Name: "a", Port: 80}, {Name: "a", Port: 81}, {Name: "b", Port: 82}},
			[]service.Port{{Name: "a", Port: 80}, {Name: "b", Port: 82}},
			[]string{"spec.ports[1]"}},
		{"a port that is left out does not displace another",
			[]corev1.ServicePort{{Name: "a", Port: 0}, {Name: "a", Port: 81}},
			[]service.Port{{Name: "a", Port: 81}},
			[]string{"spec.ports[0].port"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			spec, warnings := Service(newService(func(o *corev1.Service) { o.Spec.Ports = tt.ports }))
			if !slices.Equal(spec.Ports, tt.want) {
				t.Errorf("got %+v, want %+v", spec.Ports, tt.want)
			}
			checkWarnings(t, warnings, "Service ns1/svc1", tt.warned...)
		})
	}
}
