// SPDX-License-Identifier: Apache-2.0

package render

import (
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// rule joins the parts of a rule as iptables-save (1.8.9, both variants) prints it after
// "-A CHAIN ". It leaves out empty parts. The caller passes them in the order of the tool: addresses,
// input interface and protocol first, then the other matches in any order, then the target.
func rule(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), " ")
}

// comment returns a comment match. The tools do not quote a single plain word, but all comments here
// contain spaces.
func comment(text string) string { return `-m comment --comment "` + text + `"` }

// chain returns a chain with its rules. It refers to the chains to which the rules jump and to the
// sets that they look up.
func chain(table, name string, rules ...string) dataplane.Object {
	o := dataplane.Object{
		ID:   dataplane.ID{Container: table, Name: name},
		Kind: dataplane.Owned,
		Body: strings.Join(rules, "\n"),
	}
	for _, text := range rules {
		o.Links = dataplane.LinkTo(appendRefs(o.Refs(), table, text)...)
	}
	return o
}

// appendRefs appends the sets and chains that a rule needs, unless they are in the list.
func appendRefs(refs []dataplane.ID, table, text string) []dataplane.ID {
	words := strings.Fields(text)
	for i := 1; i < len(words); i++ {
		var ref dataplane.ID
		switch {
		case words[i-1] == "--match-set":
			ref = SetID(words[i])
		case words[i-1] == "-j" && strings.HasPrefix(words[i], "KUBE-"):
			ref = dataplane.ID{Container: table, Name: words[i]}
		default:
			continue
		}
		if !slices.Contains(refs, ref) {
			refs = append(refs, ref)
		}
	}
	return refs
}

const (
	toMark   = "-j " + chainMarkMasq
	toAccept = "-j ACCEPT"
	toReturn = "-j RETURN"
	// toLocal matches destinations that are addresses of the node.
	toLocal = "-m addrtype --dst-type LOCAL"
)

// loopbacks are the sources whose packets the rules of nat ignore.
var loopbacks = service.PerFamily[string]{"127.0.0.0/8", "::1/128"}

// abouts are the comments of rules by the words in the names of the sets that they look up.
var abouts = func() map[string]string {
	texts := make(map[string]string, len(kinds))
	for _, k := range kinds {
		texts[k.name] = k.about
	}
	return texts
}()

// in returns a match for the entries of a set. Where defines which parts of the packet are looked up,
// for example "dst,dst": destination address and port.
func (r *Renderer) in(set, where string) string {
	return comment(abouts[set]) + " -m set --match-set " + r.sets[set].name + " " + where
}

// natChains returns the chains that decide which packets are masqueraded, before IPVS translates them.
func (r *Renderer) natChains(facts *service.NodeFacts) []dataplane.Object {
	return []dataplane.Object{
		chain(tableNAT, chainMarkMasq, "-j MARK --set-xmark "+r.mark),
		chain(tableNAT, chainPostrouting, r.postrouting()...),
		chain(tableNAT, chainServices, r.services(facts)...),
		chain(tableNAT, chainLoadBalancer, r.loadBalancer()...),
		chain(tableNAT, chainNodePort, r.nodePorts()...),
	}
}

// services returns the rules of KUBE-SERVICES, in the same order as kube-proxy's.
func (r *Renderer) services(facts *service.NodeFacts) []string {
	rules := []string{
		rule("-s "+loopbacks[r.family], toReturn),
		rule(r.in(setLoadBalancer, "dst,dst"), "-j "+chainLoadBalancer),
		r.clusterIP(facts),
		rule(r.in(setExternalIP, "dst,dst"), toMark),
	}
	rules = append(rules, r.acceptExternal(setExternalIP)...)
	rules = append(rules, r.fromItself(SetExternalIPLocal))
	rules = append(rules, r.acceptExternal(SetExternalIPLocal)...)
	return append(rules,
		rule(toLocal, "-j "+chainNodePort),
		rule(r.in(setClusterIP, "dst,dst"), toAccept),
		rule(r.in(setLoadBalancer, "dst,dst"), toAccept),
	)
}

// clusterIP marks packets that an endpoint could not answer without masquerading. They always
// include those of processes of this node, which have the ClusterIP itself as the source.
func (r *Renderer) clusterIP(facts *service.NodeFacts) string {
	notPod, known := notFromPod(facts.Detect[r.family])
	switch {
	case facts.MasqueradeAll:
		return rule(r.in(setClusterIP, "dst,dst"), toMark)
	case known:
		return rule(notPod, r.in(setClusterIP, "dst,dst"), toMark)
	default:
		return r.fromItself(setClusterIP)
	}
}

// fromItself marks packets that processes of this node send to an address of the device: the kernel
// also uses the destination as the source, so an endpoint on another node would reply to its own
// node.
func (r *Renderer) fromItself(set string) string { return rule(r.in(set, "src,dst"), toMark) }

// acceptExternal prevents other rules of nat from translating packets for external IPs, unless
// they came over a bridge or from the node.
func (r *Renderer) acceptExternal(set string) []string {
	match := r.in(set, "dst,dst")
	return []string{
		rule(match, "-m physdev ! --physdev-is-in -m addrtype ! --src-type LOCAL", toAccept),
		rule(match, toLocal, toAccept),
	}
}

func (r *Renderer) loadBalancer() []string {
	return []string{
		r.fromItself(SetLoadBalancerLocal),
		rule(r.in(SetLoadBalancerLocal, "dst,dst"), toReturn),
		toMark,
	}
}

// nodePorts marks packets to node ports that may have endpoints on other nodes. Clients of other
// node ports keep their addresses.
func (r *Renderer) nodePorts() []string {
	var rules []string
	for _, protocol := range [...]service.Protocol{service.TCP, service.UDP, service.SCTP} {
		where := "dst"
		if protocol == service.SCTP {
			where = "dst,dst"
		}
		sets := nodePortSets[protocol]
		rules = append(rules,
			rule("-p "+protocol.String(), r.in(sets[1], where), toReturn),
			rule("-p "+protocol.String(), r.in(sets[0], where), toMark))
	}
	return rules
}

// postrouting masquerades marked packets, and packets of an endpoint to itself.
func (r *Renderer) postrouting() []string {
	masquerade := rule(comment("kubernetes service traffic requiring SNAT"), "-j MASQUERADE")
	if r.options.RandomFully {
		masquerade += " --random-fully"
	}
	bit, _, _ := strings.Cut(r.mark, "/")
	return []string{
		rule(r.in(setLoopBack, "dst,dst,src"), "-j MASQUERADE"),
		rule("-m mark ! --mark "+r.mark, toReturn),
		// This rule clears the bit, so that the packet is not masqueraded twice if a tunnel
		// sends it through this chain again.
		rule("-j MARK --set-xmark " + bit + "/0x0"),
		masquerade,
	}
}

// notFromPod returns a match for packets that no local pod sent. It returns false if local pods cannot
// be recognized, or if every sender counts as one.
func notFromPod(detect service.LocalDetector) (string, bool) {
	switch {
	case detect.CIDR.IsValid():
		return "! -s " + detect.CIDR.Masked().String(), detect.CIDR.Bits() > 0
	case detect.Interface != "":
		return "! -i " + detect.Interface, true
	default:
		return "", false
	}
}

const (
	toDrop = "-j DROP"
	isNew  = "-m conntrack --ctstate NEW"
)

// rejects are the targets that reject with "port unreachable".
var rejects = service.PerFamily[string]{
	"-j REJECT --reject-with icmp-port-unreachable",
	"-j REJECT --reject-with icmp6-port-unreachable",
}

// filterChains returns the chains that decide which clients reach IPVS. IPVS handles incoming packets
// after table filter, and packets of the node after table mangle. The chains for source ranges are in
// both.
func (r *Renderer) filterChains(facts *service.NodeFacts) []dataplane.Object {
	return []dataplane.Object{
		chain(tableFilter, chainForward, r.forward()...),
		chain(tableFilter, chainNodePort, rule(r.in(setHealthCheckPort, "dst"), toAccept)),
		chain(tableFilter, chainProxyFirewall, r.proxyFirewall()),
		chain(tableFilter, chainSourceRanges, r.sourceRanges()...),
		chain(tableFilter, chainFilter, r.access(facts)...),
		// kube-proxy has a rule for each address here.
		chain(tableFilter, chainOutFilter),
		chain(tableMangle, chainProxyFirewall, r.proxyFirewall()),
		chain(tableMangle, chainSourceRanges, r.sourceRanges()...),
	}
}

// forward accepts Service traffic even if the policy of FORWARD is DROP. No rule drops packets in
// conntrack state INVALID, because IPVS translates the replies of its connections regardless of
// their state.
func (r *Renderer) forward() []string {
	return []string{
		rule(comment(commentForward), "-m mark --mark "+r.mark, toAccept),
		rule(comment("kubernetes forwarding conntrack rule"), "-m conntrack --ctstate RELATED,ESTABLISHED", toAccept),
	}
}

func (r *Renderer) proxyFirewall() string {
	return rule(r.in(SetLoadBalancerFW, "dst,dst"), "-j "+chainSourceRanges)
}

func (r *Renderer) sourceRanges() []string {
	return []string{
		rule(r.in(setSourceCIDR, "dst,dst,src"), toReturn),
		rule(r.in(setSourceIP, "dst,dst,src"), toReturn),
		toDrop,
	}
}

// access rejects connections to ports of the host at the device's addresses, and drops clients from
// outside at frontends without local endpoints, if only those may serve them.
func (r *Renderer) access(facts *service.NodeFacts) []string {
	var rules []string
	if notPod, known := notFromPod(facts.Detect[r.family]); known {
		rules = append(rules, rule(notPod, isNew, r.in(setNoLocalEndpoints, "dst,dst"), toDrop))
	}
	for _, set := range [...]string{setLoadBalancer, setClusterIP, setExternalIP, SetExternalIPLocal} {
		rules = append(rules, rule(r.in(set, "dst,dst"), toReturn))
	}
	return append(rules,
		rule(r.in(setHealthCheckPort, "dst"), toReturn),
		rule(isNew, r.in(SetIPs, "dst"), rejects[r.family]))
}
