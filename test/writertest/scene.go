// SPDX-License-Identifier: Apache-2.0

package writertest

import (
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// Scene is one case at work: a fresh node, and a pipeline into it.
type Scene struct {
	*testing.T
	Fixture
	*Pipeline
	harness Harness
	node    Node
	// asking are the connection attempts under way.
	asking sync.WaitGroup
}

// OpenScene opens a node with an empty kernel and starts a process that knows nothing yet.
func OpenScene(t *testing.T, h Harness) *Scene {
	t.Helper()
	world := NewFixture(h.Family)
	s := &Scene{T: t, Fixture: world, harness: h, node: h.Open(t, world)}
	s.start(world.Facts())
	return s
}

func (s *Scene) start(facts service.NodeFacts) {
	s.Pipeline = NewPipeline(s.harness, s.node.NewWriter(), facts)
	s.beforeWrite = s.asking.Wait
}

// restart replaces the process by one that knows nothing.
func (s *Scene) restart() { s.start(s.facts) }

// apply serves the Service and writes.
func (s *Scene) apply(spec service.Spec, slices ...*service.Slice) {
	s.Helper()
	s.Serve(spec, slices...)
	s.Converge(s.T)
}

// externalLocal is the exposed Service with externalTrafficPolicy Local.
func (s *Scene) externalLocal() service.Spec {
	spec := s.Exposed()
	spec.ExternalLocal = true
	return spec
}

// neighbor is a Service with a separate ClusterIP.
func (s *Scene) neighbor() service.Spec {
	other := s.Spec()
	other.Key.Name = "svc2"
	other.ClusterIPs[s.Family] = s.OtherClusterIP
	return other
}

// ExpectEqual fails unless the kernel holds exactly the desired objects.
func (s *Scene) ExpectEqual(when string) {
	s.Helper()
	if drift := s.Audit(s.T); drift.Any() {
		s.Errorf("%s: the kernel differs: %+v, %s", when, drift, names(s.Plan().Changes))
	}
}

// silencePatience is how long a client waits where silence is allowed: waiting too briefly can only hide an answer.
const silencePatience = 250 * time.Millisecond

// Questions are connections to the frontends of the exposed Service.
func (s *Scene) Questions() []Question {
	clusterIP, vip := netip.AddrPortFrom(s.ClusterIP, servicePort), netip.AddrPortFrom(s.VIP, servicePort)
	return []Question{
		{From: FromPod, To: clusterIP}, {From: FromNode, To: clusterIP},
		{From: FromOutside, To: netip.AddrPortFrom(s.Node, nodePort)}, {From: FromOutside, To: vip},
	}
}

// ExpectFates fails when a connection ends in another way. It asks in the background, and the next
// write waits for the answers: silence takes long, and so does a refusal over IPv6. (The ICMPv6
// error arrives within the connect call, where the kernel treats it as a soft error, so TCP sends
// again after a second; seen with Linux 6.18.)
func (s *Scene) ExpectFates(questions []Question, fates ...Fate) {
	s.Helper()
	for _, q := range questions {
		q.Patience = testenv.Patience
		if slices.Contains(fates, Silent) {
			q.Patience = silencePatience
		}
		s.asking.Go(func() {
			if got := s.node.Network.Ask(s.T, q); !slices.Contains(fates, got.Fate) {
				s.Errorf("%v: got %v, want one of %v", q, got, fates)
			}
		})
	}
}

// Await waits for the connection attempts under way.
func (s *Scene) Await() { s.asking.Wait() }
