package iptables

import (
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
