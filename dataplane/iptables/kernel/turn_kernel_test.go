// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/dataplane/ledger"
	"github.com/sluice-proxy/sluice/service"
)

// aService is the n-th Service, with ports from a number on. Its endpoints are from a number on.
func aService(n, ports, firstPort, endpoints, from int) *service.View {
	view := &service.View{Key: service.Key{Namespace: "ns", Name: fmt.Sprint("svc", n)}}
	for p := range ports {
		port := service.PortView{
			Name: fmt.Sprint("p", p), Port: uint16(firstPort + p), HasAny: true,
			ClusterIP: netip.AddrFrom4([4]byte{172, 16, byte(n >> 8), byte(n)}),
		}
		for i := from; i < from+endpoints; i++ {
			addr := netip.AddrFrom4([4]byte{10, byte(n), byte(i >> 8), byte(i)})
			port.Cluster = append(port.Cluster, service.Endpoint{AddrPort: netip.AddrPortFrom(addr, 80)})
		}
		view.Ports[service.IPv4] = append(view.Ports[service.IPv4], port)
	}
	return view
}

// pipeline is a ledger in front of a writer that divides.
type pipeline struct {
	*kernelTest
	renderer *render.Renderer
	ledger   *ledger.Ledger
	facts    service.NodeFacts
	sequence uint64
}

func newPipeline(k *kernelTest, most int) *pipeline {
	p := &pipeline{kernelTest: k, renderer: render.NewRenderer(service.IPv4, render.Options{MasqueradeBit: 14})}
	p.facts.Name = "n1"
	k.writer = NewWriter(service.IPv4, k.tool, WriterConfig{TurnSize: most})
	p.ledger = ledger.New(render.NewLayout(service.IPv4), p.renderer.Naming(), nil)
	p.want(service.Node, p.renderer.Node(&p.facts))
	p.serve(aService(7, 1, 80, 3, 0))
	p.write()
	return p
}

func (p *pipeline) want(key service.Key, objects []dataplane.Object) {
	p.sequence++
	f := dataplane.NewFragment(key, objects)
	f.Revision = service.Revision{Incarnation: 1, Sequence: p.sequence}
	f.Gone = key != service.Node && len(objects) == 0
	p.ledger.Want(f)
}

func (p *pipeline) serve(view *service.View) {
	p.want(view.Key, p.renderer.Service(context.Background(), view, &p.facts))
}

// write makes one write.
func (p *pipeline) write() (*dataplane.Batch, dataplane.Receipt) {
	p.Helper()
	batch := p.ledger.PlanPart(p.writer.Cut)
	receipt := p.writer.Write(p.Context(), batch)
	if receipt.Outcome != dataplane.Landed {
		p.Fatalf("write: %v", receipt)
	}
	p.ledger.Settle(batch, receipt)
	return batch, receipt
}

// left returns what the last write left.
func (p *pipeline) left() []dataplane.Change {
	if batch := p.ledger.Plan(); batch != nil {
		return batch.Changes
	}
	return nil
}

// TestKernelTurns_LargeServiceDivided: the first write of a large Service and a change of all its endpoints are
// divided. Each write contains the endpoints of other Services and a limited number of lines, and in the end the kernel
// has the wanted rules.
func TestKernelTurns_LargeServiceDivided(t *testing.T) {
	onFamilies(t, []service.Family{service.IPv4}, func(k *kernelTest) {
		const most = 100 // two ports with 100 endpoints
		p := newPipeline(k, most)
		other := 0
		turns := func(name string, least, lines int) {
			k.Helper()
			for n := 1; ; n++ {
				other++
				p.serve(aService(7, 1, 80, 3, other))
				batch, receipt := p.write()
				for _, c := range p.left() {
					if c.Owner.Name == "svc7" {
						k.Errorf("%s, turn %d: the endpoints of another Service wait", name, n)
					}
				}
				if receipt.Written.Lines > lines {
					k.Errorf("%s, turn %d: %d lines, want at most %d", name, n, receipt.Written.Lines, lines)
				}
				if batch.Left == 0 {
					if n < least {
						k.Errorf("%s: %d turns, want at least %d", name, n, least)
					}
					break
				}
			}
			objects, err := k.writer.Read(k.Context())
			if err != nil {
				k.Fatal(err)
			}
			if drift := p.ledger.Observe(objects); drift.Any() || p.ledger.Stats().Dirty > 0 {
				k.Errorf("%s: %+v", name, drift)
			}
		}
		p.serve(aService(8, 20, 1000, 100, 0))
		p.serve(aService(9, 1, 80, 1, 0)) // comes at the same time
		turns("first", 10, 300)
		p.serve(aService(8, 20, 1000, 100, 100))
		turns("all endpoints change", 10, 300)
		p.serve(aService(8, 20, 1000, 20, 180))
		turns("scaled down", 2, 600)
		p.serve(aService(8, 20, 2000, 100, 0))
		p.serve(aService(10, 20, 2000, 100, 0))
		turns("a frontend moves with its endpoints, and a second Service comes", 10, 2500)
		p.want(aService(8, 0, 0, 0, 0).Key, nil)
		turns("last", 1, 300)
	})
}

// TestKernelTurns_TiedChangesWaitIsBounded: while large Services are added all the time, tied changes of another
// Service are written after a limited number of turns.
func TestKernelTurns_TiedChangesWaitIsBounded(t *testing.T) {
	onFamilies(t, []service.Family{service.IPv4}, func(k *kernelTest) {
		p := newPipeline(k, 20)
		p.serve(aService(9, 1, 80, 1, 0))
		for n := range 2*dataplane.WaitedMax + 2 {
			p.serve(aService(20+n, 2, 80, 100, 0))
			if p.write(); p.ledger.Whole(aService(9, 0, 0, 0, 0).Key) {
				if n < 5 {
					k.Errorf("written after %d turns: nothing waits", n)
				}
				return
			}
		}
		k.Errorf("a Service waits for more than %d turns", 2*dataplane.WaitedMax)
	})
}
