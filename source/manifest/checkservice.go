package manifest

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// checkService checks a Service, completed by defaultService, as an API server
// does as far as a proxy is concerned. What a server would allocate is required.
func checkService(object *corev1.Service) findings {
	var found findings
	spec := &object.Spec
	checkMeta(&found, &object.ObjectMeta, validation.IsDNS1123Label, true)
	checkOneOf(&found, "spec.type", spec.Type, corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort,
		corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeExternalName)
	if spec.Type == corev1.ServiceTypeExternalName {
		if spec.ExternalName == "" {
			found.add("spec.externalName", "is required for type ExternalName")
		}
		return found
	}
	checkClusterIPs(&found, spec)
	checkServicePorts(&found, spec)
	checkAffinity(&found, spec)
	checkPolicies(&found, spec)
	for i, text := range spec.ExternalIPs {
		checkPublicAddress(&found, index("spec.externalIPs", i), text)
	}
	checkSourceRanges(&found, spec)
	checkIngress(&found, object.Status.LoadBalancer.Ingress)
	return found
}

func checkClusterIPs(found *findings, spec *corev1.ServiceSpec) {
	if spec.ClusterIP == "" {
		found.add("spec.clusterIP", "is required: no API server allocates one for a manifest; "+
			"write an address of the service range, or None for a headless Service")
		return
	}
	if spec.ClusterIPs[0] != spec.ClusterIP {
		found.add("spec.clusterIPs[0]", "%q must equal spec.clusterIP, which is %q", spec.ClusterIPs[0], spec.ClusterIP)
		return
	}
	if spec.ClusterIP == corev1.ClusterIPNone {
		if spec.Type != corev1.ServiceTypeClusterIP {
			found.add("spec.clusterIP", "must not be None for type %s", spec.Type)
		}
		return
	}
	if len(spec.ClusterIPs) > 2 {
		found.add("spec.clusterIPs[2]", "at most one address of each family is allowed")
		return
	}
	var addresses []netip.Addr
	for i, text := range spec.ClusterIPs {
		field := index("spec.clusterIPs", i)
		if i == 0 {
			field = "spec.clusterIP"
		}
		address := checkPublicAddress(found, field, text)
		if !address.IsValid() {
			return
		}
		addresses = append(addresses, address)
	}
	if len(addresses) == 2 && familyOf(addresses[0]) == familyOf(addresses[1]) {
		found.add("spec.clusterIPs[1]", "%s and %s are of the same family", addresses[0], addresses[1])
		return
	}
	checkFamilies(found, spec.IPFamilies, addresses)
}

func checkFamilies(found *findings, families []corev1.IPFamily, addresses []netip.Addr) {
	if len(families) != len(addresses) {
		found.add("spec.ipFamilies", "has %d entries for %d ClusterIPs", len(families), len(addresses))
		return
	}
	for i, family := range families {
		if family != familyOf(addresses[i]) {
			found.add(index("spec.ipFamilies", i), "%q does not match ClusterIP %s", family, addresses[i])
		}
	}
}

// portUse is what may occur only once among the ports of a Service.
type portUse struct {
	protocol corev1.Protocol
	number   int32
}

func checkServicePorts(found *findings, spec *corev1.ServiceSpec) {
	if len(spec.Ports) == 0 && spec.ClusterIP != corev1.ClusterIPNone {
		found.add("spec.ports", "at least one port is required")
	}
	names := make(map[string]int)
	ports, nodePorts := make(map[portUse]int), make(map[portUse]int)
	for i := range spec.Ports {
		port := &spec.Ports[i]
		field := index("spec.ports", i)
		checkPortName(found, field+".name", port.Name, len(spec.Ports))
		checkOneOf(found, field+".protocol", port.Protocol, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)
		checkPort(found, field+".port", port.Port)
		checkNodePort(found, field+".nodePort", spec.Type, port.NodePort)
		checkOnce(found, names, port.Name, i, field+".name")
		checkOnce(found, ports, portUse{port.Protocol, port.Port}, i, field+".port")
		if port.NodePort != 0 {
			checkOnce(found, nodePorts, portUse{port.Protocol, port.NodePort}, i, field+".nodePort")
		}
	}
}

// checkOnce reports a value that an earlier port has as well.
func checkOnce[T comparable](found *findings, seen map[T]int, value T, i int, field string) {
	if first, twice := seen[value]; twice {
		found.add(field, "is the same as that of spec.ports[%d]", first)
		return
	}
	seen[value] = i
}

func checkPortName(found *findings, field, name string, ports int) {
	if name == "" {
		if ports > 1 {
			found.add(field, "is required when there is more than one port")
		}
		return
	}
	for _, message := range validation.IsDNS1123Label(name) {
		found.add(field, "%q: %s", name, message)
	}
}

func checkNodePort(found *findings, field string, kind corev1.ServiceType, port int32) {
	switch {
	case port < 0 || port > 65535:
		found.add(field, "must be between 0 and 65535, is %d", port)
	case port != 0 && kind == corev1.ServiceTypeClusterIP:
		found.add(field, "must not be set for type ClusterIP")
	case port == 0 && kind == corev1.ServiceTypeNodePort:
		found.add(field, "is required for type NodePort: no API server allocates one for a manifest")
	}
}

func checkAffinity(found *findings, spec *corev1.ServiceSpec) {
	checkOneOf(found, "spec.sessionAffinity", spec.SessionAffinity, corev1.ServiceAffinityNone, corev1.ServiceAffinityClientIP)
	if spec.SessionAffinity == corev1.ServiceAffinityNone {
		if spec.SessionAffinityConfig != nil {
			found.add("spec.sessionAffinityConfig", "must not be set when sessionAffinity is None")
		}
		return
	}
	if config := spec.SessionAffinityConfig; config != nil && config.ClientIP != nil {
		if seconds := *config.ClientIP.TimeoutSeconds; seconds < 1 || seconds > affinitySecondsMax {
			found.add("spec.sessionAffinityConfig.clientIP.timeoutSeconds",
				"must be between 1 and %d, is %d", affinitySecondsMax, seconds)
		}
	}
}

// affinitySecondsMax is the longest affinity that the API allows, a day.
const affinitySecondsMax = 86400

func checkPolicies(found *findings, spec *corev1.ServiceSpec) {
	if policy := spec.InternalTrafficPolicy; policy != nil {
		checkOneOf(found, "spec.internalTrafficPolicy", *policy,
			corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal)
	}
	switch {
	case externallyAccessible(spec):
		checkOneOf(found, "spec.externalTrafficPolicy", spec.ExternalTrafficPolicy,
			corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal)
	case spec.ExternalTrafficPolicy != "":
		found.add("spec.externalTrafficPolicy",
			"must not be set: the Service is neither NodePort nor LoadBalancer and has no externalIPs")
	}
	port := spec.HealthCheckNodePort
	switch {
	case port < 0 || port > 65535:
		found.add("spec.healthCheckNodePort", "must be between 0 and 65535, is %d", port)
	case port != 0 && (spec.Type != corev1.ServiceTypeLoadBalancer ||
		spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal):
		found.add("spec.healthCheckNodePort", "needs type LoadBalancer and externalTrafficPolicy Local")
	}
}

func checkSourceRanges(found *findings, spec *corev1.ServiceSpec) {
	if len(spec.LoadBalancerSourceRanges) > 0 && spec.Type != corev1.ServiceTypeLoadBalancer {
		found.add("spec.loadBalancerSourceRanges", "needs type LoadBalancer")
	}
	for i, text := range spec.LoadBalancerSourceRanges {
		checkPrefix(found, index("spec.loadBalancerSourceRanges", i), text)
	}
}

func checkIngress(found *findings, ingress []corev1.LoadBalancerIngress) {
	for i, entry := range ingress {
		field := index("status.loadBalancer.ingress", i)
		if entry.IP != "" {
			checkAddress(found, field+".ip", entry.IP)
		}
		if entry.IPMode == nil {
			continue
		}
		checkOneOf(found, field+".ipMode", *entry.IPMode, corev1.LoadBalancerIPModeVIP, corev1.LoadBalancerIPModeProxy)
		if entry.IP == "" {
			found.add(field+".ipMode", "must not be set without ip")
		}
	}
}
