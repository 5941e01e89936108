package iptables

import (
	"net/netip"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/dispatch"
	"github.com/sluice-proxy/sluice/service"
)

const (
	// commentNodePorts is kube-proxy's.
	commentNodePorts        = "kubernetes service nodeports; NOTE: this must be the last rule in this chain"
	commentRefusedNodePorts = "kubernetes service nodeports without endpoints"
	commentRefusedExternal  = "kubernetes externally-visible service portals without endpoints"
)

var (
	loopback4 = netip.MustParsePrefix("127.0.0.0/8")
	loopback6 = netip.MustParsePrefix("::1/128")
)

// nodePortTails gives the last rules of nat KUBE-SERVICES, which lead to the node
// ports on the addresses that serve them, and the same for those without
// endpoints. kube-proxy refuses the latter on every local address, and so hides
// services of the host where no node ports are offered.
func (r *Renderer) nodePortTails(facts *service.NodeFacts) []dataplane.Object {
	var objects []dataplane.Object
	tail := func(container dispatch.Container, name string, match rule, text, target string) {
		match.comment = comment{subject: text}
		match.target = target
		objects = append(objects, tailElement(container, name, match))
	}
	for _, m := range r.nodePortMatches(facts) {
		name := "node ports"
		if !facts.NodePorts[r.family].All {
			name += " " + m.destination.prefix.Addr().String()
		}
		tail(natServices, name, m, commentNodePorts, chainNodePorts)
		tail(filterExternal, name, m, commentRefusedNodePorts, chainExternalNodePorts)
	}
	return objects
}

// nodePortMatches gives the rules, still without comment and target, that
// together match the addresses on which node ports answer.
func (r *Renderer) nodePortMatches(facts *service.NodeFacts) []rule {
	ports := facts.NodePorts[r.family]
	localhost := r.localhostNodePorts(facts)
	if ports.All {
		match := rule{match: "-m addrtype --dst-type LOCAL"}
		switch {
		case r.family == service.IPv6:
			match.destination = addrMatch{prefix: loopback6, not: true}
		case !localhost:
			match.destination = addrMatch{prefix: loopback4, not: true}
		}
		return []rule{match}
	}
	var matches []rule
	for _, addr := range ports.Addresses {
		// Answers from a loopback address cannot leave the node's lo, unless
		// route_localnet is set, which IPv6 does not have.
		if !addr.IsLoopback() || localhost {
			matches = append(matches, rule{destination: host(addr)})
		}
	}
	return matches
}

// externalTail lets processes of this node, whose packets pass filter OUTPUT and
// never INPUT or FORWARD, be refused by external frontends without endpoints.
// kube-proxy lets such packets leave by the default route.
func externalTail() dataplane.Object {
	return tailElement(filterServices, "external", rule{
		comment: comment{subject: commentRefusedExternal},
		target:  chainExternal,
	})
}

func tailElement(container dispatch.Container, name string, r rule) dataplane.Object {
	return dataplane.Object{
		ID:   dataplane.ID{Container: container.Name(), Name: dispatch.TailKey(name)},
		Kind: dataplane.Element,
		Body: string(r.appendTo(nil)),
		Refs: []dataplane.ID{{Container: container.Table, Name: r.target}},
	}
}
