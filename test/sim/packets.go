// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/nftmodel"
	"github.com/sluice-proxy/sluice/test/reference"
)

// judge says what has to become of packets, from what the API says of each Service alone;
// it knows no rules.
type judge struct {
	family service.Family
	// facts are those of the node now.
	facts  *service.NodeFacts
	hosts  []netip.Addr
	served []served
}

func newJudge(family service.Family, facts *service.NodeFacts, hosts []netip.Addr, all []served) *judge {
	return &judge{family: family, facts: facts, hosts: hosts, served: all}
}

// expectation is what has to become of a packet.
type expectation struct {
	verdict nftmodel.Verdict
	// endpoints are as likely as their weights say; set when delivered. If the Service hashes, one of them is certain.
	endpoints   []reference.Endpoint
	hashes      bool
	masqueraded bool
	// rounded says that the chances are rounded to slots.
	rounded bool
}

// claimant is a service port that answers at a packet's destination.
type claimant struct {
	served   *served
	port     *service.Port
	endpoint reference.Selection
	// clusterIP, vip or nodePort tells how the packet comes to it; none of them for an
	// external IP.
	clusterIP, vip, nodePort bool
}

// expect decides about a packet.
func (j *judge) expect(p nftmodel.Packet) expectation {
	claimants := j.claimants(p)
	if len(claimants) == 0 {
		return j.unclaimed(p)
	}
	c := claimants[0]
	spec := c.served.state.spec
	covered := func(by []netip.Prefix) bool {
		return slices.ContainsFunc(by, func(r netip.Prefix) bool { return r.Contains(p.Src.Addr()) })
	}
	ranges := spec.SourceRanges[j.family]
	if c.vip && len(ranges) > 0 && !covered(ranges) || !c.clusterIP && covered(spec.DenyRanges[j.family]) {
		return expectation{verdict: nftmodel.Dropped}
	}
	e := expectation{verdict: nftmodel.Rejected}
	if c.endpoint.Any {
		e = j.route(p, c)
	}
	if e.verdict == nftmodel.Delivered {
		return e
	}
	switch spec.NoEndpoints {
	case service.NoEndpointsReject:
		e.verdict = nftmodel.Rejected
	case service.NoEndpointsDrop:
		e.verdict = nftmodel.Dropped
	case service.NoEndpointsPass:
		if e.verdict = nftmodel.Untouched; !c.clusterIP {
			return j.unclaimed(p)
		}
	}
	return e
}

// unclaimed decides about a packet that is to no Service.
func (j *judge) unclaimed(p nftmodel.Packet) expectation {
	if j.isClusterIP(p.Dst.Addr()) {
		return expectation{verdict: nftmodel.Rejected} // a port that no Service has
	}
	unallocated := func(r netip.Prefix) bool { return r.Contains(p.Dst.Addr()) }
	if slices.ContainsFunc(j.facts.ServiceCIDRs[j.family], unallocated) {
		return expectation{verdict: nftmodel.Dropped}
	}
	return expectation{verdict: nftmodel.Untouched}
}

// claimants returns the ports that answer: at an address, then at a node port.
func (j *judge) claimants(p nftmodel.Packet) (all []claimant) {
	to, nodePorts := p.Dst.Addr(), j.answersNodePorts(p.Dst.Addr())
	for i := range j.served {
		s := &j.served[i]
		spec := s.state.spec
		if spec == nil || !spec.ClusterIPs[j.family].IsValid() {
			continue
		}
		for k := range spec.Ports {
			c := claimant{served: s, port: &spec.Ports[k]}
			has := func(f service.Frontend) bool {
				_, denied := spec.DeniedBy(j.family, f)
				return !denied
			}
			c.nodePort = nodePorts && c.port.NodePort != 0 && c.port.NodePort == p.Dst.Port() &&
				has(service.Frontend{Port: c.port.NodePort, Protocol: c.port.Protocol})
			external := false
			if c.port.Port == p.Dst.Port() && has(service.Frontend{Addr: to, Port: c.port.Port, Protocol: c.port.Protocol}) {
				c.clusterIP = to == spec.ClusterIPs[j.family]
				c.vip = slices.Contains(spec.LoadBalancerVIPs[j.family], to)
				external = slices.Contains(spec.ExternalIPs[j.family], to)
			}
			if c.port.Protocol == p.Protocol && (c.clusterIP || c.vip || c.nodePort || external) {
				c.endpoint = s.state.selection(j.family, c.port)
				all = append(all, c)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b claimant) int { return a.late() - b.late() })
	return all
}

// late is 0 for an address, which is asked for first, and 1 for a node port.
func (c *claimant) late() int {
	if c.nodePort {
		return 1
	}
	return 0
}

// selection asks the reference about one port of a Service.
func (s state) selection(family service.Family, port *service.Port) reference.Selection {
	var listed []reference.Endpoint
	var observed *service.Observed
	sorted := slices.SortedFunc(slices.Values(s.slices), func(a, b *service.Slice) int { return strings.Compare(a.Name, b.Name) })
	for _, slice := range sorted {
		if observed == nil {
			observed = slice.Observed
		}
	}
	for _, slice := range sorted {
		for _, p := range slice.Ports {
			if slice.Family != family || p.Name != port.Name || p.Protocol != port.Protocol {
				continue
			}
			for _, e := range slice.Endpoints {
				where := e.Where()
				percent, suspect := s.observation(observed, netip.AddrPortFrom(e.Addr, p.Port))
				listed = append(listed, reference.Endpoint{
					At: netip.AddrPortFrom(e.Addr, p.Port), Ready: e.Ready, Serving: e.Serving, Terminating: e.Terminating,
					Local: where.NodeName == s.facts.Name, ForNodes: where.ForNodes, ForZones: where.ForZones,
					Weight: int(slice.Weight), Drains: slice.Drains, Percent: percent, Suspect: suspect,
				})
			}
		}
	}
	distinct, _ := reference.Distinct(listed)
	return reference.Select(distinct, s.facts.Name, s.facts.Zone, reference.Zones{Min: int(s.spec.Zones.MinEndpoints), Share: int(s.spec.Zones.Share)})
}

// observation returns what the node has observed of an endpoint.
func (s state) observation(all *service.Observed, at netip.AddrPort) (percent int, suspect bool) {
	if all == nil {
		return 0, false
	}
	for _, e := range all.Endpoints {
		if e.AddrPort == at {
			return int(e.Percent), e.Suspect
		}
	}
	if s.spec.Adaptation.SlowStart > 0 {
		percent = 10
	}
	return percent, false
}

func (j *judge) isClusterIP(a netip.Addr) bool {
	return slices.ContainsFunc(j.served, func(s served) bool {
		return s.state.spec != nil && len(s.state.spec.Ports) > 0 && s.state.spec.ClusterIPs[j.family] == a
	})
}

// answersNodePorts reports whether node ports answer on an address.
func (j *judge) answersNodePorts(a netip.Addr) bool {
	on := j.facts.NodePorts[j.family]
	if on.All {
		return !a.IsLoopback() && j.local(a)
	}
	return slices.Contains(on.Addresses, a)
}

func (j *judge) local(a netip.Addr) bool { return a.IsLoopback() || slices.Contains(j.hosts, a) }

// route decides about a packet for a port that has endpoints.
func (j *judge) route(p nftmodel.Packet, c claimant) expectation {
	spec, facts := c.served.state.spec, c.served.state.facts
	t := reference.Traffic{ // what the node's own rules decide, they do by the facts of today
		Internal: c.clusterIP, PolicyLocal: spec.ExternalLocal, MasqueradeAll: j.facts.MasqueradeAll,
		Node: j.local(p.Src.Addr()),
	}
	if c.clusterIP {
		t.PolicyLocal, facts = spec.InternalLocal, j.facts
	}
	detect := facts.Detect[j.family]
	t.Detect, t.Pod = detect.Configured(), fromPod(detect, p)
	r := c.endpoint.Route(t)
	verdict := map[reference.Fate]nftmodel.Verdict{
		reference.Refused: nftmodel.Rejected, reference.Dropped: nftmodel.Dropped, reference.Delivered: nftmodel.Delivered,
	}[r.Fate]
	return expectation{verdict: verdict, endpoints: r.To, masqueraded: r.Masqueraded, hashes: spec.Balancing.Hashes(),
		rounded: spec.Balancing == service.LeastConnections || spec.Adaptation.SlowStart > 0 || spec.Zones.Share > 0 ||
			c.served.state.isObserved()}
}

// fromPod reports whether a packet is recognised as that of a local pod.
func fromPod(d service.LocalDetector, p nftmodel.Packet) bool {
	if d.CIDR.IsValid() {
		return d.CIDR.Contains(p.Src.Addr())
	}
	if prefix, isPrefix := strings.CutSuffix(d.Interface, "+"); isPrefix {
		return strings.HasPrefix(p.In, prefix)
	}
	return d.Interface != "" && p.In == d.Interface
}

// check compares with what the rules make of the packet.
func (e expectation) check(p nftmodel.Packet, outcomes []nftmodel.Outcome) error {
	want := e.ends(p)
	if e.hashes && e.verdict == nftmodel.Delivered {
		if len(outcomes) != 1 || want[end(outcomes[0].Verdict, outcomes[0].To, outcomes[0].Masqueraded)] == 0 {
			return fmt.Errorf("packet %v from %q to %v/%v has %d outcomes, want one of\n%s%s", p.Src, p.In, p.Dst, p.Protocol, len(outcomes),
				endsText(want), stepsOf(outcomes))
		}
		return nil
	}
	got := map[string]float64{}
	for _, o := range outcomes {
		if o.Mark != 0 && o.Verdict == nftmodel.Delivered {
			return fmt.Errorf("packet %v to %v/%v leaves with mark %#x", p.Src, p.Dst, p.Protocol, o.Mark)
		}
		got[end(o.Verdict, o.To, o.Masqueraded)] += o.Probability
	}
	// The endpoint in the first slot has an advantage of up to a hundredth of its share
	// (package slots).
	const advantageMax = 0.01
	roundedMax := 1e-6
	if e.rounded {
		roundedMax = 1.0 / 1024 // two slots
	}
	for text, probability := range want {
		if math.Abs(got[text]-probability) > advantageMax*probability+roundedMax {
			return fmt.Errorf("packet %v from %q to %v/%v\nends\n%s\nwant\n%s%s", p.Src, p.In, p.Dst, p.Protocol,
				endsText(got), endsText(want), stepsOf(outcomes))
		}
	}
	return nil
}

// ends returns the probability of each end.
func (e expectation) ends(p nftmodel.Packet) map[string]float64 {
	if e.verdict != nftmodel.Delivered {
		return map[string]float64{end(e.verdict, p.Dst, false): 1}
	}
	ends := map[string]float64{}
	for _, to := range e.endpoints {
		hairpin := to.At.Addr() == p.Src.Addr()
		ends[end(e.verdict, to.At, e.masqueraded || hairpin)] += to.Chance
	}
	return ends
}

func end(verdict nftmodel.Verdict, to netip.AddrPort, masqueraded bool) string {
	text := fmt.Sprintf("%v at %v", verdict, to)
	if masqueraded && verdict != nftmodel.Dropped && verdict != nftmodel.Rejected {
		text += ", masqueraded"
	}
	return text
}

func endsText(ends map[string]float64) string {
	var lines []string
	for e, probability := range ends {
		lines = append(lines, fmt.Sprintf("\t%.6f %s", probability, e))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func stepsOf(outcomes []nftmodel.Outcome) string {
	if len(outcomes) == 0 {
		return ""
	}
	text := "\nfor example by"
	for _, step := range outcomes[0].Steps {
		text += "\n\t" + step.String()
	}
	return text
}

// sendPackets sends some packets to every service port of a family, and some to where
// nothing answers, and checks how they end.
func (w *world) sendPackets(family service.Family, there []served) error {
	kernel := w.kernel
	there = w.contest(family, there)
	j := newJudge(family, w.cluster.facts(), w.cluster.hosts, there)
	var errs []error
	note := func(err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%v: %w", family, err))
		}
	}
	send := func(p nftmodel.Packet) {
		if w.concernsVague(family, p) {
			w.monitor.count("packet to what is vague")
			return
		}
		want := j.expect(p)
		w.monitor.count("packet " + want.verdict.String())
		outcomes := kernel.Outcomes(p)
		err := want.check(p, outcomes)
		if err != nil && slices.ContainsFunc(w.elders(family, there, p), func(e expectation) bool { return e.check(p, outcomes) == nil }) {
			w.monitor.count("packet as an elder says")
			return
		}
		note(err)
	}
	for i := range j.served {
		for k := range j.served[i].view.Ports[family] {
			port := &j.served[i].view.Ports[family][k]
			if !port.ClusterIP.IsValid() && !port.ExternallyAccessible() {
				continue // others have all of it
			}
			for range 3 {
				send(w.packetTo(family, port))
			}
			if port.AffinitySeconds > 0 && port.ClusterIP.IsValid() {
				note(w.checkAffinity(family, port))
			}
		}
	}
	for range 3 { // frontends that no Service has, or that one had
		nowhere := service.PortView{
			Port: 80, ClusterIP: clusterIP(family, w.random.IntN(60)), NodePort: uint16(30000 + w.random.IntN(400)),
		}
		send(w.packetTo(family, &nowhere))
	}
	if len(errs) > 5 {
		errs = append(errs[:5], fmt.Errorf("and %d more", len(errs)-5))
	}
	return errors.Join(errs...)
}

// packetTo makes a packet from somewhere to one of a port's frontends.
func (w *world) packetTo(family service.Family, port *service.PortView) nftmodel.Packet {
	var to []netip.AddrPort
	if port.ClusterIP.IsValid() {
		to = append(to, netip.AddrPortFrom(port.ClusterIP, port.Port))
	}
	for _, a := range append(append([]netip.Addr{}, port.ExternalIPs...), port.LoadBalancerVIPs...) {
		to = append(to, netip.AddrPortFrom(a, port.Port))
	}
	if port.NodePort != 0 {
		to = append(to, netip.AddrPortFrom(host(family, []int{2, 3, 300}[w.random.IntN(3)]), port.NodePort))
	}
	p := w.packetFrom(family, port)
	p.Dst, p.Protocol = to[w.random.IntN(len(to))], port.Protocol
	if p.Src.Addr().IsLoopback() { // what has this source, has a loopback destination
		p.Dst = netip.AddrPortFrom(p.Src.Addr(), port.NodePort)
	}
	return p
}

func (w *world) packetFrom(family service.Family, port *service.PortView) nftmodel.Packet {
	from := func(a netip.Addr, in string) nftmodel.Packet {
		return nftmodel.Packet{Src: netip.AddrPortFrom(a, 40000), In: in, Out: "eth0"}
	}
	loopback := netip.IPv6Loopback()
	if family == service.IPv4 {
		loopback = netip.MustParseAddr("127.0.0.1")
	}
	switch w.random.IntN(6) {
	case 0:
		return from(localPod(family, 99), podInterface)
	case 1: // an endpoint on this node, perhaps
		for _, e := range port.Reachable() {
			if e.Local {
				return from(e.AddrPort.Addr(), podInterface)
			}
		}
		return from(localPod(family, 98), podInterface)
	case 2:
		return from(host(family, 2), "")
	case 3:
		return from(outside(family, 10), "eth0") // inside the source ranges
	case 4:
		return from(outside(family, 190), "eth0")
	default:
		if port.NodePort == 0 {
			return from(outside(family, 11), "eth0")
		}
		return from(loopback, "")
	}
}

// checkAffinity sends a packet of a new client: every other one has to end at the same endpoint.
func (w *world) checkAffinity(family service.Family, port *service.PortView) error {
	w.clients++
	p := nftmodel.Packet{
		Src: netip.AddrPortFrom(address(family, "10.200.0.0", "fd00:200::", w.clients), 40000),
		Dst: netip.AddrPortFrom(port.ClusterIP, port.Port), Protocol: port.Protocol, In: "eth0", Out: "eth0",
	}
	choose := func(probability float64) bool { return w.random.Float64() < probability }
	first := w.kernel.Trace(p, choose)
	for _, then := range w.kernel.Outcomes(p) {
		if first.Verdict != then.Verdict || first.To != then.To {
			return fmt.Errorf("client %v of %v was sent to %v, then to %v", p.Src, p.Dst, first.To, then.To)
		}
	}
	return nil
}
