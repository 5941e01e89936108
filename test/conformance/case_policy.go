package conformance

import (
	"github.com/sluice-proxy/sluice/service"
)

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
	homeless.Endpoints[0].NodeName = ""
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
