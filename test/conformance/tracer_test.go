package conformance

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/sluice-proxy/sluice/test/nftmodel"
)

// Tracer is the probe of an in-memory kernel: it follows the first packet of
// each connection, and knows what stands behind the addresses of the fixture.
type Tracer struct {
	kernel *nftmodel.Kernel
	world  Fixture
	// others are the addresses that answer without being endpoints.
	others []netip.AddrPort

	mu     sync.Mutex
	random *rand.Rand
}

// NewTracer asks a kernel, to which it gives the node's addresses. The seed decides what
// chance does.
func NewTracer(kernel *nftmodel.Kernel, world Fixture, seed uint64) *Tracer {
	kernel.SetAddresses(world.NodeAddresses()...)
	return &Tracer{
		kernel: kernel, world: world,
		others: append(world.beyond(), world.hostServices()...),
		random: rand.New(rand.NewPCG(seed, 0)),
	}
}

// NodeAddresses are the addresses that the node under test has, besides the
// loopback ones.
func (f Fixture) NodeAddresses() []netip.Addr { return []netip.Addr{f.Node, f.Second} }

// Ask implements [Probe]. It never waits.
func (p *Tracer) Ask(_ *testing.T, q Question) Answer {
	return p.answer(q.From, p.kernel.Trace(p.Packet(q), p.choose))
}

// choose decides as a fair kernel does.
func (p *Tracer) choose(probability float64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.random.Float64() < probability
}

// Packet returns the first packet of a connection.
func (p *Tracer) Packet(q Question) nftmodel.Packet {
	from := p.world.address(q.From)
	if q.From == FromNode && q.To.Addr().IsLoopback() {
		from = p.world.Loopback
	}
	return nftmodel.Packet{
		Src:      netip.AddrPortFrom(from, 40000),
		Dst:      q.To,
		Protocol: q.Protocol,
		// What a process of the node sends has come through no interface.
		In: [...]string{podInterface, "veth-a", "", "eth-x", "eth-y"}[q.From],
	}
}

// answer tells what the client sees of a trace.
func (p *Tracer) answer(from Client, trace nftmodel.Trace) Answer {
	switch {
	case trace.Verdict == nftmodel.Rejected:
		return Answer{Fate: Refused}
	case trace.Verdict == nftmodel.Dropped:
		return Answer{Fate: Silent}
	case trace.Verdict == nftmodel.Untouched && slices.Contains(p.others, trace.To):
		return Answer{Fate: Through}
	case slices.Contains(p.world.backends(), trace.To):
		source := OwnSource
		if trace.Masqueraded || from == FromNode {
			source = NodeSource
		}
		return Answer{Fate: Answered, Endpoint: trace.To, Source: source}
	case p.world.exists(trace.To.Addr()):
		return Answer{Fate: Refused}
	default:
		return Answer{Fate: Silent}
	}
}
