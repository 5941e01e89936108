package nftables

import (
	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// Priorities of the base chains, as kube-proxy has them.
const (
	priorityDNAT    = -100
	priorityPreDNAT = priorityDNAT - 10
	priorityFilter  = 0
	prioritySNAT    = 100
)

// Node renders the scaffold: the table, the shared sets, the base chains, the
// fixed chains, and what hangs on node facts.
func (r *Renderer) Node(facts *service.NodeFacts) []dataplane.Object {
	objects := []dataplane.Object{tableObject()}
	for _, s := range sharedSets {
		objects = append(objects, s.object(r.d))
	}
	for _, c := range r.baseChains() {
		objects = append(objects, c.object())
	}
	for _, c := range []*chain{
		r.servicesChain(facts), r.serviceCheck(), r.nodePortCheck(facts),
		r.clusterIPsCheck(facts), r.firewallCheck(), r.masquerading(),
		newChain(chainReject).add(newRule(r.d).reject()),
	} {
		objects = append(objects, c.object())
	}
	return append(objects, r.nodePortAddresses(facts)...)
}

// tableObject is the table itself: not dormant.
func tableObject() dataplane.Object {
	return dataplane.Object{ID: tableID, Kind: dataplane.Owned, Body: string(netlink.AppendUint32(nil, unix.NFTA_TABLE_FLAGS, 0))}
}

// baseChains are those that packets come to by themselves.
func (r *Renderer) baseChains() []*chain {
	onNew := func(name string, hookNumber uint32, priority int32, targets ...string) *chain {
		c := newBaseChain(name, hook{"filter", hookNumber, priority})
		for _, to := range targets {
			c.add(newRule(r.d).ct(unix.NFT_CT_STATE, stateNew).jump(to)).needs(chainID(to))
		}
		return c
	}
	always := func(name string, hookNumber uint32, priority int32, to string) *chain {
		return newBaseChain(name, hook{"nat", hookNumber, priority}).add(newRule(r.d).jump(to)).needs(chainID(to))
	}
	return []*chain{
		onNew(chainFilterPreroutingPreDNAT, unix.NF_INET_PRE_ROUTING, priorityPreDNAT, chainFirewallCheck),
		onNew(chainFilterOutputPreDNAT, unix.NF_INET_LOCAL_OUT, priorityPreDNAT, chainFirewallCheck),
		onNew(chainFilterInput, unix.NF_INET_LOCAL_IN, priorityFilter, chainNodePortCheck, chainServiceCheck),
		onNew(chainFilterForward, unix.NF_INET_FORWARD, priorityFilter, chainServiceCheck, chainClusterIPsCheck),
		onNew(chainFilterOutput, unix.NF_INET_LOCAL_OUT, priorityFilter, chainServiceCheck, chainClusterIPsCheck),
		always(chainNATPrerouting, unix.NF_INET_PRE_ROUTING, priorityDNAT, chainServices),
		always(chainNATOutput, unix.NF_INET_LOCAL_OUT, priorityDNAT, chainServices),
		always(chainNATPostrouting, unix.NF_INET_POST_ROUTING, prioritySNAT, chainMasquerading),
	}
}

// servicesChain dispatches by frontend.
func (r *Renderer) servicesChain(facts *service.NodeFacts) *chain {
	d := r.d
	c := newChain(chainServices).needs(setID(mapFrontends), setID(mapNodePorts), setID(setNodePortAddresses), setID(setClusterIPs))
	toClusterIP := newRule(d).fields([]field{fieldDaddr}).in(setClusterIPs, false)
	if !facts.MasqueradeAll {
		if detect := facts.Detect[d.family]; detect.Configured() {
			toClusterIP = matchLocal(toClusterIP, detect, true)
		} else {
			toClusterIP = nil
		}
	}
	if toClusterIP != nil {
		c.add(toClusterIP.mark(r.mark).says("masquerade traffic to ClusterIPs"))
	}
	c.add(newRule(d).fields(frontendKey).vmap(mapFrontends))
	toNode := newRule(d)
	if facts.NodePorts[d.family].All {
		toNode.local(fieldDaddr)
	}
	return c.add(r.onNodePortAddress(toNode, facts).fields(nodePortKey).vmap(mapNodePorts))
}

// onNodePortAddress narrows a rule to packets to addresses that node ports
// answer on. They never do on the loopback interface.
func (r *Renderer) onNodePortAddress(to *rule, facts *service.NodeFacts) *rule {
	if facts.NodePorts[r.d.family].All {
		return to.within(fieldDaddr, r.d.loopback, true)
	}
	return to.fields([]field{fieldDaddr}).in(setNodePortAddresses, false)
}

// nodePortAddresses are the elements that list them.
func (r *Renderer) nodePortAddresses(facts *service.NodeFacts) []dataplane.Object {
	on := facts.NodePorts[r.d.family]
	if on.All {
		return nil
	}
	var objects []dataplane.Object
	for _, addr := range on.Addresses {
		if addr.IsLoopback() {
			continue
		}
		objects = append(objects, dataplane.Object{
			ID:   dataplane.ID{Container: elementsOf + setNodePortAddresses, Name: string(appendAddr(nil, addr))},
			Kind: dataplane.Element, Refs: []dataplane.ID{setID(setNodePortAddresses)},
		})
	}
	return objects
}

// serviceCheck ends connections to frontends that nobody serves.
func (r *Renderer) serviceCheck() *chain {
	d := r.d
	return newChain(chainServiceCheck).
		needs(setID(setNoEndpoints), setID(setNoLocal), chainID(chainReject)).
		add(newRule(d).fields(frontendKey).in(setNoEndpoints, false).goTo(chainReject)).
		add(newRule(d).fields(frontendKey).in(setNoLocal, false).drop())
}

// nodePortCheck does the same for node ports.
func (r *Renderer) nodePortCheck(facts *service.NodeFacts) *chain {
	on := func() *rule { return r.onNodePortAddress(newRule(r.d), facts).fields(nodePortKey) }
	return newChain(chainNodePortCheck).
		needs(setID(setNodePortNone), setID(setNodePortNoLocal), setID(setNodePortAddresses), chainID(chainReject)).
		add(on().in(setNodePortNone, false).goTo(chainReject)).
		add(on().in(setNodePortNoLocal, false).drop())
}

// clusterIPsCheck ends connections to ClusterIPs that were not translated.
func (r *Renderer) clusterIPsCheck(facts *service.NodeFacts) *chain {
	c := newChain(chainClusterIPsCheck).needs(setID(setClusterIPs)).
		add(newRule(r.d).fields([]field{fieldDaddr}).in(setClusterIPs, false).reject().
			says("Reject traffic to invalid ports of ClusterIPs"))
	for _, cidr := range facts.ServiceCIDRs[r.d.family] {
		to := newRule(r.d)
		if cidr.Bits() > 0 {
			to.within(fieldDaddr, cidr, false)
		}
		c.add(to.drop().says("Drop traffic to unallocated ClusterIPs"))
	}
	return c
}

// firewallCheck drops what source ranges do not allow.
func (r *Renderer) firewallCheck() *chain {
	return newChain(chainFirewallCheck).needs(setID(setFirewalled), setID(setAllowed)).
		add(newRule(r.d).fields(frontendKey).in(setFirewalled, false).
			fields([]field{fieldDaddr, fieldProtocol, fieldPort, fieldSaddr}).in(setAllowed, true).drop())
}

// masquerading gives marked packets and hairpins an address of this node.
func (r *Renderer) masquerading() *chain {
	return newChain(chainMasquerading).needs(setID(setHairpins)).
		add(newRule(r.d).marked(r.mark).unmark(r.mark).masquerade()).
		add(newRule(r.d).ct(unix.NFT_CT_STATUS, statusDNAT).
			fields([]field{fieldSaddr, fieldDaddr, fieldProtocol, fieldPort}).in(setHairpins, false).masquerade())
}
