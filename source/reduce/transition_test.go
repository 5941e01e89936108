// SPDX-License-Identifier: Apache-2.0

package reduce

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/sluice-proxy/sluice/service"
)

// view is what becomes of a Service object with one local and one remote
// endpoint on node n1.
func view(t *testing.T, object *corev1.Service) *service.View {
	t.Helper()
	spec, _ := lenient.Service(object)
	slice, _ := lenient.EndpointSlice(newSlice(func(o *discoveryv1.EndpointSlice) {
		o.Endpoints = []discoveryv1.Endpoint{
			{Addresses: []string{"10.244.0.1"}, NodeName: new("n1")},
			{Addresses: []string{"10.244.0.2"}, NodeName: new("n2")},
		}
	}))
	v := service.Resolve(service.Key{Namespace: "ns1", Name: "svc1"}, spec, []*service.Slice{slice}, &service.NodeFacts{Name: "n1"})
	return &v
}

// summary is what a transition may change of the only port of a view, over IPv4.
type summary struct {
	ports          int
	name           string
	clusterIP      string
	nodePort       uint16
	externalLocal  bool
	healthPort     uint16
	cluster, local int
}

func summarize(v *service.View) summary {
	s := summary{ports: len(v.Ports[service.IPv4]), healthPort: v.HealthPort(service.IPv4)}
	if s.ports > 0 {
		p := &v.Ports[service.IPv4][0]
		s.name, s.clusterIP, s.nodePort = p.Name, p.ClusterIP.String(), p.NodePort
		s.externalLocal, s.cluster, s.local = p.ExternalLocal, len(p.Cluster), len(p.Local)
	}
	return s
}

// TestService_TypeTransitions compares pairs of states of one Service. Each state is reduced independently, so each
// pair works in both directions.
func TestService_TypeTransitions(t *testing.T) {
	clusterIP := func(o *corev1.Service) {}
	ignoredPolicy := func(o *corev1.Service) {
		o.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	}
	nodePort := func(o *corev1.Service) {
		o.Spec.Type = corev1.ServiceTypeNodePort
		o.Spec.Ports[0].NodePort = 30080
	}
	nodePortLocal := func(o *corev1.Service) { nodePort(o); ignoredPolicy(o) }
	externalCluster := func(o *corev1.Service) {
		loadBalancer(o)
		o.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
	}
	externalName := func(o *corev1.Service) { o.Spec.Type = corev1.ServiceTypeExternalName }
	renamed := func(o *corev1.Service) { o.Spec.Ports[0].Name = "web" }
	moved := func(o *corev1.Service) {
		o.Spec.ClusterIP = "10.96.0.2"
		o.Spec.ClusterIPs[0] = "10.96.0.2"
	}
	protocolAdded := func(o *corev1.Service) {
		nodePort(o)
		o.Spec.Ports = append(o.Spec.Ports, corev1.ServicePort{
			Name: "p80", Protocol: corev1.ProtocolUDP, Port: 80, NodePort: 30080,
		})
	}

	const ip = "10.96.0.1"
	plain := summary{1, "p80", ip, 0, false, 0, 2, 0}
	tests := []struct {
		name         string
		state, other func(*corev1.Service)
		want, then   summary
	}{
		{"ClusterIP to NodePort", clusterIP, nodePort, plain, summary{1, "p80", ip, 30080, false, 0, 2, 0}},
		{"the external policy starts to count", ignoredPolicy, nodePortLocal, plain, summary{1, "p80", ip, 30080, true, 0, 2, 1}},
		{"ClusterIP to LoadBalancer", clusterIP, loadBalancer, plain, summary{1, "p80", ip, 30080, true, 32000, 2, 1}},
		{"Local to Cluster", loadBalancer, externalCluster,
			summary{1, "p80", ip, 30080, true, 32000, 2, 1}, summary{1, "p80", ip, 30080, false, 0, 2, 0}},
		{"ClusterIP to ExternalName", clusterIP, externalName, plain, summary{}},
		{"LoadBalancer to ExternalName", loadBalancer, externalName,
			summary{1, "p80", ip, 30080, true, 32000, 2, 1}, summary{}},
		{"port renamed: slices must follow", clusterIP, renamed, plain, summary{1, "web", ip, 0, false, 0, 0, 0}},
		{"ClusterIP replaced", clusterIP, moved, plain, summary{1, "p80", "10.96.0.2", 0, false, 0, 2, 0}},
		{"protocol added to a node port", nodePort, protocolAdded,
			summary{1, "p80", ip, 30080, false, 0, 2, 0}, summary{2, "p80", ip, 30080, false, 0, 2, 0}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before, after := view(t, newService(tt.state)), view(t, newService(tt.other))
			if got := summarize(before); got != tt.want {
				t.Errorf("before: got %+v, want %+v", got, tt.want)
			}
			if got := summarize(after); got != tt.then {
				t.Errorf("after: got %+v, want %+v", got, tt.then)
			}
			if before.Equal(after) {
				t.Error("the views are equal")
			}
		})
	}
}
