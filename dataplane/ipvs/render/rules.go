package render

import (
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// rule joins the parts of a rule as iptables-save (1.8.9, both variants) prints it behind
// "-A CHAIN ". It leaves out empty parts. They come in the order of the tool: addresses,
// input interface and protocol first, then matches as written, then the target.
func rule(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), " ")
}

// comment is the match that does nothing. The tools quote everything but single plain words. All
// our comments have blanks.
func comment(text string) string { return `-m comment --comment "` + text + `"` }

// chain is a chain with its rules. It refers to the chains that they jump to and to the sets
// that they look up.
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

// appendRefs appends what a rule needs, unless the list has it.
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

// loopbacks are the sources that Services ignore.
var loopbacks = service.PerFamily[string]{"127.0.0.0/8", "::1/128"}

// abouts are the comments of rules by the words in the names of the sets that they look up.
var abouts = func() map[string]string {
	texts := make(map[string]string, len(kinds))
	for _, k := range kinds {
		texts[k.name] = k.about
	}
	return texts
}()

// in matches what a set holds. Where says which part of the packet is looked up, for example
// "dst,dst": destination address and port.
func (r *Renderer) in(set, where string) string {
	return comment(abouts[set]) + " -m set --match-set " + r.sets[set].name + " " + where
}

// natChains returns the chains that decide what is masqueraded, before IPVS translates.
func (r *Renderer) natChains(facts *service.NodeFacts) []dataplane.Object {
	return []dataplane.Object{
		chain(tableNAT, chainMarkMasq, "-j MARK --set-xmark "+r.mark),
		chain(tableNAT, chainPostrouting, r.postrouting()...),
		chain(tableNAT, chainServices, r.services(facts)...),
		chain(tableNAT, chainLoadBalancer, r.loadBalancer()...),
		chain(tableNAT, chainNodePort, r.nodePorts()...),
	}
}

// services has kube-proxy's order.
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

// clusterIP marks what no endpoint could answer otherwise. That always includes what
// processes of this node send, with the ClusterIP itself as the source.
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

// fromItself marks what processes of this node send to an address of the device: the kernel
// chooses the destination as the source as well, and an endpoint elsewhere would answer to
// its own node.
func (r *Renderer) fromItself(set string) string { return rule(r.in(set, "src,dst"), toMark) }

// acceptExternal keeps other rules of nat from translating what is for external IPs, unless
// it came over a bridge or from the node.
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

// nodePorts marks what endpoints elsewhere may get. Clients of the others keep their
// addresses.
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

// postrouting masquerades what has the mark, and what goes back to its sender.
func (r *Renderer) postrouting() []string {
	masquerade := rule(comment("kubernetes service traffic requiring SNAT"), "-j MASQUERADE")
	if r.options.RandomFully {
		masquerade += " --random-fully"
	}
	bit, _, _ := strings.Cut(r.mark, "/")
	return []string{
		rule(r.in(setLoopBack, "dst,dst,src"), "-j MASQUERADE"),
		rule("-m mark ! --mark "+r.mark, toReturn),
		// Clears the bit, so that the packet is not masqueraded twice when a tunnel sends
		// it through this chain again.
		rule("-j MARK --set-xmark " + bit + "/0x0"),
		masquerade,
	}
}

// notFromPod matches what local pods did not send. It returns false if nothing recognises
// them, or if every sender counts as one.
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

// filterChains returns the chains that decide which clients reach IPVS. It sees what comes in
// after table filter, and what the node sends after table mangle. The chains of the source
// ranges are in both.
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

// forward accepts Service traffic where the policy of FORWARD is DROP. There is no rule
// against packets in conntrack state INVALID: IPVS sends back what it translated in any
// case.
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

// access keeps clients from reaching ports of the host through the device's addresses, and
// clients from outside from reaching endpoints that are not for them.
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
