// SPDX-License-Identifier: Apache-2.0

//go:build linux

package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/service"
)

// otherFamily ends the reason about a Service without a ClusterIP of the family.
const otherFamily = "which is not served over %s: it has no ClusterIP of this family (see spec.ipFamilyPolicy)"

// unowned explains a destination that is no frontend of a Service.
func (w *why) unowned(ways []way) {
	to := w.To.Addr()
	for i := range w.concerned {
		w.nearly(&w.concerned[i])
	}
	var unserved []string
	if w.Unserved != nil {
		unserved = w.Unserved(to)
	}
	if len(w.said) > 0 {
		w.said = append(w.said, unserved...)
		return
	}
	at := slices.IndexFunc(w.Facts.ServiceCIDRs[w.family], func(r netip.Prefix) bool { return r.Contains(to) })
	if at >= 0 {
		w.say("%s is in the range of ClusterIPs %s, and no Service owns it", to, w.Facts.ServiceCIDRs[w.family][at])
	} else {
		w.say("no Service owns %s/%s as a frontend on this node", w.To, w.Protocol)
	}
	switch {
	case w.Unserved != nil:
		w.said = append(w.said, unserved...)
	case !w.local(to):
		w.say(UnknownHere+": headless Services, Services with the label service.kubernetes.io/service-proxy-name, "+
			"and load balancer IPs with ipMode Proxy; to find one that lists the address: kubectl sluice explain pod/NAME %s", w.To)
	}
	if at < 0 && len(ways) == 1 && ways[0].Verdict == Untouched {
		w.say("the proxy does not change the packet; a process that listens there receives it")
	}
}

// nearly explains why a Service has no frontend at the destination, although it has the address or the node port.
func (w *why) nearly(c *concerned) {
	to, spec := w.To.Addr(), c.snapshot.Spec
	lists := slices.Contains(spec.ExternalIPs[w.family], to) || slices.Contains(spec.LoadBalancerVIPs[w.family], to)
	switch {
	case w.leftOut(c):
		w.say("%s/%s is a frontend of %s, which is left out: the Service %v (see actors.objectsMax)", w.To, w.Protocol, c.view.Key, c.view.Excess)
	case lists && !spec.ClusterIPs[w.family].IsValid():
		w.say("%s is an address of %s, "+otherFamily, to, c.view.Key, w.family)
	case hasNodePort(spec, w.Protocol, w.To.Port()) && !spec.ClusterIPs[w.family].IsValid() && w.nodePortsAnswer():
		w.say("%d/%s is a node port of %s, "+otherFamily, w.To.Port(), w.Protocol, c.view.Key, w.family)
	case spec.ClusterIPs[w.family] == to:
		w.say("%s is the ClusterIP of %s, which has no port %d/%s but %s", to, c.view.Key, w.To.Port(), w.Protocol, portList(spec))
	case lists && slices.ContainsFunc(spec.Ports, func(p service.Port) bool {
		return p.NotOutside && p.Port == w.To.Port() && p.Protocol == w.Protocol
	}):
		w.say("%s is an address of %s, whose port %d/%s is not served there: it is a port of nodes (addresses.deniedPorts, or an address of Sluice)",
			to, c.view.Key, w.To.Port(), w.Protocol)
	case lists:
		w.say("%s is an address of %s, which has no port %d/%s but %s", to, c.view.Key, w.To.Port(), w.Protocol, portList(spec))
	case hasNodePort(spec, w.Protocol, w.To.Port()) && to.IsLoopback() && w.Mode == IPVS:
		w.say("%d/%s is a node port of %s; IPVS cannot serve node ports at loopback addresses", w.To.Port(), w.Protocol, c.view.Key)
	case hasNodePort(spec, w.Protocol, w.To.Port()) && w.local(to):
		w.say("node port %d/%s of %s does not answer at %s (see --nodeport-addresses)", w.To.Port(), w.Protocol, c.view.Key, to)
	case hasNodePort(spec, w.Protocol, w.To.Port()):
		w.say("%d/%s is a node port of %s, but %s is no address of this node", w.To.Port(), w.Protocol, c.view.Key, to)
	}
}

func hasNodePort(spec *service.Spec, protocol service.Protocol, port uint16) bool {
	return slices.ContainsFunc(spec.Ports, func(p service.Port) bool { return p.Protocol == protocol && p.NodePort == port })
}

func portList(spec *service.Spec) string {
	var texts []string
	for _, p := range spec.Ports {
		texts = append(texts, fmt.Sprintf("%d/%s", p.Port, p.Protocol))
	}
	return strings.Join(texts, ", ")
}
