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

// This file holds the rules of the API server without which rules of the kernel would be wrong, and that package
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
	checkOneOf(&found, "spec.sessionAffinity", spec.SessionAffinity, corev1.ServiceAffinityNone, corev1.ServiceAffinityClientIP)
	if policy := spec.InternalTrafficPolicy; policy != nil {
		checkOneOf(&found, "spec.internalTrafficPolicy", *policy,
			corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal)
	}
	if externallyAccessible(spec) {
		checkOneOf(&found, "spec.externalTrafficPolicy", spec.ExternalTrafficPolicy,
			corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal)
	}
	for i, text := range spec.ExternalIPs {
		checkAddress(&found, document.Index("spec.externalIPs", i), text)
	}
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
		switch {
		case port.NodePort != 0 && spec.Type == corev1.ServiceTypeClusterIP:
			found.add(field+".nodePort", "must not be set for type ClusterIP")
		case port.NodePort == 0 && spec.Type == corev1.ServiceTypeNodePort:
			found.add(field+".nodePort", "is required for type NodePort: no API server allocates one for a manifest")
		}
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

// checkEndpointSlice checks an EndpointSlice that defaultEndpointSlice has completed.
func checkEndpointSlice(object *discoveryv1.EndpointSlice) findings {
	var found findings
	checkMeta(&found, &object.ObjectMeta, validation.IsDNS1123Subdomain, true)
	checkOneOf(&found, "addressType", object.AddressType,
		discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6, discoveryv1.AddressTypeFQDN)
	checkSlicePorts(&found, object.Ports)
	for i := range object.Endpoints {
		if object.AddressType == discoveryv1.AddressTypeFQDN { // such slices are not proxied
			break
		}
		for n, text := range object.Endpoints[i].Addresses {
			checkAddress(&found, document.Index(document.Index("endpoints", i)+".addresses", n), text)
		}
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

// checkNode checks what a proxy reads of a Node.
func checkNode(object *corev1.Node) (found findings) {
	checkMeta(&found, &object.ObjectMeta, validation.IsDNS1123Subdomain, false)
	return found
}

// checkServiceCIDR checks the name of a ServiceCIDR.
func checkServiceCIDR(object *networkingv1.ServiceCIDR) (found findings) {
	checkMeta(&found, &object.ObjectMeta, validation.IsDNS1123Subdomain, false)
	return found
}
