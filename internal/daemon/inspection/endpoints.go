// SPDX-License-Identifier: Apache-2.0

package inspection

import (
	"context"
	"net/netip"
	"slices"

	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/service"
)

// Endpoints returns the endpoints of a Service, and what decided about each.
func (i *Inspection) Endpoints(_ context.Context, key service.Key) *inspect.EndpointList {
	known, facts := i.Proxy.Snapshot(key), i.Proxy.Facts()
	if known.Spec == nil {
		return nil
	}
	made := &inspect.EndpointList{
		Namespace: key.Namespace, Name: key.Name, Node: facts.Name, Zone: facts.Zone, Ports: []inspect.EndpointPort{},
	}
	for _, family := range service.Families {
		if !known.Spec.ClusterIPs[family].IsValid() {
			continue
		}
		for n := range known.Spec.Ports {
			view, decisions := service.Decisions(known.Spec, family, n, known.Slices, facts)
			made.Ports = append(made.Ports, endpointPort(&known.Spec.Ports[n], family, &view, decisions))
		}
	}
	return made
}

func endpointPort(port *service.Port, family service.Family, view *service.PortView, decisions []service.Decision) inspect.EndpointPort {
	made := inspect.EndpointPort{
		Port: portOf(port), Family: family.String(), Internal: ruleOf(view, view.InternalLocal), Endpoints: []inspect.Endpoint{},
	}
	if view.ExternallyAccessible() {
		made.External = new(ruleOf(view, view.ExternalLocal))
	}
	listed := min(len(decisions), inspect.EndpointsMax)
	made.Omitted = len(decisions) - listed
	for d := range decisions[:listed] {
		made.Endpoints = append(made.Endpoints, endpointOf(&decisions[d], view))
	}
	return made
}

// ruleOf describes how a policy chose the endpoints of a port.
func ruleOf(view *service.PortView, local bool) inspect.Rule {
	rule := inspect.Rule{Policy: policy(local), Chosen: len(view.Cluster)}
	switch {
	case local && len(view.Local) == 0 && view.HasAny:
		rule.Rule = "no usable endpoint on this node: dropped"
	case !view.HasAny:
		rule.Rule = "no usable endpoint anywhere: refused"
	case local:
		rule.Rule = "ready on this node, or still serving there if none is ready"
	default:
		rule.Rule = map[service.Topology]string{
			service.TopologyNone:        "every ready endpoint",
			service.TopologySameNode:    "ready and hinted for this node",
			service.TopologySameZone:    "ready and hinted for this zone",
			service.TopologyTerminating: "still serving while terminating, since none is ready",

			service.TopologyZoneTooSmall: "every ready endpoint, since few are hinted for this zone",
			service.TopologyZoneShare:    "every ready endpoint, with a share for those hinted for this zone",
		}[view.Topology]
	}
	if local {
		rule.Chosen = len(view.Local)
	}
	return rule
}

func endpointOf(d *service.Decision, view *service.PortView) inspect.Endpoint {
	e, where := d.Endpoint, d.Endpoint.Where()
	made := inspect.Endpoint{
		Address: d.AddrPort.String(), Slice: d.Slice.Name, Node: where.NodeName, Zone: where.Zone, Local: d.Local,
		Ready: e.Ready, Serving: e.Serving, Terminating: e.Terminating, ForZones: where.ForZones, ForNodes: where.ForNodes,
		Internal: decisionOf(d, view, view.InternalLocal),
	}
	if d.AddrPort.Port() == 0 {
		made.Address = d.AddrPort.Addr().String()
	}
	if view.ExternallyAccessible() {
		made.External = decisionOf(d, view, view.ExternalLocal)
	}
	return made
}

func decisionOf(d *service.Decision, view *service.PortView, local bool) *inspect.Decision {
	why, chosen := d.ByCluster, view.Cluster
	if local {
		why, chosen = d.ByLocal, view.Local
	}
	made := &inspect.Decision{Chosen: why.Chosen(), Rule: why.String(), Why: why.Text()}
	if made.Chosen && service.Weighted(chosen) {
		at, found := slices.BinarySearchFunc(chosen, d.AddrPort, func(e service.Endpoint, a netip.AddrPort) int { return e.AddrPort.Compare(a) })
		if found {
			made.Share = float64(chosen[at].Share()) / float64(service.TotalShare(chosen))
		}
	}
	return made
}
