// SPDX-License-Identifier: Apache-2.0

//go:build linux

package explain

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// reasons explains the ways in sentences.
func (e *explanation) reasons(ways []way) []string {
	w := &why{explanation: e}
	if len(e.frontends) == 0 {
		w.unowned(ways)
		return w.said
	}
	f := &e.frontends[0]
	for i := range e.concerned {
		if c := &e.concerned[i]; c.view.Key != f.view.Key && e.wants(c) {
			w.say("%s also requests this frontend; %s owns it", c.view.Key, f.view.Key)
		}
	}
	if w.keptOut(f, ways) {
		return w.said
	}
	if w.Mode == IPVS {
		w.balancing(f, ways)
	} else {
		w.endpoints(f)
	}
	w.affinity(f, ways)
	w.masquerade(f, ways)
	return w.said
}

// why collects reasons.
type why struct {
	*explanation
	said []string
}

func (w *why) say(format string, args ...any) { w.said = append(w.said, fmt.Sprintf(format, args...)) }

// keptOut explains what loadBalancerSourceRanges and the list of denied sources decide, and reports whether they
// drop the client.
func (w *why) keptOut(f *frontend, ways []way) bool {
	if at := slices.IndexFunc(f.Denied, func(r netip.Prefix) bool { return r.Contains(w.From.Addr()) }); at >= 0 {
		w.say("%s is inside of the denied sources (%s, annotation sluice.dev/deny-source-ranges)", w.From.Addr(), f.Denied[at])
		return true
	}
	if len(f.Allowed) == 0 || !f.port.HasAny && w.Mode == IPTables {
		return false
	}
	from := w.From.Addr()
	if own := w.Facts.NodeIPs[w.family]; w.unbound && own.IsValid() {
		from = own // it stands for the node's processes
	}
	at := slices.IndexFunc(f.port.SourceRanges, func(r netip.Prefix) bool { return r.Contains(from) })
	if at >= 0 {
		w.say("%s is inside of loadBalancerSourceRanges (%s)", from, f.port.SourceRanges[at])
		return false
	}
	if len(ways) == 0 || ways[0].Verdict != Dropped {
		return false
	}
	var ranges []string
	for _, r := range f.port.SourceRanges {
		ranges = append(ranges, r.String())
	}
	w.say("%s is outside of loadBalancerSourceRanges (%s)", from, strings.Join(ranges, ", "))
	return true
}

// endpoints explains which endpoints can be chosen.
func (w *why) endpoints(f *frontend) {
	p := f.port
	policy := "internalTrafficPolicy"
	if f.Kind != service.ClusterIP {
		policy = "externalTrafficPolicy"
	}
	inside := w.origin == FromNode || w.detected()
	if p.NoEndpoints != service.NoEndpointsDefault && !f.served() {
		defer w.say("annotation sluice.dev/no-endpoints: %s", p.NoEndpoints)
	}
	switch {
	case !p.HasAny:
		w.say("%s has no usable endpoint: %s", f.view.Key.PortString(p.Name), w.census(f))
		return
	case f.Kind != service.ClusterIP && f.Local && inside:
		w.say("externalTrafficPolicy is Local, but clients on this node and local pods may use all endpoints")
	case f.Local && !f.served():
		w.say("%s is Local, and no usable endpoint runs on this node (%s)", policy, w.census(f))
		if f.Kind != service.ClusterIP && w.origin == FromPod && !w.Facts.Detect[w.family].Configured() {
			w.say("local pods may use all endpoints, but %s counts as a client from outside: detection of local pods is not configured "+
				"(see --detect-local-mode and --cluster-cidr)", w.From.Addr())
		}
		return
	case f.Local:
		w.say("%s is Local: only endpoints on this node are used", policy)
		w.algorithm(f)
		return
	}
	w.topology(f)
	w.algorithm(f)
}

// algorithm explains how one of the endpoints is chosen, unless all are equally probable.
func (w *why) algorithm(f *frontend) {
	if n := service.Suspects(f.snapshot.Slices); n > 0 {
		w.say("endpoints that do not answer get no connections, as long as half of them do: %d (annotation sluice.dev/outlier)", n)
	}
	if service.Weighted(f.To) {
		w.say("endpoints have weights")
	}
	switch by := f.view.Balancing; {
	case by == service.SourceHash:
		w.say("balancing is sourceHash: all connections of %s go to one endpoint, the same on all nodes", w.From.Addr())
	case by == service.ConnectionHash && w.From.Port() == 0:
		w.say("balancing is connectionHash: the client's port decides (name one in --from)")
	case by == service.ConnectionHash:
		w.say("balancing is connectionHash: %s goes to one endpoint, the same on all nodes", w.From)
	case by == service.LeastConnections:
		w.say("balancing is leastConnections: shares follow the open connections of this node")
	case by == service.RoundRobin:
		w.say("balancing is roundRobin: endpoints take turns, and the probabilities are their shares")
	}
}

// topology explains how hints and termination limit the endpoints.
func (w *why) topology(f *frontend) {
	switch f.port.Topology {
	case service.TopologySameNode:
		w.say("endpoints are those hinted for this node (topology-aware routing)")
	case service.TopologySameZone:
		w.say("endpoints are those hinted for zone %s (topology-aware routing)", w.Facts.Zone)
	case service.TopologyZoneTooSmall:
		w.say("fewer endpoints than %d are hinted for zone %s, so all are used (annotation sluice.dev/zone-min-endpoints)", f.snapshot.Spec.Zones.MinEndpoints, w.Facts.Zone)
	case service.TopologyZoneShare:
		w.say("endpoints hinted for zone %s get %d %% of the connections (annotation sluice.dev/zone-share)", w.Facts.Zone, f.snapshot.Spec.Zones.Share)
	case service.TopologyTerminating:
		w.say("no endpoint is ready; those that still serve while they terminate are used")
	}
}

// census counts the endpoints of a service port by their conditions.
func (w *why) census(f *frontend) string {
	var known, ready, here int
	for _, s := range f.snapshot.Slices {
		if s.Family != w.family || !slices.ContainsFunc(s.Ports, func(p service.SlicePort) bool {
			return p.Name == f.port.Name && p.Protocol == f.port.Protocol
		}) {
			continue
		}
		for _, p := range s.Endpoints {
			known++
			if p.Ready {
				ready++
			}
			if p.Where().NodeName == w.Facts.Name {
				here++
			}
		}
	}
	if known == 0 {
		return "no EndpointSlice lists one for this port" + w.otherPorts(f)
	}
	return fmt.Sprintf("%d known, %d ready, %d on this node", known, ready, here)
}

// otherPorts names the EndpointSlices whose ports have other names or protocols than the Service's port: a Service port
// and a slice port belong together only if both are equal.
func (w *why) otherPorts(f *frontend) string {
	var texts []string
	for _, s := range f.snapshot.Slices {
		if s.Family != w.family || len(s.Ports) == 0 || len(s.Endpoints) == 0 {
			continue
		}
		if len(texts) == otherSlicesMax {
			texts = append(texts, "others")
			break
		}
		ports := map[string]bool{}
		for _, p := range s.Ports {
			ports[portName(p.Name)+"/"+p.Protocol.String()] = true
		}
		texts = append(texts, fmt.Sprintf("EndpointSlice %s has %s", s.Name, few(slices.Sorted(maps.Keys(ports)))))
	}
	if len(texts) == 0 {
		return ""
	}
	return fmt.Sprintf("; %s, and the Service's port is %s/%s: names and protocols must be equal", strings.Join(texts, ", "), portName(f.port.Name), f.port.Protocol)
}

// otherSlicesMax and otherPortsMax limit the slices and ports that otherPorts names.
const otherSlicesMax, otherPortsMax = 3, 5

// few joins at most otherPortsMax names.
func few(names []string) string {
	if len(names) > otherPortsMax {
		names = append(names[:otherPortsMax:otherPortsMax], "others")
	}
	return strings.Join(names, ", ")
}

// portName is the name of a port as explain prints it.
func portName(name string) string {
	if name == "" {
		return "(unnamed)"
	}
	return name
}

// affinity explains the effect of session affinity.
func (w *why) affinity(f *frontend, ways []way) {
	if f.port.AffinitySeconds == 0 || len(ways) == 0 || ways[0].Verdict != Delivered {
		return
	}
	span := time.Duration(f.port.AffinitySeconds) * time.Second
	switch {
	case slices.ContainsFunc(ways[0].Steps, func(s Step) bool { return s.recalls }):
		w.say("session affinity: the kernel contains an entry for this client and sends it to this endpoint for %v after its last connection", span)
	case w.Memory != nil && w.forgot == nil:
		w.say("session affinity: no entry for this client yet; it will stick to the selected endpoint for %v after its last connection", span)
	default:
		w.say("session affinity: a client with an entry reaches its previous endpoint for %v after its last connection", span)
	}
	if w.forgot != nil {
		w.say("%s%v", UnreadAffinity, w.forgot)
	}
}

// masquerade explains whose address endpoints see.
func (w *why) masquerade(f *frontend, ways []way) {
	var kept, changed []way
	for _, one := range ways {
		switch {
		case one.Verdict != Delivered:
		case one.Masqueraded:
			changed = append(changed, one)
		default:
			kept = append(kept, one)
		}
	}
	if len(changed) > 0 {
		w.say("masqueraded: %s", w.masqueradeReason(f, changed))
	}
	if len(kept) > 0 && w.origin != FromNode {
		w.say("the client's address is kept: %s", w.keepReason(f))
	}
}

// masqueradeReason returns why packets get an address of the node.
func (w *why) masqueradeReason(f *frontend, changed []way) string {
	itself := !slices.ContainsFunc(changed, func(one way) bool { return one.To.Addr() != w.From.Addr() })
	switch {
	case f.Kind == service.ClusterIP && w.Facts.MasqueradeAll:
		return "--masquerade-all is set"
	case f.Kind == service.ClusterIP && w.Facts.Detect[w.family].Configured() && !w.detected():
		return fmt.Sprintf("the source is no local pod (%s)", w.detection())
	case f.Kind != service.ClusterIP && !f.Local:
		return "externalTrafficPolicy is Cluster, and an endpoint elsewhere would answer the client directly"
	case f.Kind != service.ClusterIP && w.local(w.From.Addr()):
		return "the source is this node, and the policy is Local"
	case itself:
		return "the endpoint reaches itself"
	case w.unbound:
		return "the source is this node, whose packets to the Service carry the Service's address"
	default:
		return "a rule requests it"
	}
}

func (w *why) keepReason(f *frontend) string {
	switch {
	case f.Kind != service.ClusterIP:
		return "externalTrafficPolicy is Local"
	case w.detected():
		return fmt.Sprintf("the source is a local pod (%s)", w.detection())
	default:
		return "detection of local pods is not configured (see --detect-local-mode and --cluster-cidr)"
	}
}

// detection says how local pods are recognized.
func (w *why) detection() string {
	detect := w.Facts.Detect[w.family]
	if detect.CIDR.IsValid() {
		return "local pods are in " + detect.CIDR.String()
	}
	return "local pods arrive through " + detect.Interface
}
