package sim

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane/memory"
	"github.com/sluice-proxy/sluice/service"
)

// judge tells what has to become of packets, by the views of the Services alone;
// it knows no rules.
type judge struct {
	family service.Family
	// facts are those that hold for the node now.
	facts *service.NodeFacts
	hosts []netip.Addr
	// served are ordered as claims are decided.
	served   []served
	hairpins map[netip.Addr]bool
}

func newJudge(family service.Family, facts *service.NodeFacts, hosts []netip.Addr, all []served) *judge {
	j := &judge{family: family, facts: facts, hosts: hosts, hairpins: map[netip.Addr]bool{},
		served: slices.SortedFunc(slices.Values(all), older)}
	for i := range j.served {
		for _, p := range j.served[i].view.Ports[family] {
			for _, e := range p.Reachable() {
				if e.Local || (p.ExternalLocal && p.ExternallyAccessible()) {
					j.hairpins[e.AddrPort.Addr()] = true
				}
			}
		}
	}
	return j
}

// entry is how a packet comes to a service port.
type entry uint8

const (
	byClusterIP entry = iota
	byExternalIP
	byVIP
	byNodePort
)

// claimant is a service port that answers at a packet's destination.
type claimant struct {
	*service.PortView
	facts *service.NodeFacts
	by    entry
}

// fate decides about a packet.
func (j *judge) fate(p memory.Packet) fate {
	claimants := j.claimants(p, false)
	if len(claimants) == 0 && j.answersNodePorts(p.Dst.Addr()) {
		claimants = j.claimants(p, true)
	}
	if len(claimants) == 0 {
		return untouched
	}
	// Who has no endpoints at all translates nothing, so the next one may.
	at := slices.IndexFunc(claimants, func(c claimant) bool { return c.HasAny })
	if at < 0 {
		return rejected
	}
	f := j.serve(p, claimants[at])
	f.either = len(claimants) > 1
	f.hairpins = j.hairpins
	return f
}

// claimants gives the ports that answer, the winner of the claim first.
func (j *judge) claimants(p memory.Packet, nodePorts bool) (all []claimant) {
	for i := range j.served {
		s := &j.served[i]
		for k := range s.view.Ports[j.family] {
			port := &s.view.Ports[j.family][k]
			c := claimant{PortView: port, facts: s.state.facts}
			if port.Protocol != p.Protocol {
				continue
			}
			switch to := p.Dst.Addr(); {
			case nodePorts:
				if c.by = byNodePort; port.NodePort == p.Dst.Port() {
					all = append(all, c)
				}
				continue
			case port.Port != p.Dst.Port():
				continue
			case to == port.ClusterIP:
				c.by = byClusterIP
			case slices.Contains(port.ExternalIPs, to):
				c.by = byExternalIP
			case slices.Contains(port.LoadBalancerVIPs, to):
				c.by = byVIP
			default:
				continue
			}
			all = append(all, c)
		}
	}
	return all
}

// answersNodePorts tells whether node ports answer on an address.
func (j *judge) answersNodePorts(a netip.Addr) bool {
	served := j.facts.NodePorts[j.family]
	switch {
	case !served.All:
		return slices.Contains(served.Addresses, a)
	case a.IsLoopback():
		return a.Is4() && j.facts.LocalhostNodePorts
	default:
		return j.local(a)
	}
}

func (j *judge) local(a netip.Addr) bool { return a.IsLoopback() || slices.Contains(j.hosts, a) }

// serve decides about a packet for a port that has endpoints.
func (j *judge) serve(p memory.Packet, c claimant) fate {
	detect := c.facts.Detect[j.family]
	pod := detected(detect, p)
	if c.by == byClusterIP {
		endpoints := c.Cluster
		if c.InternalLocal {
			endpoints = c.Local
		}
		return deliver(endpoints, c.facts.MasqueradeAll || (detect.Configured() && !pod))
	}
	if c.by == byVIP && !admitted(c, p.Src.Addr()) {
		return dropped
	}
	switch {
	case !c.ExternalLocal:
		return deliver(c.Cluster, true)
	case pod:
		return deliver(c.Cluster, false)
	case j.local(p.Src.Addr()):
		return deliver(c.Cluster, true)
	default:
		return deliver(c.Local, false)
	}
}

// detected tells whether a packet is recognised as that of a local pod.
func detected(d service.LocalDetector, p memory.Packet) bool {
	if d.CIDR.IsValid() {
		return d.CIDR.Contains(p.Src.Addr())
	}
	if prefix, isPrefix := strings.CutSuffix(d.Interface, "+"); isPrefix {
		return strings.HasPrefix(p.In, prefix)
	}
	return d.Interface != "" && p.In == d.Interface
}

// admitted tells whether the source ranges let a sender in.
func admitted(c claimant, from netip.Addr) bool {
	if len(c.SourceRanges) == 0 {
		return true
	}
	return slices.ContainsFunc(c.SourceRanges, func(r netip.Prefix) bool { return r.Contains(from) }) ||
		(c.NodeInSourceRanges && slices.Contains(c.LoadBalancerVIPs, from))
}
