package service

import (
	"net/netip"
	"slices"
)

// Resolve decides how this node serves one Service: for each family and service
// port the frontends, and the endpoints of each traffic policy. A nil spec gives
// a view without ports.
//
// The slices are those of this Service, one per name; their order does not
// matter. Facts must not be nil. The view shares address lists with the spec,
// and equal endpoint lists with each other; nothing of it may be changed.
func Resolve(key Key, spec *Spec, from []*Slice, facts *NodeFacts) View {
	view := View{Key: key}
	if spec == nil {
		return view
	}
	view.Created = spec.Created
	view.HealthCheckNodePort = spec.HealthCheckNodePort
	view.Scheduling = spec.Scheduling
	var s selection
	for _, family := range Families {
		if !spec.ClusterIPs[family].IsValid() || len(spec.Ports) == 0 {
			continue
		}
		ports := make([]PortView, len(spec.Ports))
		s.readyLocal = s.readyLocal[:0]
		for i := range ports {
			ports[i] = frontends(spec, family, i, facts)
			s.gather(family, &spec.Ports[i], from, facts.Name)
			s.choose(&ports[i], facts)
			if spec.HealthCheckNodePort != 0 {
				s.noteReadyLocal()
			}
		}
		view.Ports[family] = ports
		view.ReadyLocal[family] = s.countReadyLocal()
	}
	return view
}

// frontends gives the part of a port's view that does not depend on endpoints.
func frontends(spec *Spec, family Family, i int, facts *NodeFacts) PortView {
	port := &spec.Ports[i]
	ranges := spec.SourceRanges[family]
	nodeIP := facts.NodeIPs[family]
	return PortView{
		Name:             port.Name,
		Protocol:         port.Protocol,
		Port:             port.Port,
		NodePort:         port.NodePort,
		ClusterIP:        spec.ClusterIPs[family],
		ExternalIPs:      spec.ExternalIPs[family],
		LoadBalancerVIPs: spec.LoadBalancerVIPs[family],
		SourceRanges:     ranges,
		NodeInSourceRanges: slices.ContainsFunc(ranges, func(r netip.Prefix) bool {
			return r.Contains(nodeIP)
		}),
		InternalLocal:   spec.InternalLocal,
		ExternalLocal:   spec.ExternalLocal,
		AffinitySeconds: spec.AffinitySeconds,
	}
}
