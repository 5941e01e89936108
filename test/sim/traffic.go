package sim

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/sluice-proxy/sluice/dataplane/memory"
	"github.com/sluice-proxy/sluice/service"
)

// sendPackets sends some to every service port of a family, and some to where
// nobody answers, and checks how they end.
func (w *world) sendPackets(family service.Family, there []served) error {
	n := w.nodes[family]
	j := newJudge(family, w.cluster.facts(), w.cluster.hosts, there)
	var errs []error
	note := func(err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%v: %w", family, err))
		}
	}
	send := func(p memory.Packet) {
		want := j.fate(p)
		w.witness.count("packet " + want.verdict.String())
		note(want.check(p, n.kernel.Outcomes(p)))
	}
	for i := range j.served {
		for k := range j.served[i].view.Ports[family] {
			port := &j.served[i].view.Ports[family][k]
			for range 3 {
				send(w.packetTo(family, port))
			}
			if port.AffinitySeconds > 0 {
				note(w.checkAffinity(n, port))
			}
		}
	}
	for range 3 { // frontends that nobody has, or that somebody had
		nowhere := service.PortView{Port: 80, ClusterIP: clusterIP(family, w.dice.IntN(60)), NodePort: uint16(30000 + w.dice.IntN(400))}
		send(w.packetTo(family, &nowhere))
	}
	if len(errs) > 5 {
		errs = append(errs[:5], fmt.Errorf("and %d more", len(errs)-5))
	}
	return errors.Join(errs...)
}

// packetTo makes a packet from somewhere to one of a port's frontends.
func (w *world) packetTo(family service.Family, port *service.PortView) memory.Packet {
	to := []netip.AddrPort{netip.AddrPortFrom(port.ClusterIP, port.Port)}
	for _, a := range append(append([]netip.Addr{}, port.ExternalIPs...), port.LoadBalancerVIPs...) {
		to = append(to, netip.AddrPortFrom(a, port.Port))
	}
	if port.NodePort != 0 {
		to = append(to, netip.AddrPortFrom(host(family, []int{2, 3, 300}[w.dice.IntN(3)]), port.NodePort))
	}
	p := w.packetFrom(family, port)
	p.Dst, p.Protocol = to[w.dice.IntN(len(to))], port.Protocol
	if p.Src.Addr().IsLoopback() { // what has this source, has a loopback destination
		p.Dst = netip.AddrPortFrom(p.Src.Addr(), port.NodePort)
	}
	return p
}

func (w *world) packetFrom(family service.Family, port *service.PortView) memory.Packet {
	from := func(a netip.Addr, in string) memory.Packet {
		return memory.Packet{Src: netip.AddrPortFrom(a, 40000), In: in, Out: "eth0"}
	}
	loopback := netip.IPv6Loopback()
	if family == service.IPv4 {
		loopback = netip.MustParseAddr("127.0.0.1")
	}
	switch w.dice.IntN(6) {
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

// checkAffinity sends two packets of a client that was never seen before: both
// have to end at the same endpoint.
func (w *world) checkAffinity(n *node, port *service.PortView) error {
	w.clients++
	p := memory.Packet{
		Src: netip.AddrPortFrom(address(n.family, "10.200.0.0", "fd00:200::", w.clients), 40000),
		Dst: netip.AddrPortFrom(port.ClusterIP, port.Port), Protocol: port.Protocol, In: "eth0", Out: "eth0",
	}
	choose := func(probability float64) bool { return w.dice.Float64() < probability }
	first, second := n.kernel.Trace(p, choose), n.kernel.Trace(p, choose)
	if first.Verdict != second.Verdict || first.To != second.To {
		return fmt.Errorf("client %v of %v was sent to %v, then to %v", p.Src, p.Dst, first.To, second.To)
	}
	return nil
}
