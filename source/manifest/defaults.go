// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"cmp"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/sluice-proxy/sluice/service"
)

const defaultNamespace = "default"

func namespaced(kind string) bool { return kind == kindService || kind == kindEndpointSlice }

// defaultService sets what an API server would set and a proxy reads, except
// what has to be allocated.
func defaultService(object *corev1.Service) {
	spec := &object.Spec
	object.Namespace = cmp.Or(object.Namespace, defaultNamespace)
	spec.Type = cmp.Or(spec.Type, corev1.ServiceTypeClusterIP)
	spec.SessionAffinity = cmp.Or(spec.SessionAffinity, corev1.ServiceAffinityNone)
	spec.ExternalTrafficPolicy = cmp.Or(spec.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster)
	for i := range spec.Ports {
		spec.Ports[i].Protocol = cmp.Or(spec.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	if c := spec.SessionAffinityConfig; c == nil || c.ClientIP == nil || c.ClientIP.TimeoutSeconds == nil {
		seconds := corev1.DefaultClientIPServiceAffinitySeconds
		spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
	}
	if spec.ClusterIP == "" && len(spec.ClusterIPs) > 0 {
		spec.ClusterIP = spec.ClusterIPs[0]
	}
	if len(spec.ClusterIPs) == 0 && spec.ClusterIP != "" {
		spec.ClusterIPs = []string{spec.ClusterIP}
	}
	if len(spec.IPFamilies) == 0 {
		for _, text := range spec.ClusterIPs {
			address, _ := netip.ParseAddr(text) // the check that follows reports what is none
			spec.IPFamilies = append(spec.IPFamilies, corev1.IPFamily(service.FamilyOf(address.Unmap()).String()))
		}
	}
}

// defaultEndpointSlice sets the names of ports.
func defaultEndpointSlice(object *discoveryv1.EndpointSlice) {
	object.Namespace = cmp.Or(object.Namespace, defaultNamespace)
	for i := range object.Ports {
		if object.Ports[i].Name == nil {
			object.Ports[i].Name = new(string)
		}
	}
}

// defaultNode completes the two spellings of the pod ranges.
func defaultNode(object *corev1.Node) {
	if len(object.Spec.PodCIDRs) == 0 && object.Spec.PodCIDR != "" {
		object.Spec.PodCIDRs = []string{object.Spec.PodCIDR}
	}
}
