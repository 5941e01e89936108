// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/sluice-proxy/sluice/internal/document"
	"github.com/sluice-proxy/sluice/service"
)

// This file holds the rules of the API server without which rules of the kernel would be wrong, and that package reduce
// does not check. reduce warns about single values that cannot be served; here such a warning rejects the file. The API
// server's own validation is not published as a module.

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

// checkOnce reports a value that an earlier field has as well.
func checkOnce[T comparable](found *findings, seen map[T]string, value T, field string) {
	if first, twice := seen[value]; twice {
		found.add(field, "duplicates %s", first)
		return
	}
	seen[value] = field
}

// checkService checks a Service that defaultService has completed. It requires what
// an API server would allocate.
func checkService(object *corev1.Service) (found findings) {
	spec := &object.Spec
	checkOneOf(&found, "spec.type", spec.Type, corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort,
		corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeExternalName)
	if spec.Type == corev1.ServiceTypeExternalName {
		return found
	}
	checkClusterIPs(&found, spec)
	for i, text := range spec.ExternalIPs {
		checkAddress(&found, document.Index("spec.externalIPs", i), text)
	}
	checkServicePorts(&found, spec)
	checkOneOf(&found, "spec.sessionAffinity", spec.SessionAffinity, corev1.ServiceAffinityNone, corev1.ServiceAffinityClientIP)
	if policy := spec.InternalTrafficPolicy; policy != nil {
		checkOneOf(&found, "spec.internalTrafficPolicy", *policy,
			corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal)
	}
	checkOneOf(&found, "spec.externalTrafficPolicy", spec.ExternalTrafficPolicy,
		corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal)
	return found
}

// checkAddress reads an address as the API server does for new objects. Package reduce also reads what older objects have,
// such as 010.0.0.1, which another reader takes for 8.0.0.1. The zero Addr means that it is wrong.
func checkAddress(found *findings, field, text string) netip.Addr {
	address, err := netip.ParseAddr(text)
	switch {
	case err != nil:
		found.add(field, "%q is not an IP address", text)
	case address.Zone() != "":
		found.add(field, "%q must not have a zone", text)
	default:
		return address
	}
	return netip.Addr{}
}

// checkClusterIPs checks what reduce leaves to the allocation by an API server.
func checkClusterIPs(found *findings, spec *corev1.ServiceSpec) {
	switch {
	case spec.ClusterIP == "":
		found.add("spec.clusterIP", "is required: no API server allocates one for a manifest; "+
			"write an address of the service range, or None for a headless Service")
		return
	case spec.ClusterIPs[0] != spec.ClusterIP:
		found.add("spec.clusterIPs[0]", "%q must equal spec.clusterIP, which is %q", spec.ClusterIPs[0], spec.ClusterIP)
		return
	case spec.ClusterIP == corev1.ClusterIPNone:
		if spec.Type != corev1.ServiceTypeClusterIP {
			found.add("spec.clusterIP", "must not be None for type %s", spec.Type)
		}
		return
	case len(spec.IPFamilies) != len(spec.ClusterIPs):
		found.add("spec.ipFamilies", "contains %d entries for %d ClusterIPs", len(spec.IPFamilies), len(spec.ClusterIPs))
		return
	}
	for i, text := range spec.ClusterIPs {
		field := document.Index("spec.clusterIPs", i)
		if i == 0 {
			field = "spec.clusterIP"
		}
		address := checkAddress(found, field, text)
		if !address.IsValid() {
			continue
		}
		err := service.AddressPolicy{}.Check(address)
		switch {
		case err != nil:
			found.add(field, "%v", err)
		case slices.Contains(spec.IPFamilies[:i], spec.IPFamilies[i]):
			found.add(field, "at most one address of each family is allowed")
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
	ports, nodePorts := make(map[portUse]string), make(map[portUse]string)
	for i := range spec.Ports {
		port := &spec.Ports[i]
		field := document.Index("spec.ports", i)
		switch {
		case port.NodePort != 0 && spec.Type == corev1.ServiceTypeClusterIP:
			found.add(field+".nodePort", "must not be set for type ClusterIP")
		case port.NodePort == 0 && spec.Type == corev1.ServiceTypeNodePort:
			found.add(field+".nodePort", "is required for type NodePort: no API server allocates one for a manifest")
		}
		checkOnce(found, ports, portUse{port.Protocol, port.Port}, field+".port")
		if port.NodePort != 0 {
			checkOnce(found, nodePorts, portUse{port.Protocol, port.NodePort}, field+".nodePort")
		}
	}
}

// checkEndpointSlice checks an EndpointSlice that defaultEndpointSlice has completed.
func checkEndpointSlice(object *discoveryv1.EndpointSlice) (found findings) {
	checkOneOf(&found, "addressType", object.AddressType,
		discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6, discoveryv1.AddressTypeFQDN)
	for i, endpoint := range object.Endpoints {
		for k, text := range endpoint.Addresses {
			if object.AddressType != discoveryv1.AddressTypeFQDN {
				checkAddress(&found, document.Index(document.Index("endpoints", i)+".addresses", k), text)
			}
		}
	}
	names := make(map[string]string)
	for i, port := range object.Ports {
		checkOnce(&found, names, *port.Name, document.Index("ports", i)+".name")
	}
	return found
}

// checkNode requires the name, by which a proxy finds its Node.
func checkNode(object *corev1.Node) (found findings) {
	if object.Name == "" {
		found.add("metadata.name", "is required")
	}
	return found
}
