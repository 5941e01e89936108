package ipvs

import (
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// rule puts a rule together, as iptables-save (1.8.9, both variants) prints it
// behind "-A CHAIN ". Empty parts are left out. The parts come in its order:
// addresses, input interface and protocol first, then matches as written, then the
// target.
func rule(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), " ")
}

// comment is the match that does nothing. The tools quote what is not one plain
// word; all comments of ours have blanks.
func comment(text string) string { return `-m comment --comment "` + text + `"` }

// chain is a chain with its rules. It refers to the chains that they jump to and to
// the sets that they ask.
func chain(table, name string, rules ...string) dataplane.Object {
	o := dataplane.Object{
		ID:   dataplane.ID{Container: table, Name: name},
		Kind: dataplane.Owned,
		Body: strings.Join(rules, "\n"),
	}
	for _, text := range rules {
		o.Refs = appendRefs(o.Refs, table, text)
	}
	return o
}

// appendRefs appends what a rule needs and the list does not have.
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

// loopbacks are the sources that keep out of Services.
var loopbacks = service.PerFamily[string]{"127.0.0.0/8", "::1/128"}

// abouts are the comments of rules by the names of the sets that they ask.
var abouts = func() map[string]string {
	texts := make(map[string]string, len(kinds))
	for _, k := range kinds {
		texts[k.name] = k.about
	}
	return texts
}()

// in matches what a set holds. Where says what of the packet is looked up, for
// example "dst,dst": destination address and port.
func (r *Renderer) in(set, where string) string {
	return comment(abouts[set]) + " -m set --match-set " + r.sets[set].name + " " + where
}

// natChains decide what is masqueraded, before IPVS translates.
func (r *Renderer) natChains(facts *service.NodeFacts) []dataplane.Object {
	return []dataplane.Object{
		chain(tableNAT, chainMarkMasq, "-j MARK --set-xmark "+r.mark),
		chain(tableNAT, chainPostrouting, r.postrouting()...),
		chain(tableNAT, chainServices, r.services(facts)...),
		chain(tableNAT, chainLoadBalancer, r.loadBalancer()...),
		chain(tableNAT, chainNodePort, r.nodePorts()...),
	}
}

// services comes in the order in which kube-proxy has it.
func (r *Renderer) services(facts *service.NodeFacts) []string {
	rules := []string{
		rule("-s "+loopbacks[r.family], toReturn),
		rule(r.in(setLoadBalancer, "dst,dst"), "-j "+chainLoadBalancer),
		r.clusterIP(facts),
		rule(r.in(setExternalIP, "dst,dst"), toMark),
	}
	rules = append(rules, r.acceptExternal(setExternalIP)...)
	rules = append(rules, r.fromItself(setExternalIPLocal))
	rules = append(rules, r.acceptExternal(setExternalIPLocal)...)
	return append(rules,
		rule(toLocal, "-j "+chainNodePort),
		rule(r.in(setClusterIP, "dst,dst"), toAccept),
		rule(r.in(setLoadBalancer, "dst,dst"), toAccept),
	)
}

// clusterIP marks what no endpoint could answer otherwise. In any case that is what
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

// fromItself marks what processes of this node send to an address of the device: the
// kernel takes the destination for the source, too, and an endpoint elsewhere
// would answer to its own node.
func (r *Renderer) fromItself(set string) string { return rule(r.in(set, "src,dst"), toMark) }

// acceptExternal lets no other rule of nat translate what is for external IPs,
// unless it came by a bridge or from the node.
func (r *Renderer) acceptExternal(set string) []string {
	match := r.in(set, "dst,dst")
	return []string{
		rule(match, "-m physdev ! --physdev-is-in -m addrtype ! --src-type LOCAL", toAccept),
		rule(match, toLocal, toAccept),
	}
}

func (r *Renderer) loadBalancer() []string {
	return []string{
		r.fromItself(setLoadBalancerLocal),
		rule(r.in(setLoadBalancerLocal, "dst,dst"), toReturn),
		toMark,
	}
}

// nodePorts marks what endpoints elsewhere may get; clients of the others keep their
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

// postrouting masquerades what carries the mark, and what goes back to its sender.
func (r *Renderer) postrouting() []string {
	masquerade := rule(comment("kubernetes service traffic requiring SNAT"), "-j MASQUERADE")
	if r.options.RandomFully {
		masquerade += " --random-fully"
	}
	bit, _, _ := strings.Cut(r.mark, "/")
	return []string{
		rule(r.in(setLoopBack, "dst,dst,src"), "-j MASQUERADE"),
		rule("-m mark ! --mark "+r.mark, toReturn),
		// Clears the bit, so that the packet is not masqueraded twice when a
		// tunnel sends it through this chain again.
		rule("-j MARK --set-xmark " + bit + "/0x0"),
		masquerade,
	}
}

// notFromPod matches what local pods did not send; false when nothing recognises
// them, or when every sender is one.
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

// rejects are the targets that refuse with "port unreachable".
var rejects = service.PerFamily[string]{
	"-j REJECT --reject-with icmp-port-unreachable",
	"-j REJECT --reject-with icmp6-port-unreachable",
}

// filterChains decide who is let through to IPVS, which sees what comes in after
// table filter, and what the node sends after table mangle. The chains of the source
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

// forward accepts Service traffic where the policy of FORWARD is DROP. There is no
// rule against packets in conntrack state INVALID: IPVS sends back what it
// translated, whatever conntrack makes of it.
func (r *Renderer) forward() []string {
	return []string{
		rule(comment(commentForward), "-m mark --mark "+r.mark, toAccept),
		rule(comment("kubernetes forwarding conntrack rule"), "-m conntrack --ctstate RELATED,ESTABLISHED", toAccept),
	}
}

func (r *Renderer) proxyFirewall() string {
	return rule(r.in(setLoadBalancerFW, "dst,dst"), "-j "+chainSourceRanges)
}

func (r *Renderer) sourceRanges() []string {
	return []string{
		rule(r.in(setSourceCIDR, "dst,dst,src"), toReturn),
		rule(r.in(setSourceIP, "dst,dst,src"), toReturn),
		toDrop,
	}
}

// access keeps ports of the host from being reached by way of the device's
// addresses, and clients from outside from endpoints that they are not to reach.
func (r *Renderer) access(facts *service.NodeFacts) []string {
	var rules []string
	if notPod, known := notFromPod(facts.Detect[r.family]); known {
		rules = append(rules, rule(notPod, isNew, r.in(setNoLocalEndpoints, "dst,dst"), toDrop))
	}
	for _, set := range [...]string{setLoadBalancer, setClusterIP, setExternalIP, setExternalIPLocal} {
		rules = append(rules, rule(r.in(set, "dst,dst"), toReturn))
	}
	return append(rules,
		rule(r.in(setHealthCheckPort, "dst"), toReturn),
		rule(isNew, r.in(setIPs, "dst"), rejects[r.family]))
}
