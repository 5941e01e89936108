package ipvs

import (
	"github.com/sluice-proxy/sluice/dataplane/ipvs/genl"
	"github.com/sluice-proxy/sluice/service"
)

// head is the first line of the bodies of a port's virtual servers.
func (r *Renderer) head(wish service.Scheduling, view *service.PortView) string {
	if wish.Scheduler == "" {
		// The flag of mh is kube-proxy's choice; without it, all connections of a
		// client go to one endpoint.
		wish = service.Scheduling{Scheduler: r.options.Scheduler, Ports: r.options.Scheduler == "mh"}
	}
	s := Server{Service: genl.Service{Scheduler: wish.Scheduler}}
	if wish.Fallback {
		s.Flags |= genl.SchedulerFlag1
	}
	if wish.Ports {
		s.Flags |= genl.SchedulerFlag2
	}
	if view.AffinitySeconds > 0 {
		s.Flags |= genl.Persistent
		s.Timeout = uint32(view.AffinitySeconds)
	}
	return string(s.appendHead(nil))
}

// internalEndpoints are those of the ClusterIP, and whether endpoints of this node
// alone may be among them.
func (p *portDraft) internalEndpoints() (endpoints []service.Endpoint, localOnly bool) {
	if p.InternalLocal {
		return p.Local, true
	}
	return p.Cluster, false
}

// externalEndpoints are those of all other frontends. Where only endpoints of this
// node are wanted and there is none, local pods are still served by the others;
// those from outside are dropped by a rule.
func (p *portDraft) externalEndpoints() (endpoints []service.Endpoint, localOnly bool) {
	if p.ExternalLocal && len(p.Local) > 0 {
		return p.Local, false
	}
	return p.Cluster, false
}

// reals gives the lines of a virtual server's body for its endpoints, and for those
// that only keep connections.
func (p *portDraft) reals(endpoints []service.Endpoint, localOnly bool) string {
	draining := p.Draining
	reals := make([]Real, 0, len(endpoints)+len(draining))
	for _, e := range endpoints {
		for len(draining) > 0 && draining[0].Compare(e) < 0 {
			reals = appendDraining(reals, draining[0], localOnly)
			draining = draining[1:]
		}
		if len(draining) > 0 && draining[0].AddrPort == e.AddrPort {
			draining = draining[1:]
		}
		reals = append(reals, Real{Addr: e.AddrPort, Weight: 1})
	}
	for _, e := range draining {
		reals = appendDraining(reals, e, localOnly)
	}
	return string(appendReals(make([]byte, 0, 32*len(reals)), reals))
}

func appendDraining(reals []Real, e service.Endpoint, localOnly bool) []Real {
	if localOnly && !e.Local {
		return reals
	}
	return append(reals, Real{Addr: e.AddrPort})
}
