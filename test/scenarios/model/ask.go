package model

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/sluice-proxy/sluice/internal/nftmodel"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
)

// clientPort is the port that clients connect from.
const clientPort = 40000

// hostAddresses are those of the node, loopback included.
func hostAddresses() []netip.Addr {
	var all []netip.Addr
	for _, family := range service.Families {
		for _, name := range []string{"loopback", "node", "second"} {
			all = append(all, fixture.MustAddress(family, name))
		}
	}
	return all
}

// Ask follows the first packet of a connection. It never waits.
func (w *World) Ask(_ context.Context, q fixture.Question) (fixture.Answer, error) {
	p, err := w.packet(q)
	if err != nil {
		return fixture.Answer{}, err
	}
	return w.answer(q, p, w.kernel.Trace(p, w.choose)), nil
}

// choose decides as a fair kernel does.
func (w *World) choose(probability float64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.random.Float64() < probability
}

// packet is the first packet of a connection as it arrives at the node.
func (w *World) packet(q fixture.Question) (nftmodel.Packet, error) {
	ports := map[string]string{
		"p1": w.options.PodPort, "a": "veth-a", "a2": "veth-a2", "x": "eth-x", "y": "eth-y", "p2": "eth0", "n2": "eth0",
		// What a process of the node sends has come through no interface.
		"node": "",
	}
	port, known := ports[q.From]
	if !known {
		return nftmodel.Packet{}, fmt.Errorf("there is no client %q", q.From)
	}
	from := fixture.MustAddress(q.Family, q.From)
	switch {
	case q.Source.IsValid():
		from = q.Source.Addr()
	case q.From == "node" && local(q.To.Addr()):
		from = q.To.Addr()
	case q.From == "node" && !fixture.MustPrefix(q.Family, "pods2").Contains(q.To.Addr()):
		// The default route leaves by the other interface.
		from = fixture.MustAddress(q.Family, "second")
	}
	return nftmodel.Packet{Src: netip.AddrPortFrom(from, clientPort), Dst: q.To, Protocol: q.Protocol, In: port}, nil
}

func local(a netip.Addr) bool {
	for _, own := range hostAddresses() {
		if own == a {
			return true
		}
	}
	return a.IsLoopback()
}

// answer tells what the client learns of what became of its packet.
func (w *World) answer(q fixture.Question, p nftmodel.Packet, t nftmodel.Trace) fixture.Answer {
	switch t.Verdict {
	case nftmodel.Rejected:
		return fixture.Answer{Fate: fixture.Refused}
	case nftmodel.Dropped:
		return fixture.Answer{Fate: fixture.Silent}
	}
	source := fixture.AsClient
	if t.Masqueraded || (local(p.Src.Addr()) && !q.Source.IsValid()) {
		source = fixture.AsNode
	}
	switch who := fixture.WhoIs(t.To); {
	case who == "":
		return fixture.Answer{Fate: w.unanswered(t.To.Addr())}
	case t.To.Addr() == p.Src.Addr() && !t.Masqueraded && q.From != "node":
		// A host takes no packet that claims to be from itself.
		return fixture.Answer{Fate: fixture.Silent}
	default:
		return fixture.Answer{Name: who, Source: source}
	}
}

// unanswered is what happens where nothing listens: a host that exists refuses.
func (w *World) unanswered(a netip.Addr) fixture.Fate {
	if local(a) || fixture.Exists(a) {
		return fixture.Refused
	}
	return fixture.Silent
}
