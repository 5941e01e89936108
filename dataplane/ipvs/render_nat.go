package ipvs

import (
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

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
