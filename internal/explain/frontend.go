// SPDX-License-Identifier: Apache-2.0

//go:build linux

package explain

import (
	"slices"

	"github.com/sluice-proxy/sluice/service"
)

// frontend is a service port at the destination.
type frontend struct {
	*concerned
	service.Exposure
	port *service.PortView
}

// served reports whether the traffic policy that applies to the frontend allows an endpoint.
func (f *frontend) served() bool { return f.Refusal == service.NoEndpointsDefault }

// frontendsOf returns the frontends of a Service at the destination.
func (e *explanation) frontendsOf(c *concerned) (found []frontend) {
	ports := c.view.Ports[e.family]
	for i := range ports {
		once := map[service.Frontend]bool{} // an external IP may be a load balancer IP as well
		for at := range ports[i].Exposures {
			to := at.Protocol == e.Protocol && at.Port == e.To.Port() && (at.Addr == e.To.Addr() || at.IsNodePort() && e.nodePortsAnswer())
			if to && !once[at.Frontend] {
				once[at.Frontend] = true
				found = append(found, frontend{c, *at, &ports[i]})
			}
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

// leftOut reports whether the destination is a frontend that is left out because its Service is above the limit.
func (e *explanation) leftOut(c *concerned) (is bool) {
	if c.view.Excess.LeftOut == 0 {
		return false
	}
	c.snapshot.Spec.Claims(func(family service.Family, f service.Frontend, _ service.FrontendKind) {
		is = is || family == e.family && f.Protocol == e.Protocol && f.Port == e.To.Port() &&
			(f.Addr == e.To.Addr() || f.IsNodePort() && e.nodePortsAnswer())
	})
	return is
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
