package manifest

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

const defaultNamespace = "default"

// defaultAffinitySeconds is what an API server sets for ClientIP affinity.
const defaultAffinitySeconds = int32(corev1.DefaultClientIPServiceAffinitySeconds)

func namespaced(kind string) bool { return kind == kindService || kind == kindEndpointSlice }

// defaultService sets what an API server would set and a proxy reads, except
// what has to be allocated.
func defaultService(object *corev1.Service) {
	spec := &object.Spec
	setDefault(&object.Namespace, defaultNamespace)
	setDefault(&spec.Type, corev1.ServiceTypeClusterIP)
	setDefault(&spec.SessionAffinity, corev1.ServiceAffinityNone)
	for i := range spec.Ports {
		setDefault(&spec.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	if spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		defaultAffinity(spec)
	}
	if externallyAccessible(spec) {
		setDefault(&spec.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster)
	}
	if spec.Type == corev1.ServiceTypeExternalName {
		return
	}
	if spec.ClusterIP == "" && len(spec.ClusterIPs) > 0 {
		spec.ClusterIP = spec.ClusterIPs[0]
	}
	if len(spec.ClusterIPs) == 0 && spec.ClusterIP != "" {
		spec.ClusterIPs = []string{spec.ClusterIP}
	}
	if len(spec.IPFamilies) == 0 && spec.ClusterIP != corev1.ClusterIPNone {
		spec.IPFamilies = familiesOf(spec.ClusterIPs)
	}
}

func defaultAffinity(spec *corev1.ServiceSpec) {
	if spec.SessionAffinityConfig == nil {
		spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{}
	}
	if spec.SessionAffinityConfig.ClientIP == nil {
		spec.SessionAffinityConfig.ClientIP = &corev1.ClientIPConfig{}
	}
	if spec.SessionAffinityConfig.ClientIP.TimeoutSeconds == nil {
		seconds := defaultAffinitySeconds
		spec.SessionAffinityConfig.ClientIP.TimeoutSeconds = &seconds
	}
}

// externallyAccessible reports whether externalTrafficPolicy counts.
func externallyAccessible(spec *corev1.ServiceSpec) bool {
	return spec.Type == corev1.ServiceTypeLoadBalancer || spec.Type == corev1.ServiceTypeNodePort ||
		spec.Type == corev1.ServiceTypeClusterIP && len(spec.ExternalIPs) > 0
}

// familiesOf returns the families of addresses; it gives none if one is not an
// address, which the check that follows reports.
func familiesOf(addresses []string) []corev1.IPFamily {
	var families []corev1.IPFamily
	for _, text := range addresses {
		address, err := netip.ParseAddr(text)
		if err != nil {
			return nil
		}
		families = append(families, familyOf(address))
	}
	return families
}

func familyOf(address netip.Addr) corev1.IPFamily {
	if address.Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}

// defaultEndpointSlice sets the names and protocols of ports.
func defaultEndpointSlice(object *discoveryv1.EndpointSlice) {
	setDefault(&object.Namespace, defaultNamespace)
	for i := range object.Ports {
		port := &object.Ports[i]
		if port.Name == nil {
			port.Name = new(string)
		}
		if port.Protocol == nil {
			protocol := corev1.ProtocolTCP
			port.Protocol = &protocol
		}
	}
}

// defaultNode completes the two spellings of the pod ranges.
func defaultNode(object *corev1.Node) {
	if len(object.Spec.PodCIDRs) == 0 && object.Spec.PodCIDR != "" {
		object.Spec.PodCIDRs = []string{object.Spec.PodCIDR}
	}
}

func setDefault[T comparable](field *T, value T) {
	var unset T
	if *field == unset {
		*field = value
	}
}
