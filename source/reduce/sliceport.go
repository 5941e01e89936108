package reduce

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/sluice-proxy/sluice/service"
)

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
		n.add(where.dot("name"), "missing; the port is ignored")
		return service.SlicePort{}, false
	}
	if port.Port == nil {
		n.add(where.dot("port"), "missing, and all ports cannot be served; the port is ignored")
		return service.SlicePort{}, false
	}
	number, ok := portNumber(*port.Port)
	if !ok {
		n.add(where.dot("port"), "%d is not a port number; the port is ignored", *port.Port)
		return service.SlicePort{}, false
	}
	var name corev1.Protocol
	if port.Protocol != nil {
		name = *port.Protocol
	}
	transport, ok := protocol(name)
	if !ok {
		n.add(where.dot("protocol"), "%q is not a known protocol; the port is ignored", name)
		return service.SlicePort{}, false
	}
	return service.SlicePort{Name: intern(*port.Name), Protocol: transport, Port: number}, true
}
