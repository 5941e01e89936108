// SPDX-License-Identifier: Apache-2.0

package render

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/tree"
	"github.com/sluice-proxy/sluice/service"
)

// fixedChains returns the chains whose content depends on no Service.
func (r *Renderer) fixedChains(facts *service.NodeFacts) []dataplane.Object {
	return []dataplane.Object{
		FixedChain(Mangle, ChainCanary, nil),
		FixedChain(NAT, ChainCanary, nil),
		FixedChain(NAT, ChainMarkMasq, nil, "-j MARK --set-xmark "+r.mark),
		FixedChain(NAT, ChainPostrouting, []dataplane.ID{natChain(chainHairpin)}, r.postrouting()...),
		FixedChain(Filter, ChainCanary, nil),
		FixedChain(Filter, ChainForward, nil, r.forward()...),
		FixedChain(Filter, ChainFirewall, nil, r.firewall(facts)...),
	}
}

// FixedChain returns a chain whose rules are fixed.
func FixedChain(table Table, name string, refs []dataplane.ID, rules ...string) dataplane.Object {
	return dataplane.Object{
		ID: ChainID(table, name), Kind: dataplane.Owned, Body: strings.Join(rules, "\n"), Links: dataplane.LinkTo(refs...),
	}
}

// postrouting masquerades marked packets. Connections of an endpoint to itself are marked here, where the
// chosen endpoint is known, so that no rule per endpoint is needed in the service port's chains.
func (r *Renderer) postrouting() []string {
	masquerade := `-m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE`
	if r.options.RandomFully {
		masquerade += " --random-fully"
	}
	bit, _, _ := strings.Cut(r.mark, "/")
	return []string{
		`-m conntrack --ctstate DNAT -m comment --comment "endpoints that reach themselves" -j ` + chainHairpin,
		"-m mark ! --mark " + r.mark + " -j RETURN",
		// This rule clears the bit, so that the packet is not masqueraded twice if a tunnel sends
		// it through this chain again.
		"-j MARK --set-xmark " + bit + "/0x0",
		masquerade,
	}
}

// forward accepts Service traffic even if the policy of FORWARD is DROP. It drops INVALID packets because
// conntrack does not translate them: if such a packet reached a pod, the kernel would reset the
// connection. Most packets belong to a connection, so their rule comes first. The order has no other
// effect, because a packet has one state.
func (r *Renderer) forward() []string {
	established := `-m conntrack --ctstate RELATED,ESTABLISHED` +
		` -m comment --comment "kubernetes forwarding conntrack rule" -j ACCEPT`
	marked := "-m mark --mark " + r.mark + ` -m comment --comment "kubernetes forwarding rules" -j ACCEPT`
	if r.options.InvalidDropOmitted {
		return []string{established, marked}
	}
	invalid := "-m conntrack --ctstate INVALID "
	if r.options.Accounting {
		invalid += AccountMatch(AccountInvalid) + " "
	}
	return []string{established, invalid + "-j DROP", marked}
}

// firewallRule protects 127.0.0.0/8 from neighbors, whose packets route_localnet would let in. The
// kubelet writes the same rule into the same chain.
const firewallRule = `! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment "block incoming localnet connections"` +
	` -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP`

// firewall returns the rules of KUBE-FIREWALL. Without node ports on localhost the chain only has to exist
// (see Shared).
func (r *Renderer) firewall(facts *service.NodeFacts) []string {
	if !r.localhostNodePorts(facts) {
		return nil
	}
	return []string{firewallRule}
}

// Firewall returns a batch that protects 127.0.0.0/8 from neighbors, in any state of the tables (IPv4 only).
func Firewall() *dataplane.Batch {
	objects := []dataplane.Object{FixedChain(Filter, ChainFirewall, nil, firewallRule)}
	for _, hook := range HookRows() {
		if hook.Target == ChainFirewall {
			objects = append(objects, hook.Object())
		}
	}
	batch := &dataplane.Batch{}
	for i := range objects {
		batch.Changes = append(batch.Changes, dataplane.Change{ID: objects[i].ID, After: &objects[i], Owner: service.Node, Unsure: true})
	}
	return batch
}

// localhostNodePorts reports whether node ports answer on 127.0.0.0/8.
func (r *Renderer) localhostNodePorts(facts *service.NodeFacts) bool {
	on := facts.NodePorts[r.family]
	return r.family == service.IPv4 && facts.LocalhostNodePorts &&
		(on.All || slices.ContainsFunc(on.Addresses, netip.Addr.IsLoopback))
}

const (
	// commentNodePorts is the same as in kube-proxy.
	commentNodePorts         = "kubernetes service nodeports; NOTE: this must be the last rule in this chain"
	commentRejectedNodePorts = "kubernetes service nodeports without endpoints"
	commentRejectedExternal  = "kubernetes externally-visible service portals without endpoints"
)

var (
	loopback4 = netip.MustParsePrefix("127.0.0.0/8")
	loopback6 = netip.MustParsePrefix("::1/128")
)

// nodePortTails returns the last rules of nat KUBE-SERVICES, which jump to the node ports on the
// addresses that serve them, and similar rules for node ports without endpoints. kube-proxy rejects
// node ports without endpoints on every local address, which blocks services of the host on addresses
// without node ports.
func (r *Renderer) nodePortTails(facts *service.NodeFacts) []dataplane.Object {
	var objects []dataplane.Object
	tail := func(container tree.Container, name string, match rule, text, target string) {
		match.comment = comment{subject: text}
		match.target = target
		objects = append(objects, tailElement(container, name, match))
	}
	all := facts.NodePorts[r.family].All
	for _, m := range r.nodePortMatches(facts) {
		name := "node ports"
		if !all {
			name += " " + m.destination.prefix.Addr().String()
			tail(filterExternal, name, m, commentRejectedNodePorts, chainExternalNodePorts)
		}
		tail(natServices, name, m, commentNodePorts, ChainNodePorts)
	}
	if all {
		tail(filterExternal, "node ports", rule{}, commentRejectedNodePorts, chainExternalNodePorts)
	}
	return objects
}

// rejectedNodePort returns the matches of a rule that rejects a node port. To check whether an address is
// local, the kernel looks up a route. Each of these rules therefore does so for its own port, and not the
// rule that jumps to them, which every new connection of the node passes.
func (r *Renderer) rejectedNodePort(facts *service.NodeFacts, protocol string, port uint16) rule {
	var match rule
	if facts.NodePorts[r.family].All {
		match = r.nodePortMatches(facts)[0]
	}
	match.protocol, match.port = protocol, port
	return match
}

// nodePortMatches returns the rules, without comment and target, that together match the
// addresses on which node ports answer.
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
		// Replies from a loopback address cannot leave the node's lo without route_localnet,
		// which IPv6 does not have.
		if !addr.IsLoopback() || localhost {
			matches = append(matches, rule{destination: host(addr)})
		}
	}
	return matches
}

// externalTail rejects packets of this node's processes to external frontends without endpoints: they
// pass filter OUTPUT, but not INPUT or FORWARD. kube-proxy lets such packets leave by the default
// route.
func externalTail() dataplane.Object {
	return tailElement(filterServices, "external", rule{
		comment: comment{subject: commentRejectedExternal},
		target:  ChainExternal,
	})
}

func tailElement(container tree.Container, name string, r rule) dataplane.Object {
	return dataplane.Object{
		ID:    dataplane.ID{Container: container.Name(), Name: tree.TailKey(name)},
		Kind:  dataplane.Element,
		Body:  string(r.appendTo(nil)),
		Links: dataplane.LinkTo(dataplane.ID{Container: container.Table, Name: r.target}),
	}
}
