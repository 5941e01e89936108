package metrics

import (
	"github.com/sluice-proxy/sluice/service"
)

// Programmed takes note of how a Service is served in one family. It implements
// proxy.Follower.
func (m *Metrics) Programmed(family service.Family, view service.View) {
	m.owners.put(family, view.Key, view.Ports[family])
	endpoints, lacking := countEndpoints(view.Ports[family])
	m.roster.update(view.Key, func(r *record) {
		r.served[family] = len(view.Ports[family]) > 0
		r.endpoints[family] = endpoints
		// Inside the lock, so that the end of the actor takes back exactly what
		// was put in.
		m.unserved[family].replace(r.unserved[family], lacking)
		r.unserved[family] = lacking
	})
}

// endpointCounts are the endpoints of a Service in one family: addresses and ports,
// summed over its service ports.
type endpointCounts struct {
	// local and remote may be sent new connections: ready ones, or, when none
	// is, those that still serve while they terminate.
	local, remote uint32
	// established may only keep the flows that they have (UDP, where it
	// matters).
	established uint32
}

func countEndpoints(ports []service.PortView) (endpoints endpointCounts, lacking unserved) {
	for i := range ports {
		p := &ports[i]
		reachable := p.Reachable()
		for j := range reachable {
			if reachable[j].Local {
				endpoints.local++
			} else {
				endpoints.remote++
			}
		}
		endpoints.established += uint32(max(0, len(p.Serving)-len(reachable)))
		lacking.note(p)
	}
	return endpoints, lacking
}
