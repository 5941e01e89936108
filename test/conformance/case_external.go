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
