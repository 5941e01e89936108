package manifest

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

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
