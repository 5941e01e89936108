package conformance

import (
	"net/netip"

	"github.com/sluice-proxy/sluice/service"
)

// stickiness is the affinity timeout that Kubernetes defaults to, in seconds.
const stickiness = 10800

// sticks connects many times and gives the one endpoint that answered.
func (s *scene) sticks(protocol service.Protocol, from Client, to netip.AddrPort) netip.AddrPort {
	s.Helper()
	q := Question{From: from, To: to, Protocol: protocol, Patience: answerPatience}
	first := s.node.Probe.Ask(s.T, q)
	for range 20 { // an endpoint out of two is the same by chance once in a million
		if got := s.node.Probe.Ask(s.T, q); got.Fate != Answered || got.Endpoint != first.Endpoint {
			s.Fatalf("%v: got %v after %v", q, got, first)
		}
	}
	return first.Endpoint
}

// affinityCase: S-AFF-01, S-AFF-05, S-AFF-06, S-AFF-09.
func affinityCase(s *scene) {
	spec := s.Spec()
	spec.AffinitySeconds = stickiness
	s.apply(spec, s.Slice(s.A, s.B, s.C))
	first := s.sticks(service.TCP, FromPod, s.clusterIP())

	var left []netip.Addr
	for _, addr := range []netip.Addr{s.A, s.B, s.C} {
		if addr != first.Addr() {
			left = append(left, addr)
		}
	}
	s.apply(spec, s.Slice(left...))
	if second := s.sticks(service.TCP, FromPod, s.clusterIP()); second == first {
		s.Errorf("%v still answers after it was removed", first)
	}

	s.apply(s.Spec(), s.Slice(s.A, s.B))
	s.expect(FromPod, s.clusterIP(), reaches(OwnSource, s.A, s.B))

	spec.Ports[0].Protocol = service.UDP
	datagrams := s.Slice(s.A, s.B)
	datagrams.Ports[0].Protocol = service.UDP
	s.apply(spec, datagrams)
	s.sticks(service.UDP, FromPod, s.clusterIP())
}

// affinityAcrossCase: S-AFF-07, S-AFF-08, S-AFF-10: an affinity belongs to the
// service port, whichever frontend is used, and outlives the process.
func affinityAcrossCase(s *scene) {
	spec := s.Exposed()
	spec.AffinitySeconds = stickiness
	s.apply(spec, s.Slice(s.A, s.B, s.C))
	endpoint := s.sticks(service.TCP, FromPod, s.clusterIP())
	for _, to := range s.external() {
		if got := s.sticks(service.TCP, FromPod, to); got != endpoint {
			s.Errorf("%v answers at %v, %v at the ClusterIP", got, to, endpoint)
		}
	}
	s.restart()
	s.Serve(spec, s.Slice(s.A, s.B, s.C))
	s.Audit(s.T)
	s.Converge(s.T)
	if got := s.sticks(service.TCP, FromPod, s.clusterIP()); got != endpoint {
		s.Errorf("%v answers after a restart, %v before", got, endpoint)
	}

	spec.ExternalLocal = true
	s.apply(spec, s.Slice(s.A, s.B, s.C))
	if got := s.sticks(service.TCP, FromOutside, s.vip()); got.Addr() != s.A {
		s.Errorf("%v answers from outside, want the local endpoint", got)
	}
	if got := s.sticks(service.TCP, FromPod, s.vip()); got != endpoint {
		s.Errorf("%v answers a pod under policy Local, %v under Cluster", got, endpoint)
	}
}
