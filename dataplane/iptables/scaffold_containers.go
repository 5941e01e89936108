package iptables

import (
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/dispatch"
	"github.com/sluice-proxy/sluice/service"
)

// The dispatch containers: the chains in which Services meet.
var (
	// natServices translates by destination.
	natServices = dispatch.Container{Table: string(NAT), Chain: chainServices, Letter: 'S'}
	// natNodePorts translates by node port.
	natNodePorts = dispatch.Container{Table: string(NAT), Chain: chainNodePorts, Letter: 'N', Shape: dispatch.ByPort}
	// natHairpin marks endpoints that reach themselves.
	natHairpin = dispatch.Container{Table: string(NAT), Chain: chainHairpin, Letter: 'H', Shape: dispatch.BySource}
	// filterServices refuses at ClusterIPs without endpoints.
	filterServices = dispatch.Container{Table: string(Filter), Chain: chainServices, Letter: 'R'}
	// filterExternal refuses at external IPs and load balancer VIPs.
	filterExternal = dispatch.Container{Table: string(Filter), Chain: chainExternal, Letter: 'X'}
	// filterNodePorts refuses at node ports.
	filterNodePorts = dispatch.Container{Table: string(Filter), Chain: chainExternalNodePorts, Letter: 'P', Shape: dispatch.ByPort}
	// filterFirewall drops what the source ranges did not admit.
	filterFirewall = dispatch.Container{Table: string(Filter), Chain: chainProxyFirewall, Letter: 'F'}
	// filterHealth accepts health checks.
	filterHealth = dispatch.Container{Table: string(Filter), Chain: chainNodePorts, Letter: 'C', Shape: dispatch.ByPort}
)

// Containers gives the dispatch containers of a family's tables.
func Containers() []dispatch.Container {
	return []dispatch.Container{
		natServices, natNodePorts, natHairpin,
		filterServices, filterExternal, filterNodePorts, filterFirewall, filterHealth,
	}
}

// NewLayout makes the layout that folds this package's elements into chains.
func NewLayout(family service.Family) *dispatch.Layout {
	return dispatch.New(family, Containers())
}

// frontendShapes holds the containers with one tree element for each frontend that is
// served or refused, and what their keys hold. The other containers' elements come
// along with one of these, or belong to several Services.
var frontendShapes = map[string]dispatch.Shape{
	natServices.Name():     natServices.Shape,
	natNodePorts.Name():    natNodePorts.Shape,
	filterServices.Name():  filterServices.Shape,
	filterExternal.Name():  filterExternal.Shape,
	filterNodePorts.Name(): filterNodePorts.Shape,
}

// Naming reads the identities of this backend's elements. Nothing goes with an element:
// all else of a frontend is in the chain that it jumps to, which is named after the
// Service. It allocates nothing.
type Naming struct{}

// Naming implements dataplane.Renderer.
func (r *Renderer) Naming() dataplane.Naming { return Naming{} }

// Frontend implements dataplane.Naming.
func (Naming) Frontend(id dataplane.ID) (dataplane.Frontend, bool) {
	shape, known := frontendShapes[id.Container]
	if !known {
		return dataplane.Frontend{}, false
	}
	key, err := dispatch.DecodeKey(id.Name)
	if err != nil || !key.HasPort || key.Addr.IsValid() != (shape == dispatch.ByDestination) {
		return dataplane.Frontend{}, false
	}
	return dataplane.Frontend{Addr: key.Addr, Port: key.Port, Protocol: key.Protocol}, true
}

// Lead implements dataplane.Naming.
func (Naming) Lead(dataplane.ID) (lead dataplane.ID, ok bool) { return lead, false }

// Leads implements dataplane.Naming.
func (Naming) Leads(dataplane.ID) bool { return false }

// LedLead implements dataplane.Naming.
func (Naming) LedLead(dataplane.ID) (lead dataplane.ID, ok bool) { return lead, false }
