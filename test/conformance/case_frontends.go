package conformance

import (
	"net/netip"

	"github.com/sluice-proxy/sluice/service"
)

// nodePortCase: S-NP-01 to S-NP-04, S-NP-16.
func nodePortCase(s *scene) {
	spec := s.Spec()
	spec.Ports[0].NodePort = nodePort
	s.apply(spec, s.Slice(s.A, s.B))
	second := netip.AddrPortFrom(s.Second, nodePort)
	s.expect(FromOutside, s.nodePort(), reaches(NodeSource, s.A, s.B))
	s.expect(FromOutside, second, reaches(NodeSource, s.A, s.B))
	s.expect(FromPod, s.nodePort(), reaches(NodeSource, s.A, s.B))
	s.expect(FromNode, s.nodePort(), reaches(NodeSource, s.A, s.B))
	s.expect(FromNode, second, reaches(NodeSource, s.A, s.B))
}

// loopbackNodePortCase: S-NP-05, S-NP-06, S-ETP-04.
func loopbackNodePortCase(s *scene) {
	loopback := netip.AddrPortFrom(s.Loopback, nodePort)
	for _, local := range []bool{false, true} {
		spec := s.Exposed()
		spec.ExternalLocal = local
		s.apply(spec, s.Slice(s.A, s.B))
		if s.harness.LoopbackNodePorts && s.Family == service.IPv4 {
			s.expect(FromNode, loopback, reaches(NodeSource, s.A, s.B))
		} else {
			s.expect(FromNode, loopback, through)
		}
	}
}

// noLoopbackNodePortCase: S-NP-07.
func noLoopbackNodePortCase(s *scene) {
	s.withFacts(func(f *service.NodeFacts) { f.LocalhostNodePorts = false })
	s.apply(s.Exposed(), s.Slice(s.A, s.B))
	s.expect(FromNode, netip.AddrPortFrom(s.Loopback, nodePort), through)
	s.expect(FromNode, s.nodePort(), reaches(NodeSource, s.A, s.B))
}

// listedNodePortCase: S-NP-08.
func listedNodePortCase(s *scene) {
	s.withFacts(func(f *service.NodeFacts) {
		f.NodePorts[s.Family] = service.NodePortAddresses{Addresses: []netip.Addr{s.Node}}
	})
	s.apply(s.Exposed(), s.Slice(s.A, s.B))
	second := netip.AddrPortFrom(s.Second, nodePort)
	s.expect(FromOutside, s.nodePort(), reaches(NodeSource, s.A, s.B))
	s.expect(FromOutside, second, through)

	s.withFacts(func(f *service.NodeFacts) {
		f.NodePorts[s.Family] = service.NodePortAddresses{Addresses: []netip.Addr{s.Second}}
	})
	s.apply(s.Exposed(), s.Slice(s.A, s.B))
	s.expect(FromOutside, s.nodePort(), through)
	s.expect(FromOutside, second, reaches(NodeSource, s.A, s.B))
}

// unlistedNodePortCase: S-NP-10.
func unlistedNodePortCase(s *scene) {
	s.withFacts(func(f *service.NodeFacts) { f.NodePorts[s.Family] = service.NodePortAddresses{} })
	s.apply(s.Exposed(), s.Slice(s.A, s.B))
	s.expect(FromOutside, s.nodePort(), through)
	s.expect(FromPod, s.clusterIP(), reaches(OwnSource, s.A, s.B))
	s.expect(FromOutside, s.vip(), reaches(NodeSource, s.A, s.B))
}

// externalClusterCase: S-LB-01 to S-LB-03, S-EXT-01.
func externalClusterCase(s *scene) {
	s.apply(s.Exposed(), s.Slice(s.A, s.B))
	for _, to := range s.external() {
		for _, from := range []Client{FromPod, FromNode, FromOutside, FromStranger} {
			s.expect(from, to, reaches(NodeSource, s.A, s.B))
		}
	}
}

// ownExternalIPCase: S-EXT-03, S-LB-09.
func ownExternalIPCase(s *scene) {
	spec := s.Spec()
	spec.ExternalIPs[s.Family] = []netip.Addr{s.Second}
	own := netip.AddrPortFrom(s.Second, servicePort)
	s.apply(spec, s.Slice(s.A, s.B))
	s.expect(FromOutside, own, reaches(NodeSource, s.A, s.B))
	s.expect(FromNode, own, reaches(NodeSource, s.A, s.B))
	s.apply(spec)
	s.expect(FromOutside, own, refuses)
}

// sourceRangesCase: S-SRC-01 to S-SRC-03, S-SRC-06, S-SRC-10, S-SRC-12.
func sourceRangesCase(s *scene) {
	spec := s.Exposed()
	spec.SourceRanges[s.Family] = []netip.Prefix{s.Allowed}
	s.apply(spec, s.Slice(s.A, s.B))
	s.expect(FromOutside, s.vip(), reaches(NodeSource, s.A, s.B))
	for _, from := range []Client{FromStranger, FromPod, FromNode} {
		s.expect(from, s.vip(), silence)
	}
	for _, to := range []netip.AddrPort{s.clusterIP(), s.nodePort(), s.externalIP()} {
		s.expect(FromStranger, to, reaches(NodeSource, s.A, s.B))
	}
	s.apply(s.Exposed(), s.Slice(s.A, s.B))
	s.expect(FromStranger, s.vip(), reaches(NodeSource, s.A, s.B))
}

// wideSourceRangesCase: S-SRC-04, S-SRC-05.
func wideSourceRangesCase(s *scene) {
	spec := s.Exposed()
	node := netip.PrefixFrom(s.Node, s.Node.BitLen())
	spec.SourceRanges[s.Family] = []netip.Prefix{s.Allowed, s.ClusterCIDR, node}
	s.apply(spec, s.Slice(s.A, s.B))
	for _, from := range []Client{FromOutside, FromPod, FromNode} {
		s.expect(from, s.vip(), reaches(NodeSource, s.A, s.B))
	}
	s.expect(FromStranger, s.vip(), silence)
}

// localSourceRangesCase: S-SRC-13.
func localSourceRangesCase(s *scene) {
	spec := s.Exposed()
	spec.ExternalLocal = true
	spec.SourceRanges[s.Family] = []netip.Prefix{s.Allowed}
	s.apply(spec, s.Slice(s.A, s.B))
	s.expect(FromOutside, s.vip(), reaches(OwnSource, s.A))
	s.expect(FromStranger, s.vip(), silence)
	s.expect(FromStranger, s.nodePort(), reaches(OwnSource, s.A))
}

// externalLocal is the exposed Service with externalTrafficPolicy Local.
func (s *scene) externalLocal() service.Spec {
	spec := s.Exposed()
	spec.ExternalLocal = true
	return spec
}

// externalLocalCase: S-ETP-01 to S-ETP-03, S-ETP-10, S-EXT-02.
func externalLocalCase(s *scene) {
	s.apply(s.externalLocal(), s.Slice(s.A, s.B))
	for _, to := range s.external() {
		s.expect(FromOutside, to, reaches(OwnSource, s.A))
		s.expect(FromPod, to, reaches(OwnSource, s.A, s.B))
		s.expect(FromNode, to, reaches(NodeSource, s.A, s.B))
	}
	s.expect(FromPod, s.clusterIP(), reaches(OwnSource, s.A, s.B))
}

// externalLocalRemoteCase: S-ETP-05 to S-ETP-07.
func externalLocalRemoteCase(s *scene) {
	s.apply(s.externalLocal(), s.Slice(s.B))
	for _, to := range s.external() {
		s.expect(FromOutside, to, silence)
		s.expect(FromPod, to, reaches(OwnSource, s.B))
		s.expect(FromNode, to, reaches(NodeSource, s.B))
	}
	s.expect(FromPod, s.clusterIP(), reaches(OwnSource, s.B))
}

// externalLocalNoDetectionCase: S-ETP-09.
func externalLocalNoDetectionCase(s *scene) {
	s.withFacts(func(f *service.NodeFacts) { f.Detect[s.Family] = service.LocalDetector{} })
	s.apply(s.externalLocal(), s.Slice(s.B))
	s.expect(FromPod, s.vip(), silence)
	s.expect(FromNode, s.vip(), reaches(NodeSource, s.B))
	s.apply(s.externalLocal(), s.Slice(s.A, s.B))
	s.expect(FromPod, s.vip(), reaches(OwnSource, s.A))
}

// externalLocalNobodyCase: S-ETP-08.
func externalLocalNobodyCase(s *scene) {
	s.apply(s.externalLocal())
	for _, to := range s.external() {
		for _, from := range []Client{FromPod, FromNode, FromOutside} {
			s.expect(from, to, refuses)
		}
	}
}

// externalSwitchCase: S-ETP-12.
func externalSwitchCase(s *scene) {
	for range 2 {
		s.apply(s.externalLocal(), s.Slice(s.A, s.B))
		s.expect(FromOutside, s.nodePort(), reaches(OwnSource, s.A))
		s.apply(s.Exposed(), s.Slice(s.A, s.B))
		s.expect(FromOutside, s.nodePort(), reaches(NodeSource, s.A, s.B))
	}
}

// internalLocalCase: S-ITP-01, S-ITP-02, S-ITP-05.
func internalLocalCase(s *scene) {
	spec := s.Exposed()
	spec.InternalLocal = true
	s.apply(spec, s.Slice(s.A, s.B))
	s.expect(FromPod, s.clusterIP(), reaches(OwnSource, s.A))
	s.expect(FromNode, s.clusterIP(), reaches(NodeSource, s.A))
	s.expect(FromOutside, s.clusterIP(), reaches(NodeSource, s.A))
	s.expect(FromOutside, s.nodePort(), reaches(NodeSource, s.A, s.B))
}

// internalLocalRemoteCase: S-ITP-03, S-ITP-06, S-ITP-08.
func internalLocalRemoteCase(s *scene) {
	spec := s.Exposed()
	spec.InternalLocal = true
	s.apply(spec, s.Slice(s.B))
	for _, from := range []Client{FromPod, FromNode, FromOutside} {
		s.expect(from, s.clusterIP(), silence)
		s.expect(from, s.nodePort(), reaches(NodeSource, s.B))
	}
	homeless := s.Slice(s.A)
	homeless.Endpoints[0].Place = nil
	s.apply(spec, homeless)
	s.expect(FromPod, s.clusterIP(), silence)
}

// internalLocalNobodyCase: S-ITP-04.
func internalLocalNobodyCase(s *scene) {
	spec := s.Spec()
	spec.InternalLocal = true
	s.apply(spec)
	for _, from := range []Client{FromPod, FromNode, FromOutside} {
		s.expect(from, s.clusterIP(), refuses)
	}
}

// bothLocalCase: S-ITP-07.
func bothLocalCase(s *scene) {
	spec := s.externalLocal()
	spec.InternalLocal = true
	s.apply(spec, s.Slice(s.A, s.B))
	s.expect(FromOutside, s.vip(), reaches(OwnSource, s.A))
	s.expect(FromPod, s.vip(), reaches(OwnSource, s.A, s.B))
	s.expect(FromPod, s.clusterIP(), reaches(OwnSource, s.A))
}

// terminatingCase: S-TERM-02 to S-TERM-04, S-TERM-06.
func terminatingCase(s *scene) {
	slice := s.Slice(s.A, s.B)
	slice.Endpoints[0].Ready, slice.Endpoints[0].Terminating = false, true
	spec := s.externalLocal()
	s.apply(spec, slice)
	s.expect(FromOutside, s.nodePort(), reaches(OwnSource, s.A))
	s.expect(FromPod, s.nodePort(), reaches(OwnSource, s.B))
	s.expect(FromPod, s.clusterIP(), reaches(OwnSource, s.B))
	spec.InternalLocal = true
	s.apply(spec, slice)
	s.expect(FromPod, s.clusterIP(), reaches(OwnSource, s.A))
}
