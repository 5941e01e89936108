// SPDX-License-Identifier: Apache-2.0

package service

// NoEndpoints is what happens to new connections to a frontend that has no endpoint.
type NoEndpoints uint8

// The values. NoEndpointsDefault is kube-proxy's behavior; see PortView.Unserved.
const (
	NoEndpointsDefault NoEndpoints = iota
	// NoEndpointsReject answers with ICMP "port unreachable".
	NoEndpointsReject
	// NoEndpointsDrop does not answer.
	NoEndpointsDrop
	// NoEndpointsPass leaves packets alone. The host or another program answers.
	NoEndpointsPass
)

var noEndpoints = [...]string{
	NoEndpointsDefault: "", NoEndpointsReject: "reject", NoEndpointsDrop: "drop", NoEndpointsPass: "pass",
}

// ParseNoEndpoints is the reverse of String. The default has no name.
func ParseNoEndpoints(name string) (NoEndpoints, bool) {
	for i, known := range noEndpoints {
		if i > 0 && known == name {
			return NoEndpoints(i), true
		}
	}
	return NoEndpointsDefault, false
}

// String returns the value as annotations have it. The default is "".
func (n NoEndpoints) String() string { return noEndpoints[n] }

// Unserved returns what happens to new connections to a frontend without endpoints; it is never the default.
// By default, they are rejected if the port has no endpoint anywhere, and dropped if the policy rules all
// endpoints out: the sender should try another node.
func (p *PortView) Unserved() NoEndpoints {
	switch {
	case p.NoEndpoints != NoEndpointsDefault:
		return p.NoEndpoints
	case p.HasAny:
		return NoEndpointsDrop
	default:
		return NoEndpointsReject
	}
}
