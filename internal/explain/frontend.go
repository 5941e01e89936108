// SPDX-License-Identifier: Apache-2.0

//go:build linux

package explain

import (
	"net/netip"
	"slices"

	"github.com/sluice-proxy/sluice/service"
)

// frontend is a service port at the destination.
type frontend struct {
	*concerned
	port *service.PortView
	kind Kind
}

// policyLocal reports whether the traffic policy that applies to the frontend is Local.
func (f *frontend) policyLocal() bool {
	if f.kind == ClusterIP {
		return f.port.InternalLocal
	}
	return f.port.ExternalLocal
}

// served reports whether the traffic policy that applies to the frontend allows an endpoint.
func (f *frontend) served() bool {
	if f.kind == ClusterIP {
		return f.port.ServesInternal()
	}
	return f.port.ServesExternal()
}

// frontendsOf returns the frontends of a Service at the destination.
func (e *explanation) frontendsOf(c *concerned) (found []frontend) {
	ports := c.view.Ports[e.family]
	for i := range ports {
		p := &ports[i]
		if p.Protocol != e.Protocol {
			continue
		}
		if p.Port == e.To.Port() {
			to := e.To.Addr()
			for _, at := range []struct {
				kind  Kind
				addrs []netip.Addr
			}{
				{ClusterIP, []netip.Addr{p.ClusterIP}}, {ExternalIP, p.ExternalIPs}, {LoadBalancerIP, p.LoadBalancerVIPs},
			} {
				if slices.Contains(at.addrs, to) {
					found = append(found, frontend{c, p, at.kind})
					break
				}
			}
		}
		if p.NodePort != 0 && p.NodePort == e.To.Port() && e.nodePortsAnswer() {
			found = append(found, frontend{c, p, NodePort})
		}
	}
	return found
}

// wants reports whether a Service requests a frontend at the destination, even if another Service owns it.
func (e *explanation) wants(c *concerned) bool {
	spec, f := c.snapshot.Spec, service.Frontend{Addr: e.To.Addr(), Port: e.To.Port(), Protocol: e.Protocol}
	if _, denied := spec.DeniedBy(e.family, f); denied {
		return true
	}
	_, denied := spec.DeniedBy(e.family, service.Frontend{Port: f.Port, Protocol: f.Protocol})
	return denied && e.nodePortsAnswer() || len(e.frontendsOf(c)) > 0
}

// nodePortsAnswer reports whether node ports answer at the destination.
func (e *explanation) nodePortsAnswer() bool {
	on, to := e.Facts.NodePorts[e.family], e.To.Addr()
	switch {
	case e.Mode == IPVS && on.All:
		return slices.Contains(on.Host, to)
	case e.Mode == IPVS:
		return slices.Contains(on.Addresses, to) && !to.IsLoopback() && (to.Is4() || !to.IsLinkLocalUnicast())
	case e.answersOnLocalhost():
		return true
	case to.IsLoopback() && (e.Mode != IPTables || !to.Is4() || !e.Facts.LocalhostNodePorts):
		return false
	case on.All:
		return e.local(to)
	default:
		return slices.Contains(on.Addresses, to)
	}
}
