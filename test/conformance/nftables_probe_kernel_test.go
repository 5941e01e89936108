package conformance

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/nftmodel"
)

// TestNftablesProbesAgree writes the same Services into the real kernel and into
// the one in memory: for every client and every frontend, what the tracer answers is
// what sockets see.
func TestNftablesProbesAgree(t *testing.T) {
	for _, family := range service.Families {
		for name, change := range probedSpecs() {
			t.Run(fmt.Sprintf("%v/%s", family, name), func(t *testing.T) {
				t.Parallel()
				sides := []*scene{openScene(t, nftablesHarness(family)), openScene(t, nftablesMemoryHarness(family, nftmodel.NewKernel))}
				for _, s := range sides {
					change(s)
				}
				compareAnswers(t, sides[0], sides[1].node.Probe)
			})
		}
	}
}

// probedSpecs serve one endpoint, so that chance decides nothing.
func probedSpecs() map[string]func(*scene) {
	return map[string]func(*scene){
		"one endpoint here": func(s *scene) { s.apply(s.Exposed(), s.Slice(s.A)) },
		"one endpoint elsewhere": func(s *scene) {
			spec := s.Exposed()
			spec.AffinitySeconds = stickiness
			s.apply(spec, s.Slice(s.B))
		},
		"nobody":      func(s *scene) { s.apply(s.Exposed()) },
		"local alone": func(s *scene) { s.apply(s.externalLocal(), s.Slice(s.B)) },
		"source ranges": func(s *scene) {
			spec := s.Exposed()
			spec.SourceRanges[s.Family] = []netip.Prefix{s.Allowed}
			s.apply(spec, s.Slice(s.A))
		},
		"masquerade all": func(s *scene) {
			s.withFacts(func(facts *service.NodeFacts) { facts.MasqueradeAll = true })
			s.apply(s.Exposed(), s.Slice(s.A))
		},
	}
}

// compareAnswers asks sockets what the tracer has answered.
func compareAnswers(t *testing.T, real *scene, tracer Probe) {
	t.Helper()
	var asking sync.WaitGroup
	defer asking.Wait()
	to := append(real.external(), real.clusterIP(), netip.AddrPortFrom(real.OtherClusterIP, servicePort),
		netip.AddrPortFrom(real.ClusterIP, servicePort+1), netip.AddrPortFrom(real.Second, nodePort), netip.AddrPortFrom(real.A, endpointPort))
	for _, to := range to {
		for from := FromPod; from <= FromStranger; from++ {
			q := Question{From: from, To: to, Patience: answerPatience}
			want := tracer.Ask(t, q)
			if want.Fate == Silent {
				q.Patience = silencePatience
			}
			asking.Go(func() {
				if got := real.node.Probe.Ask(t, q); got != want {
					t.Errorf("%v: sockets see %v, the tracer says %v", q, got, want)
				}
			})
		}
	}
}
