package manifest

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// checkMeta checks name and namespace; format tells what is wrong with a name.
func checkMeta(found *findings, meta *metav1.ObjectMeta, format func(string) []string, namespaced bool) {
	switch {
	case meta.Name == "":
		found.add("metadata.name", "is required")
	default:
		for _, message := range format(meta.Name) {
			found.add("metadata.name", "%q: %s", meta.Name, message)
		}
	}
	if !namespaced {
		if meta.Namespace != "" {
			found.add("metadata.namespace", "must not be set: the kind has no namespace")
		}
		return
	}
	for _, message := range validation.IsDNS1123Label(meta.Namespace) {
		found.add("metadata.namespace", "%q: %s", meta.Namespace, message)
	}
}

// checkOneOf checks a field that has a fixed set of values.
func checkOneOf[T ~string](found *findings, field string, value T, allowed ...T) {
	if slices.Contains(allowed, value) {
		return
	}
	quoted := make([]string, 0, len(allowed))
	for _, one := range allowed {
		quoted = append(quoted, string(one))
	}
	found.add(field, "%q must be one of %s", string(value), strings.Join(quoted, ", "))
}

// checkPort checks a port number that may not be 0.
func checkPort(found *findings, field string, port int32) {
	if port < 1 || port > 65535 {
		found.add(field, "must be between 1 and 65535, is %d", port)
	}
}

// checkAddress checks an address and gives it; it is not valid when it was
// reported.
func checkAddress(found *findings, field, text string) netip.Addr {
	address, err := netip.ParseAddr(text)
	switch {
	case err != nil:
		found.add(field, "%q is not an IP address", text)
		return netip.Addr{}
	case address.Zone() != "":
		found.add(field, "%q must not have a zone", text)
		return netip.Addr{}
	case address.Is4In6():
		found.add(field, "%q must be written as %s", text, address.Unmap())
		return netip.Addr{}
	}
	return address
}

// checkPublicAddress is checkAddress for addresses that packets are sent to over
// the network, where an API server refuses special ones as well.
func checkPublicAddress(found *findings, field, text string) netip.Addr {
	address := checkAddress(found, field, text)
	if !address.IsValid() {
		return address
	}
	special := ""
	switch {
	case address.IsUnspecified():
		special = "the unspecified address"
	case address.IsLoopback():
		special = "a loopback address"
	case address.IsLinkLocalUnicast():
		special = "a link-local address"
	case address.IsMulticast():
		special = "a multicast address"
	}
	if special != "" {
		found.add(field, "%s must not be %s", text, special)
		return netip.Addr{}
	}
	return address
}

// checkPrefix checks a CIDR.
func checkPrefix(found *findings, field, text string) netip.Prefix {
	prefix, err := netip.ParsePrefix(strings.TrimSpace(text))
	if err != nil {
		found.add(field, "%q is not a CIDR, such as 10.0.0.0/8 or fd00::/64", text)
	}
	return prefix
}

// index gives the path of an element of a list.
func index(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }

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

// checkEndpointSlice checks an EndpointSlice, completed by defaultEndpointSlice.
// Beyond what an API server does, it asks for the label that says which Service
// the slice belongs to: without it nobody would use the endpoints.
func checkEndpointSlice(object *discoveryv1.EndpointSlice) findings {
	var found findings
	checkMeta(&found, &object.ObjectMeta, validation.IsDNS1123Subdomain, true)
	if object.Labels[discoveryv1.LabelServiceName] == "" {
		found.add("metadata.labels", "label %s is required: it names the Service that the endpoints belong to",
			discoveryv1.LabelServiceName)
	}
	checkOneOf(&found, "addressType", object.AddressType,
		discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6, discoveryv1.AddressTypeFQDN)
	checkSlicePorts(&found, object.Ports)
	for i := range object.Endpoints {
		checkEndpoint(&found, index("endpoints", i), object.AddressType, &object.Endpoints[i])
	}
	return found
}

func checkSlicePorts(found *findings, ports []discoveryv1.EndpointPort) {
	names := make(map[string]int)
	for i, port := range ports {
		field := index("ports", i)
		if first, twice := names[*port.Name]; twice {
			found.add(field+".name", "is the same as that of ports[%d]", first)
		}
		names[*port.Name] = i
		if *port.Name != "" {
			for _, message := range validation.IsDNS1123Label(*port.Name) {
				found.add(field+".name", "%q: %s", *port.Name, message)
			}
		}
		checkOneOf(found, field+".protocol", *port.Protocol, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)
		if port.Port == nil {
			found.add(field+".port", "is required")
			continue
		}
		checkPort(found, field+".port", *port.Port)
	}
}

func checkEndpoint(found *findings, field string, kind discoveryv1.AddressType, endpoint *discoveryv1.Endpoint) {
	if len(endpoint.Addresses) == 0 {
		found.add(field+".addresses", "at least one address is required")
	}
	for i, text := range endpoint.Addresses {
		at := index(field+".addresses", i)
		if kind == discoveryv1.AddressTypeFQDN {
			continue // not proxied, so its form does not matter
		}
		address := checkPublicAddress(found, at, text)
		if address.IsValid() && !matches(kind, address) {
			found.add(at, "%s does not match addressType %s", address, kind)
		}
	}
	if hints := endpoint.Hints; hints != nil {
		for i, zone := range hints.ForZones {
			if zone.Name == "" {
				found.add(index(field+".hints.forZones", i)+".name", "is required")
			}
		}
		for i, node := range hints.ForNodes {
			if node.Name == "" {
				found.add(index(field+".hints.forNodes", i)+".name", "is required")
			}
		}
	}
}

// matches is true for unknown types, which are reported by themselves.
func matches(kind discoveryv1.AddressType, address netip.Addr) bool {
	switch kind {
	case discoveryv1.AddressTypeIPv4:
		return address.Is4()
	case discoveryv1.AddressTypeIPv6:
		return address.Is6()
	default:
		return true
	}
}

// checkNode checks what a proxy reads of a Node.
func checkNode(object *corev1.Node) findings {
	var found findings
	checkMeta(&found, &object.ObjectMeta, validation.IsDNS1123Subdomain, false)
	for i, address := range object.Status.Addresses {
		if address.Type == corev1.NodeInternalIP || address.Type == corev1.NodeExternalIP {
			checkAddress(&found, index("status.addresses", i)+".address", address.Address)
		}
	}
	if ranges := object.Spec.PodCIDRs; object.Spec.PodCIDR != "" && object.Spec.PodCIDR != ranges[0] {
		found.add("spec.podCIDR", "%q must equal spec.podCIDRs[0], which is %q", object.Spec.PodCIDR, ranges[0])
	}
	for i, text := range object.Spec.PodCIDRs {
		checkPrefix(&found, index("spec.podCIDRs", i), text)
	}
	return found
}

// checkServiceCIDR checks the ranges of a ServiceCIDR.
func checkServiceCIDR(object *networkingv1.ServiceCIDR) findings {
	var found findings
	checkMeta(&found, &object.ObjectMeta, validation.IsDNS1123Subdomain, false)
	if ranges := len(object.Spec.CIDRs); ranges < 1 || ranges > 2 {
		found.add("spec.cidrs", "must have one or two ranges, has %d", ranges)
	}
	for i, text := range object.Spec.CIDRs {
		checkPrefix(&found, index("spec.cidrs", i), text)
	}
	return found
}
