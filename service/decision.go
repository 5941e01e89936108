// SPDX-License-Identifier: Apache-2.0

package service

import "net/netip"

// Reason is why an endpoint gets new connections under one traffic policy, or gets none.
type Reason uint8

// The reasons; "it" is the endpoint. Those up to ChosenLocalTerminating choose it.
const (
	// ChosenReady: it is ready, and hints exclude no endpoint.
	ChosenReady Reason = iota
	// ChosenSameNode and ChosenSameZone: it is ready and hinted for this node or zone.
	ChosenSameNode
	ChosenSameZone
	// ChosenTerminating: no endpoint is ready, and it still serves while it terminates.
	ChosenTerminating
	// ChosenLocal: it is ready, on this node.
	ChosenLocal
	// ChosenLocalTerminating: no endpoint on this node is ready, and it still serves
	// there while it terminates.
	ChosenLocalTerminating

	// NotServing: it is neither ready nor serving.
	NotServing
	// NotReady: it serves and is not ready, and does not terminate.
	NotReady
	// ReadyOnesFirst: it still serves while it terminates, and others are ready.
	ReadyOnesFirst
	// OtherNodeHint and OtherZoneHint: its hints name other nodes or zones.
	OtherNodeHint
	OtherZoneHint
	// OtherNode: the policy is Local, and it runs on another node.
	OtherNode
	// WeightZero: its EndpointSlice has weight 0, and an endpoint of another weight is chosen.
	WeightZero
	// Suspect: it does not answer. At most half of the endpoints are left out for this reason.
	Suspect
	// Repeated: the same address and port occurs elsewhere, in a better condition or
	// earlier; only that occurrence counts.
	Repeated
	// NoSuchPort: its slice has no port with the service port's name and protocol.
	NoSuchPort
)

var reasonTexts = [...]struct{ name, text string }{
	ChosenReady:            {"ready", "ready"},
	ChosenSameNode:         {"same-node", "ready, and hinted for this node"},
	ChosenSameZone:         {"same-zone", "ready, and hinted for this zone"},
	ChosenTerminating:      {"terminating", "still serving while it terminates; no endpoint is ready"},
	ChosenLocal:            {"local", "ready, and on this node"},
	ChosenLocalTerminating: {"local-terminating", "still serving while it terminates; no endpoint on this node is ready"},
	NotServing:             {"not-serving", "neither ready nor serving"},
	NotReady:               {"not-ready", "not ready"},
	ReadyOnesFirst:         {"ready-ones-first", "terminating, and others are ready"},
	OtherNodeHint:          {"other-node-hint", "hinted for other nodes"},
	OtherZoneHint:          {"other-zone-hint", "hinted for other zones"},
	OtherNode:              {"other-node", "on another node, and the policy is Local"},
	WeightZero:             {"weight-zero", "weight 0, so that it drains"},
	Suspect:                {"suspect", "it does not answer, and others do"},
	Repeated:               {"repeated", "listed twice; the other entry counts"},
	NoSuchPort:             {"no-such-port", "its EndpointSlice lists no port of this name and protocol"},
}

// Chosen reports whether the endpoint gets new connections.
func (r Reason) Chosen() bool { return r <= ChosenLocalTerminating }

// String returns a short name for programs.
func (r Reason) String() string { return reasonTexts[r].name }

// Text returns the reason in words.
func (r Reason) Text() string { return reasonTexts[r].text }

// Decision is what Resolve decided about one entry of a slice behind a service port.
type Decision struct {
	Slice *Slice
	// Endpoint is the entry, and AddrPort its address with the port; the port is 0 for
	// NoSuchPort.
	Endpoint *SliceEndpoint
	AddrPort netip.AddrPort
	Local    bool
	// ByCluster and ByLocal are the reasons under the two policies. Each is valid if the port uses the policy.
	ByCluster, ByLocal Reason
}

// Decisions resolves one service port as Resolve does, and returns the view and the decision about each entry of the
// slices: in the order of the addresses, and then, in the order of the slices, the entries that are Repeated or have
// NoSuchPort. The family must have a ClusterIP.
func Decisions(spec *Spec, family Family, port int, from []*Slice, facts *NodeFacts) (PortView, []Decision) {
	view := spec.offered(family, port, facts, facts.externalIPs(spec, family))
	view.deny(spec.Denied[family])
	var all []Decision
	at := map[candidatePlace]int{}
	s := selection{spec: spec, trace: func(c *candidate, local bool, why Reason) {
		i, known := at[c.place()]
		if !known {
			i = len(all)
			at[c.place()] = i
			slice := from[c.slice]
			e := &slice.Endpoints[c.index]
			all = append(all, Decision{Slice: slice, Endpoint: e, Local: c.local,
				AddrPort: netip.AddrPortFrom(e.Addr, c.port)})
		}
		if local {
			all[i].ByLocal = why
		} else {
			all[i].ByCluster = why
		}
	}}
	s.observed = observedOf(from)
	s.gather(family, &spec.Ports[port], from, facts.Name)
	s.choose(&view, facts)
	for n, slice := range from {
		if slice.Family == family {
			all = append(all, leftOut(slice, int32(n), &spec.Ports[port], facts.Name, at)...)
		}
	}
	return view, all
}

// candidatePlace is where a candidate comes from.
type candidatePlace struct {
	slice, index int32
	port         uint16
}

func (c *candidate) place() candidatePlace { return candidatePlace{c.slice, c.index, c.port} }

// leftOut returns decisions about the entries of a slice that are not among the decided ones.
func leftOut(slice *Slice, n int32, port *Port, nodeName string, decided map[candidatePlace]int) (all []Decision) {
	add := func(i int, number uint16, why Reason) {
		e := &slice.Endpoints[i]
		all = append(all, Decision{Slice: slice, Endpoint: e, Local: isLocal(e, nodeName),
			AddrPort: netip.AddrPortFrom(e.Addr, number), ByCluster: why, ByLocal: why})
	}
	serves := false
	for p := range slice.Ports {
		if !slice.Ports[p].serves(port) {
			continue
		}
		serves = true
		for i := range slice.Endpoints {
			place := candidatePlace{n, int32(i), slice.Ports[p].Port}
			if _, known := decided[place]; !known {
				add(i, slice.Ports[p].Port, Repeated)
			}
		}
	}
	if !serves {
		for i := range slice.Endpoints {
			add(i, 0, NoSuchPort)
		}
	}
	return all
}
