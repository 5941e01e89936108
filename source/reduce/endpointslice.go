// SPDX-License-Identifier: Apache-2.0

package reduce

import (
	"net/netip"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/sluice-proxy/sluice/service"
)

// sliceIgnored is the effect of a warning about a slice that cannot be used.
const sliceIgnored = "the slice is ignored"

// EndpointSlice reduces an EndpointSlice. The result is nil when it belongs to no
// Service or holds no IP addresses. Who manages the slice does not matter.
func (p Policy) EndpointSlice(object *discoveryv1.EndpointSlice) (*service.Slice, []service.Warning) {
	n := &notes{kind: "EndpointSlice", namespace: object.Namespace, name: object.Name}
	owner := object.Labels[discoveryv1.LabelServiceName]
	family, ok := familyOf(object.AddressType)
	switch {
	case object.Namespace == "" || object.Name == "":
		n.add(field("metadata"), sliceIgnored, "namespace and name are required")
		return nil, n.warnings
	case !isName(object.Namespace):
		n.add(field("metadata.namespace"), sliceIgnored, notAName, object.Namespace)
		return nil, n.warnings
	case !isText(object.Name, longNameMax):
		n.add(field("metadata.name"), sliceIgnored, notALongName, object.Name, longNameMax)
		return nil, n.warnings
	case owner == "":
		n.add(field("metadata.labels["+discoveryv1.LabelServiceName+"]"),
			sliceIgnored, "is required: it names the Service that the endpoints belong to")
		return nil, n.warnings
	case !isName(owner):
		n.add(field("metadata.labels["+discoveryv1.LabelServiceName+"]"), sliceIgnored, notAName, owner)
		return nil, n.warnings
	case !ok:
		n.add(field("addressType"), sliceIgnored, "%q addresses cannot be served", object.AddressType)
		return nil, n.warnings
	}
	weight, drains := weight(n, object.Annotations)
	return &service.Slice{
		Service:   service.Key{Namespace: intern(object.Namespace), Name: strings.Clone(owner)},
		Name:      strings.Clone(object.Name),
		Family:    family,
		Ports:     slicePorts(n, object.Ports),
		Endpoints: p.sliceEndpoints(n, family, object.Endpoints),
		Weight:    weight,
		Drains:    drains,
		Trigger:   trigger(n, object.Annotations),
	}, n.warnings
}

// annotationWeight and annotationCiliumWeight are the annotations with the weight of all endpoints of a slice. The
// first one counts.
const (
	annotationWeight       = "sluice.dev/weight"
	annotationCiliumWeight = "service.cilium.io/weight"
	weightMax              = 1<<16 - 1
)

// weight reads the weight of the endpoints, 0 for none. drains says that it is given as 0.
func weight(n *notes, annotations map[string]string) (weight uint16, drains bool) {
	for _, name := range []string{annotationWeight, annotationCiliumWeight} {
		text, given := annotations[name]
		if !given {
			continue
		}
		number, err := strconv.ParseUint(strings.TrimSpace(text), 10, 16)
		if err != nil {
			n.add(annotation(name), "weight 1 is used", "%q is not a weight (0 to %d)", text, weightMax)
			return 0, false
		}
		return uint16(number), number == 0
	}
	return 0, false
}

// trigger reads when the change that the slice carries was caused.
func trigger(n *notes, annotations map[string]string) time.Time {
	text, ok := annotations[corev1.EndpointsLastChangeTriggerTime]
	if !ok {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		n.add(field("metadata.annotations["+corev1.EndpointsLastChangeTriggerTime+"]"),
			"the latency of this change is not measured", "%q is not a time", text)
		return time.Time{}
	}
	return t
}

// slicePorts reduces the ports of a slice. A port without a name field matches no
// service port, and one without a number would mean all ports, which a proxy
// cannot serve.
func slicePorts(n *notes, ports []discoveryv1.EndpointPort) []service.SlicePort {
	reduced := make([]service.SlicePort, 0, len(ports))
	for i := range ports {
		if port, ok := slicePort(n, at("ports", i), &ports[i]); ok {
			reduced = append(reduced, port)
		}
	}
	return reduced
}

func slicePort(n *notes, where path, port *discoveryv1.EndpointPort) (service.SlicePort, bool) {
	if port.Name == nil {
		n.add(where.dot("name"), "the port is ignored", "missing")
		return service.SlicePort{}, false
	}
	if port.Port == nil {
		n.add(where.dot("port"), "the port is ignored", "missing, and all ports cannot be served")
		return service.SlicePort{}, false
	}
	if *port.Name != "" && !isName(*port.Name) {
		n.add(where.dot("name"), "the port is ignored", notAName, *port.Name)
		return service.SlicePort{}, false
	}
	number, ok := portNumber(*port.Port)
	if !ok {
		n.add(where.dot("port"), "the port is ignored", "%d is not a port number (1 to 65535)", *port.Port)
		return service.SlicePort{}, false
	}
	var name corev1.Protocol
	if port.Protocol != nil {
		name = *port.Protocol
	}
	transport, ok := protocol(name)
	if !ok {
		n.add(where.dot("protocol"), "the port is ignored", "%q is not one of TCP, UDP, SCTP", name)
		return service.SlicePort{}, false
	}
	return service.SlicePort{Name: intern(*port.Name), Protocol: transport, Port: number}, true
}

// sliceEndpoints reduces the endpoints of a slice; those without a usable address
// are left out and the others keep their order.
func (p *Policy) sliceEndpoints(n *notes, family service.Family, endpoints []discoveryv1.Endpoint) []service.SliceEndpoint {
	reduced := make([]service.SliceEndpoint, 0, len(endpoints))
	for i := range endpoints {
		e := &endpoints[i]
		addr, ok := p.endpointAddr(n, at("endpoints", i), family, e.Addresses)
		if !ok {
			continue
		}
		reduced = append(reduced, service.SliceEndpoint{
			Addr:        addr,
			Location:    placeOf(n, at("endpoints", i), e),
			Ready:       valueOr(e.Conditions.Ready, true),
			Serving:     valueOr(e.Conditions.Serving, true),
			Terminating: valueOr(e.Conditions.Terminating, false),
		})
	}
	return reduced
}

// endpointAddr reads the first address; by the API's rules the others are ways
// to the same endpoint and not looked at.
func (p *Policy) endpointAddr(n *notes, where path, family service.Family, addresses []string) (netip.Addr, bool) {
	const skipped = "the endpoint is skipped"
	if len(addresses) == 0 {
		n.add(where.dot("addresses"), skipped, "at least one address is required")
		return netip.Addr{}, false
	}
	where = where.dot("addresses[0]")
	addr, ok := parseAddr(addresses[0])
	switch {
	case !ok:
		n.add(where, skipped, "%q is not an IP address", addresses[0])
	case service.FamilyOf(addr) != family:
		n.add(where, skipped, "%s is not an %s address, as addressType requires", addr, family)
		ok = false
	default:
		ok = p.admits(n, where, skipped, addr)
	}
	return addr, ok
}

func valueOr[T any](value *T, missing T) T {
	if value == nil {
		return missing
	}
	return *value
}
