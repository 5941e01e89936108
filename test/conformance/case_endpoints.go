package conformance

import (
	"net/netip"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// clusterIPCase: S-CIP-01 to S-CIP-03.
func clusterIPCase(s *scene) {
	s.apply(s.Spec(), s.Slice(s.A, s.B))
	s.expect(FromPod, s.clusterIP(), reaches(OwnSource, s.A, s.B))
	s.expect(FromNode, s.clusterIP(), reaches(NodeSource, s.A, s.B))
	s.expect(FromOutside, s.clusterIP(), reaches(NodeSource, s.A, s.B))
}

// scaleCase: S-CIP-18 and related.
func scaleCase(s *scene) {
	for _, endpoints := range [][]netip.Addr{
		{s.A}, {s.A, s.B, s.C}, {s.B, s.C}, {s.C}, {s.A}, {s.B, s.C},
	} {
		s.apply(s.Exposed(), s.Slice(endpoints...))
		s.expect(FromPod, s.clusterIP(), reaches(OwnSource, endpoints...))
		s.expect(FromOutside, s.nodePort(), reaches(NodeSource, endpoints...))
	}
}

// deleteCase: S-CIP-19, S-NP-20, and another Service that gets the address.
func deleteCase(s *scene) {
	s.apply(s.Exposed(), s.Slice(s.A))
	s.expect(FromPod, s.clusterIP(), reaches(OwnSource, s.A))
	s.apply(s.Spec(), s.Slice(s.A))
	for _, to := range s.external() {
		s.expect(FromOutside, to, through)
	}
	s.Forget(serviceKey)
	s.Converge(s.T)
	s.expect(FromPod, s.clusterIP(), s.unallocated())

	heir := s.Spec()
	heir.Key.Name = "heir"
	s.apply(heir, s.Slice(s.B))
	s.expect(FromPod, s.clusterIP(), reaches(OwnSource, s.B))
}

// twoServicesCase: neighbours do not disturb each other.
func twoServicesCase(s *scene) {
	other := s.Spec()
	other.Key.Name = "svc2"
	other.ClusterIPs[s.Family] = s.OtherClusterIP
	otherIP := netip.AddrPortFrom(s.OtherClusterIP, servicePort)
	s.Serve(other, s.Slice(s.B))
	s.apply(s.Spec(), s.Slice(s.A))
	s.expect(FromPod, s.clusterIP(), reaches(OwnSource, s.A))
	s.expect(FromPod, otherIP, reaches(OwnSource, s.B))
	s.apply(s.Spec())
	s.expect(FromPod, s.clusterIP(), refuses)
	s.expect(FromPod, otherIP, reaches(OwnSource, s.B))
	s.Forget(serviceKey)
	s.Converge(s.T)
	s.expect(FromPod, otherIP, reaches(OwnSource, s.B))
}

// commonEndpointCase: an endpoint behind two Services keeps serving one of them when the other
// goes.
func commonEndpointCase(s *scene) {
	other := s.Spec()
	other.Key.Name = "svc2"
	other.Created = other.Created.Add(time.Hour)
	other.ClusterIPs[s.Family] = s.OtherClusterIP
	otherIP := netip.AddrPortFrom(s.OtherClusterIP, servicePort)
	for _, leaves := range []service.Key{serviceKey, other.Key} {
		s.Serve(other, s.Slice(s.A))
		s.apply(s.Spec(), s.Slice(s.A))
		s.expect(FromBackend, s.clusterIP(), reaches(NodeSource, s.A))
		s.expect(FromBackend, otherIP, reaches(NodeSource, s.A))
		s.Forget(leaves)
		s.Converge(s.T)
		stays := otherIP
		if leaves == other.Key {
			stays = s.clusterIP()
		}
		s.expect(FromBackend, stays, reaches(NodeSource, s.A))
		s.expect(FromPod, stays, reaches(OwnSource, s.A))
	}
}

// masqueradeAllCase: S-CIP-04.
func masqueradeAllCase(s *scene) {
	s.withFacts(func(f *service.NodeFacts) { f.MasqueradeAll = true })
	s.apply(s.Spec(), s.Slice(s.A, s.B))
	s.expect(FromPod, s.clusterIP(), reaches(NodeSource, s.A, s.B))
}

// noDetectionCase: S-CIP-05.
func noDetectionCase(s *scene) {
	s.withFacts(func(f *service.NodeFacts) { f.Detect[s.Family] = service.LocalDetector{} })
	s.apply(s.Spec(), s.Slice(s.A, s.B))
	s.expect(FromPod, s.clusterIP(), reaches(OwnSource, s.A, s.B))
	s.expect(FromOutside, s.clusterIP(), reaches(OwnSource, s.A, s.B))
	s.expect(FromNode, s.clusterIP(), reaches(NodeSource, s.A, s.B))
}

// interfaceDetectionCase: S-CIP-24, S-CIP-25, with the node's interfaces to its pods, which have
// the same names in both worlds.
func interfaceDetectionCase(s *scene) {
	s.withFacts(func(f *service.NodeFacts) {
		f.Detect[s.Family] = service.LocalDetector{Interface: podInterface}
	})
	s.apply(s.externalLocal(), s.Slice(s.B))
	s.expect(FromPod, s.clusterIP(), reaches(OwnSource, s.B))
	s.expect(FromBackend, s.clusterIP(), reaches(NodeSource, s.B))
	s.expect(FromNode, s.clusterIP(), reaches(NodeSource, s.B))
	s.expect(FromPod, s.vip(), reaches(OwnSource, s.B))
	s.expect(FromBackend, s.vip(), silence)

	s.withFacts(func(f *service.NodeFacts) {
		f.Detect[s.Family] = service.LocalDetector{Interface: podInterfaces}
	})
	s.apply(s.externalLocal(), s.Slice(s.B))
	s.expect(FromBackend, s.clusterIP(), reaches(OwnSource, s.B))
	s.expect(FromBackend, s.vip(), reaches(OwnSource, s.B))
	s.expect(FromOutside, s.clusterIP(), reaches(NodeSource, s.B))
}

// hairpinCase: S-CIP-10.
func hairpinCase(s *scene) {
	s.apply(s.Spec(), s.Slice(s.A, s.B))
	s.expect(FromBackend, s.clusterIP(), reaches(NodeSource, s.A).and(reaches(OwnSource, s.B)))
	s.apply(s.Spec(), s.Slice(s.A))
	s.expect(FromBackend, s.clusterIP(), reaches(NodeSource, s.A))
}

// hostBackendCase: S-CIP-11.
func hostBackendCase(s *scene) {
	s.apply(s.Exposed(), s.Slice(s.Node))
	s.expect(FromNode, s.clusterIP(), reaches(NodeSource, s.Node))
	s.expect(FromPod, s.clusterIP(), reaches(OwnSource, s.Node))
	s.expect(FromNode, s.nodePort(), reaches(NodeSource, s.Node))
}

// noEndpointsCase: S-CIP-06, S-CIP-07, S-CIP-09, S-NP-12, S-NP-13, S-LB-07, S-LB-08 (where
// kube-proxy's iptables backend lets the packet leave the node).
func noEndpointsCase(s *scene) {
	unready := s.Slice(s.A)
	unready.Endpoints[0].Ready = false
	s.apply(s.Exposed(), unready)
	for _, from := range []Client{FromPod, FromNode, FromOutside} {
		s.expect(from, s.clusterIP(), refuses)
		for _, to := range s.external() {
			s.expect(from, to, refuses)
		}
	}
}

// endpointsComeAndGoCase: from rejecting to serving and back.
func endpointsComeAndGoCase(s *scene) {
	for range 2 {
		s.apply(s.Exposed())
		s.expect(FromPod, s.clusterIP(), refuses)
		s.expect(FromOutside, s.nodePort(), refuses)
		s.expect(FromOutside, s.vip(), refuses)
		s.apply(s.Exposed(), s.Slice(s.B))
		s.expect(FromPod, s.clusterIP(), reaches(OwnSource, s.B))
		s.expect(FromOutside, s.nodePort(), reaches(NodeSource, s.B))
		s.expect(FromOutside, s.vip(), reaches(NodeSource, s.B))
	}
}

// udpCase: S-CIP-08, S-CIP-15, S-NP-15.
func udpCase(s *scene) {
	spec := s.Exposed()
	spec.Ports = append(spec.Ports, service.Port{Name: "u80", Protocol: service.UDP, Port: servicePort, NodePort: nodePort})
	datagrams := s.Slice(s.A, s.B)
	datagrams.Name = "svc1-2"
	datagrams.Ports[0] = service.SlicePort{Name: "u80", Protocol: service.UDP, Port: endpointPort}
	s.apply(spec, s.Slice(s.C), datagrams)
	s.expect(FromPod, s.clusterIP(), reaches(OwnSource, s.C))
	s.expectOver(service.UDP, FromPod, s.clusterIP(), reaches(OwnSource, s.A, s.B))
	s.expectOver(service.UDP, FromNode, s.clusterIP(), reaches(NodeSource, s.A, s.B))
	for _, to := range s.external() {
		s.expect(FromOutside, to, reaches(NodeSource, s.C))
		s.expectOver(service.UDP, FromOutside, to, reaches(NodeSource, s.A, s.B))
	}
	s.apply(spec, s.Slice(s.C))
	s.expectOver(service.UDP, FromPod, s.clusterIP(), refuses)
	s.expect(FromPod, s.clusterIP(), reaches(OwnSource, s.C))
}

// stickiness is Kubernetes' default affinity timeout, in seconds.
const stickiness = 10800

// sticks connects many times and returns the one endpoint that answered.
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

// affinityAcrossCase: S-AFF-07, S-AFF-08, S-AFF-10: an affinity belongs to the service port,
// whichever frontend is used, and outlives the process.
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
