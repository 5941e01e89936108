package ipvs

import (
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

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
