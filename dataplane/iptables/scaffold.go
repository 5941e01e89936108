package iptables

import (
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// fixedChains gives the chains that hold the same for every Service.
func (r *Renderer) fixedChains(facts *service.NodeFacts) []dataplane.Object {
	return []dataplane.Object{
		fixed(Mangle, chainCanary, nil),
		fixed(NAT, chainCanary, nil),
		fixed(NAT, chainMarkMasq, nil, "-j MARK --set-xmark "+r.mark),
		fixed(NAT, chainPostrouting, []dataplane.ID{{Container: string(NAT), Name: chainHairpin}}, r.postrouting()...),
		fixed(Filter, chainCanary, nil),
		fixed(Filter, chainForward, nil, r.forward()...),
		fixed(Filter, chainFirewall, nil, r.firewall(facts)...),
	}
}

func fixed(table Table, name string, refs []dataplane.ID, rules ...string) dataplane.Object {
	return dataplane.Object{
		ID:   dataplane.ID{Container: string(table), Name: name},
		Kind: dataplane.Owned,
		Body: strings.Join(rules, "\n"),
		Refs: refs,
	}
}

// postrouting masquerades what carries the mark. Endpoints that reach themselves
// are marked here, where the choice of endpoint is known, and not in a rule per
// endpoint.
func (r *Renderer) postrouting() []string {
	masquerade := `-m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE`
	if r.options.RandomFully {
		masquerade += " --random-fully"
	}
	bit, _, _ := strings.Cut(r.mark, "/")
	return []string{
		`-m conntrack --ctstate DNAT -m comment --comment "endpoints that reach themselves" -j ` + chainHairpin,
		"-m mark ! --mark " + r.mark + " -j RETURN",
		// Clears the bit, so that the packet is not masqueraded twice when a
		// tunnel sends it through this chain again.
		"-j MARK --set-xmark " + bit + "/0x0",
		masquerade,
	}
}

// forward accepts Service traffic where the policy of FORWARD is DROP. The
// kernel resets connections when a packet that conntrack could not place reaches
// a pod untranslated, hence the first rule.
func (r *Renderer) forward() []string {
	rules := []string{
		"-m conntrack --ctstate INVALID -j DROP",
		`-m comment --comment "kubernetes forwarding rules" -m mark --mark ` + r.mark + " -j ACCEPT",
		`-m comment --comment "kubernetes forwarding conntrack rule" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT`,
	}
	if r.options.InvalidDropOmitted {
		return rules[1:]
	}
	return rules
}

// firewall guards 127.0.0.0/8 against neighbours, which route_localnet would let
// in. The kubelet writes the same rule into the same chain; without localhost node
// ports the chain only has to exist (see Shared).
func (r *Renderer) firewall(facts *service.NodeFacts) []string {
	if !r.localhostNodePorts(facts) {
		return nil
	}
	return []string{
		`! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment "block incoming localnet connections"` +
			` -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP`,
	}
}

// localhostNodePorts tells whether node ports answer on 127.0.0.0/8.
func (r *Renderer) localhostNodePorts(facts *service.NodeFacts) bool {
	if r.family != service.IPv4 || !facts.LocalhostNodePorts {
		return false
	}
	if facts.NodePorts[r.family].All {
		return true
	}
	for _, addr := range facts.NodePorts[r.family].Addresses {
		if addr.IsLoopback() {
			return true
		}
	}
	return false
}
