package reduce

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-proxy/sluice/service"
)

// servicePorts reduces spec.ports, in API order. A name occurs once per protocol:
// it is how slices refer to a port.
func servicePorts(n *notes, ports []corev1.ServicePort) []service.Port {
	type identity struct {
		name     string
		protocol service.Protocol
	}
	reduced := make([]service.Port, 0, len(ports))
	seen := make(map[identity]bool, len(ports))
	for i := range ports {
		port, ok := servicePort(n, at("spec.ports", i), &ports[i])
		if !ok {
			continue
		}
		id := identity{port.Name, port.Protocol}
		if seen[id] {
			n.add(at("spec.ports", i),
				"name %q and protocol %s occur before; the first port is kept and this one left out",
				port.Name, port.Protocol)
			continue
		}
		seen[id] = true
		reduced = append(reduced, port)
	}
	return reduced
}

// servicePort reduces one element of spec.ports. A node port that is not a port
// number costs the port its node port only.
func servicePort(n *notes, where path, port *corev1.ServicePort) (service.Port, bool) {
	number, ok := portNumber(port.Port)
	if !ok {
		n.add(where.dot("port"), "%d is not a port number; the port is left out", port.Port)
		return service.Port{}, false
	}
	transport, ok := protocol(port.Protocol)
	if !ok {
		n.add(where.dot("protocol"), "%q is not a known protocol; the port is left out", port.Protocol)
		return service.Port{}, false
	}
	nodePort, ok := portNumber(port.NodePort)
	if !ok && port.NodePort != 0 {
		n.add(where.dot("nodePort"), "%d is not a port number; the port has no node port", port.NodePort)
	}
	return service.Port{
		Name:     intern(port.Name),
		Protocol: transport,
		Port:     number,
		NodePort: nodePort,
	}, true
}
