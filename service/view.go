package service

import (
	"slices"
	"time"
)

// View is one Service as this node should serve it: frontends, and for each
// traffic policy the endpoints to use, with topology and termination already
// decided. It is a pure function of spec, slices and node facts, and does not
// depend on the order in which slices arrived. Two equal views render to equal
// fragments.
type View struct {
	Key Key
	// Created is the Service's creation time; it decides claims.
	Created time.Time
	// Ports holds the service ports of each family in API order; a family
	// without a ClusterIP has none. No ports at all means that the Service has
	// no rules on this node.
	Ports PerFamily[[]PortView]
	// HealthCheckNodePort is 0 when the Service opens none. It is opened in
	// the families that have Ports; see HealthPort.
	HealthCheckNodePort uint16
	// Scheduling is how connections are to be spread, in backends that can choose.
	Scheduling Scheduling
	// ReadyLocal is the number of distinct endpoint addresses of each family
	// that are local and ready, over all ports: what the health-check node
	// port reports. It is not counted, and 0, without a HealthCheckNodePort.
	ReadyLocal PerFamily[int]
}

// Equal tells whether two views are the same to every renderer and follow-up.
// Two nil views are equal.
func (v *View) Equal(other *View) bool {
	if v == nil || other == nil {
		return v == other
	}
	for _, family := range Families {
		if !slices.EqualFunc(v.Ports[family], other.Ports[family], equalPorts) {
			return false
		}
	}
	return v.Key == other.Key && v.Created.Equal(other.Created) &&
		v.HealthCheckNodePort == other.HealthCheckNodePort &&
		v.Scheduling == other.Scheduling &&
		v.ReadyLocal == other.ReadyLocal
}

// HealthPort is the health-check node port to open in a family, or 0. A family
// in which the Service has no port is not served, health checks included.
func (v *View) HealthPort(family Family) uint16 {
	if len(v.Ports[family]) == 0 {
		return 0
	}
	return v.HealthCheckNodePort
}

// Removes tells whether some endpoint that new connections could reach in
// previous is out of reach in v, through the same service port. Such a change
// must not wait: a dead endpoint hurts more than a missing new one. A nil
// previous reached nothing.
func (v *View) Removes(previous *View) bool {
	if previous == nil {
		return false
	}
	for _, family := range Families {
		for i := range previous.Ports[family] {
			before := previous.Ports[family][i].Reachable()
			if len(before) == 0 {
				continue
			}
			now := v.port(family, i, &previous.Ports[family][i])
			if now == nil || !subset(before, now.Reachable()) {
				return true
			}
		}
	}
	return false
}

// port finds the service port that is called like wanted, trying position i
// first, since ports seldom move.
func (v *View) port(family Family, i int, wanted *PortView) *PortView {
	ports := v.Ports[family]
	if i < len(ports) && ports[i].sameIdentity(wanted) {
		return &ports[i]
	}
	for i := range ports {
		if ports[i].sameIdentity(wanted) {
			return &ports[i]
		}
	}
	return nil
}
