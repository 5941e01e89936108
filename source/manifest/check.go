package manifest

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sluice-proxy/sluice/internal/document"
	"github.com/sluice-proxy/sluice/service"
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
			found.add("metadata.namespace", "must not be set: this kind is not namespaced")
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

// checkAddress rejects spellings and special addresses that an API server does not
// accept where packets go over the network.
func checkAddress(found *findings, field, text string) {
	address, err := netip.ParseAddr(text)
	problem := ""
	switch {
	case err != nil:
		found.add(field, "%q is not an IP address", text)
		return
	case address.Zone() != "":
		problem = "have a zone"
	case address.Is4In6():
		problem = "be an IPv4 address in IPv6 notation: write " + address.Unmap().String()
	default:
		if err := (service.AddressPolicy{}).Check(address); err != nil {
			found.add(field, "%v", err)
		}
		return
	}
	found.add(field, "%s must not %s", text, problem)
}

// This file holds the rules of the API server that matter to a proxy and that package
// reduce does not check. reduce warns about single values that cannot be served; here
// such a warning rejects the file. The API server's own validation is not published as
// a module.

// checkService checks a Service that defaultService has completed. It requires what
// an API server would allocate.
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
		checkAddress(&found, document.Index("spec.externalIPs", i), text)
	}
	if len(spec.LoadBalancerSourceRanges) > 0 && spec.Type != corev1.ServiceTypeLoadBalancer {
		found.add("spec.loadBalancerSourceRanges", "needs type LoadBalancer")
	}
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
	checkAddress(found, "spec.clusterIP", spec.ClusterIP)
	for i, text := range spec.ClusterIPs[1:] {
		checkAddress(found, document.Index("spec.clusterIPs", i+1), text)
	}
	if families := len(spec.IPFamilies); families > 0 && families != len(spec.ClusterIPs) {
		found.add("spec.ipFamilies", "contains %d entries for %d ClusterIPs", families, len(spec.ClusterIPs))
	}
	if len(spec.IPFamilies) == 2 && spec.IPFamilies[0] == spec.IPFamilies[1] {
		found.add("spec.clusterIPs[1]", "must not be of the family of spec.clusterIPs[0]")
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
		field := document.Index("spec.ports", i)
		checkPortName(found, field+".name", port.Name, len(spec.Ports))
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
		found.add(field, "duplicates that of spec.ports[%d]", first)
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
	}
}

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
			"must not be set: the Service is neither NodePort nor LoadBalancer and lists no externalIPs")
	}
	if spec.HealthCheckNodePort != 0 && (spec.Type != corev1.ServiceTypeLoadBalancer ||
		spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal) {
		found.add("spec.healthCheckNodePort", "needs type LoadBalancer and externalTrafficPolicy Local")
	}
}

func checkIngress(found *findings, ingress []corev1.LoadBalancerIngress) {
	for i, entry := range ingress {
		if entry.IPMode != nil && entry.IP == "" {
			found.add(document.Index("status.loadBalancer.ingress", i)+".ipMode", "must not be set without ip")
		}
	}
}

// checkEndpointSlice checks an EndpointSlice that defaultEndpointSlice has completed.
func checkEndpointSlice(object *discoveryv1.EndpointSlice) findings {
	var found findings
	checkMeta(&found, &object.ObjectMeta, validation.IsDNS1123Subdomain, true)
	checkOneOf(&found, "addressType", object.AddressType,
		discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6, discoveryv1.AddressTypeFQDN)
	checkSlicePorts(&found, object.Ports)
	for i := range object.Endpoints {
		checkEndpoint(&found, document.Index("endpoints", i), object.AddressType, &object.Endpoints[i])
	}
	return found
}

func checkSlicePorts(found *findings, ports []discoveryv1.EndpointPort) {
	names := make(map[string]int)
	for i, port := range ports {
		field := document.Index("ports", i)
		if first, twice := names[*port.Name]; twice {
			found.add(field+".name", "duplicates that of ports[%d]", first)
		}
		names[*port.Name] = i
		if *port.Name != "" {
			for _, message := range validation.IsDNS1123Label(*port.Name) {
				found.add(field+".name", "%q: %s", *port.Name, message)
			}
		}
	}
}

func checkEndpoint(found *findings, field string, kind discoveryv1.AddressType, endpoint *discoveryv1.Endpoint) {
	if kind != discoveryv1.AddressTypeFQDN { // such slices are not proxied
		for i, text := range endpoint.Addresses {
			checkAddress(found, document.Index(field+".addresses", i), text)
		}
	}
	if hints := endpoint.Hints; hints != nil {
		for i, zone := range hints.ForZones {
			if zone.Name == "" {
				found.add(document.Index(field+".hints.forZones", i)+".name", "is required")
			}
		}
		for i, node := range hints.ForNodes {
			if node.Name == "" {
				found.add(document.Index(field+".hints.forNodes", i)+".name", "is required")
			}
		}
	}
}

// checkNode checks what a proxy reads of a Node.
func checkNode(object *corev1.Node) findings {
	var found findings
	checkMeta(&found, &object.ObjectMeta, validation.IsDNS1123Subdomain, false)
	if ranges := object.Spec.PodCIDRs; object.Spec.PodCIDR != "" && object.Spec.PodCIDR != ranges[0] {
		found.add("spec.podCIDR", "%q must equal spec.podCIDRs[0], which is %q", object.Spec.PodCIDR, ranges[0])
	}
	return found
}

// checkServiceCIDR checks the ranges of a ServiceCIDR.
func checkServiceCIDR(object *networkingv1.ServiceCIDR) findings {
	var found findings
	checkMeta(&found, &object.ObjectMeta, validation.IsDNS1123Subdomain, false)
	if ranges := len(object.Spec.CIDRs); ranges < 1 || ranges > 2 {
		found.add("spec.cidrs", "must contain one or two ranges, contains %d", ranges)
	}
	return found
}
