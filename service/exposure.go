// SPDX-License-Identifier: Apache-2.0

package service

import "net/netip"

// FrontendKind is the origin of a frontend. The order of the kinds is that of claims: of several Services that claim a
// frontend, the one with the smaller kind gets it. The API server allocates ClusterIPs and node ports, and a load
// balancer controller assigns the load balancer's IPs. The author of a Service chooses external IPs freely.
type FrontendKind uint8

// The kinds.
const (
	ClusterIP FrontendKind = iota
	NodePort
	LoadBalancerIP
	ExternalIP
)

// String returns the name of the kind.
func (k FrontendKind) String() string {
	return [...]string{"ClusterIP", "NodePort", "LoadBalancerIP", "ExternalIP"}[k]
}

// Exposure is one frontend of a service port, with the policy that applies to it. All backends render the same exposures.
type Exposure struct {
	Frontend
	Kind FrontendKind
	// Local is set if the traffic policy that counts is Local.
	Local bool
	// To are the endpoints of clients from outside of the node, and Near those of its processes and pods. They differ
	// where externalTrafficPolicy is Local.
	To, Near []Endpoint
	// Refusal is the answer to clients from outside of the node if no endpoint serves them. It is NoEndpointsDefault if an
	// endpoint serves them.
	Refusal NoEndpoints
	// Allowed are the sources that may connect, nil for all. Denied are sources that may not.
	Allowed, Denied []netip.Prefix
}

// Exposures yields the frontends of a port: ClusterIP, external IPs, load balancer IPs, node port. The caller must not
// keep the yielded pointer. It yields an address of several kinds once per kind, with the same Allowed.
func (p *PortView) Exposures(yield func(*Exposure) bool) {
	internal := p.exposure(ClusterIP, p.InternalLocal, p.ServesInternal())
	if internal.Addr = p.ClusterIP; internal.Addr.IsValid() && !yield(&internal) {
		return
	}
	e := p.exposure(ExternalIP, p.ExternalLocal, p.ServesExternal())
	e.Near, e.Denied = p.Cluster, p.DenyRanges
	allowed, limited := p.AllowedSources(), p.limited()
	for _, e.Addr = range p.ExternalIPs {
		if e.Allowed = nil; limited[e.Addr] {
			e.Allowed = allowed
		}
		if !yield(&e) {
			return
		}
	}
	e.Kind, e.Allowed = LoadBalancerIP, allowed
	for _, e.Addr = range p.LoadBalancerVIPs {
		if !yield(&e) {
			return
		}
	}
	if p.NodePort != 0 {
		e.Frontend, e.Kind, e.Allowed = Frontend{Port: p.NodePort, Protocol: p.Protocol}, NodePort, nil
		yield(&e)
	}
}

// exposure returns the common part of the exposures of one traffic policy.
func (p *PortView) exposure(kind FrontendKind, local, served bool) Exposure {
	e := Exposure{Frontend: Frontend{Port: p.Port, Protocol: p.Protocol}, Kind: kind, Local: local, To: p.Cluster}
	if local {
		e.To = p.Local
	}
	if e.Near = e.To; !served {
		e.Refusal = p.Unserved()
	}
	return e
}

// limited returns the load balancer IPs if source ranges limit them. An external IP may be one of them.
func (p *PortView) limited() map[netip.Addr]bool {
	if len(p.SourceRanges) == 0 || len(p.ExternalIPs) == 0 {
		return nil
	}
	all := make(map[netip.Addr]bool, len(p.LoadBalancerVIPs))
	for _, addr := range p.LoadBalancerVIPs {
		all[addr] = true
	}
	return all
}
