// SPDX-License-Identifier: Apache-2.0

package model

import (
	"context"
	"net/netip"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/nftmodel"
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
	p, err := fixture.PacketOf(q, w.options.PodPort, local)
	return nftmodel.Packet{Src: netip.AddrPortFrom(p.From, clientPort), Dst: q.To, Protocol: q.Protocol, In: p.In}, err
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
	return fixture.AnswerTo(q, p.Src.Addr(), local, fixture.End{
		Refused: t.Verdict == nftmodel.Rejected, Dropped: t.Verdict == nftmodel.Dropped, To: t.To, Masqueraded: t.Masqueraded,
	})
}
