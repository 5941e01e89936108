package conformance

import (
	"context"
	"slices"

	"github.com/sluice-proxy/sluice/dataplane"
)

// restart replaces the process by one that knows nothing.
func (s *scene) restart() { s.start(s.facts) }

// expectEqual fails unless the kernel holds exactly what is wanted.
func (s *scene) expectEqual(when string) {
	s.Helper()
	if drift := s.Audit(s.T); drift.Any() {
		s.Errorf("%s: the kernel differs: %+v, %s", when, drift, names(s.Plan().Changes))
	}
}

// readCase: whatever was written reads back as the same objects, and nothing
// stays behind.
func readCase(s *scene) {
	s.Converge(s.T)
	scaffold := s.read(s.T)
	spec := s.Exposed()
	spec.AffinitySeconds = stickiness
	spec.HealthCheckNodePort = 32000
	for _, local := range []bool{false, true} {
		spec.InternalLocal, spec.ExternalLocal = local, local
		s.apply(spec, s.Slice(s.A, s.B, s.C))
		s.expectEqual("with endpoints")
		s.apply(spec, s.Slice(s.B))
		s.expectEqual("without local endpoints")
		s.apply(spec)
		s.expectEqual("without endpoints")
	}
	s.Forget(serviceKey)
	s.Converge(s.T)
	s.expectEqual("without the Service")
	if left := s.read(s.T); !sameObjects(scaffold, left) {
		s.Errorf("%d objects are left after the last Service, %d were there before it", len(left), len(scaffold))
	}
}

// sameObjects compares what two reads gave, whatever the order.
func sameObjects(a, b []dataplane.Object) bool {
	byID := func(a, b dataplane.Object) int { return a.ID.Compare(b.ID) }
	same := func(a, b dataplane.Object) bool { return dataplane.Same(&a, &b) }
	return slices.EqualFunc(slices.SortedFunc(slices.Values(a), byID), slices.SortedFunc(slices.Values(b), byID), same)
}

// confluenceCase: the kernel ends the same whatever the history was.
func confluenceCase(s *scene) {
	other := s.Spec()
	other.Key.Name = "svc2"
	other.ClusterIPs[s.Family] = s.OtherClusterIP
	s.Serve(other, s.Slice(s.B))
	s.apply(s.Exposed(), s.Slice(s.A, s.B))
	once := s.read(s.T)

	s.Forget(other.Key)
	s.apply(s.externalLocal(), s.Slice(s.C))
	s.Forget(serviceKey)
	s.Converge(s.T)
	s.apply(s.Exposed())
	s.apply(other, s.Slice(s.A))
	s.Serve(s.Exposed(), s.Slice(s.A, s.B))
	s.apply(other, s.Slice(s.B))
	if detour := s.read(s.T); !sameObjects(once, detour) {
		s.Errorf("after a detour the kernel holds %d objects, before it %d, and they differ", len(detour), len(once))
	}
}

// cancelledCase: a write whose time is up does not claim to have landed, and
// loses nothing.
func cancelledCase(s *scene) {
	s.apply(s.Exposed(), s.Slice(s.A))
	s.Serve(s.Exposed(), s.Slice(s.B))
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	if got := s.Write(ctx, s.T, s.Plan()); got.Outcome == dataplane.Landed || got.Err == nil {
		s.Errorf("got %v from a write without time", got)
	}
	s.Converge(s.T)
	s.expectEqual("after the second attempt")
	s.expect(FromPod, s.clusterIP(), reaches(OwnSource, s.B))
}

// adoptCase: a restarted process that wants the same finds it and writes
// nothing.
func adoptCase(s *scene) {
	s.apply(s.externalLocal(), s.Slice(s.A, s.B))
	s.restart()
	s.Serve(s.externalLocal(), s.Slice(s.A, s.B))
	if drift := s.Audit(s.T); drift.Any() || drift.Equal == 0 {
		s.Errorf("after a restart: %+v, want everything equal", drift)
	}
	if batch := s.Plan(); batch != nil && len(batch.Changes) > 0 {
		s.Errorf("a restart writes %s", names(batch.Changes))
	}
	s.expect(FromPod, s.clusterIP(), reaches(OwnSource, s.A, s.B))
}

// sweepCase: what was wanted by the process before, and is not any more, goes.
func sweepCase(s *scene) {
	other := s.Spec()
	other.Key.Name = "svc2"
	other.ClusterIPs[s.Family] = s.OtherClusterIP
	s.Serve(other, s.Slice(s.B))
	s.apply(s.Exposed(), s.Slice(s.A, s.B))
	s.restart()
	s.Serve(other, s.Slice(s.C))
	if drift := s.Audit(s.T); drift.Unwanted == 0 {
		s.Errorf("the objects of a Service that is gone are not seen: %+v", drift)
	}
	s.Converge(s.T)
	s.expectEqual("after the sweep")
	s.expect(FromPod, s.clusterIP(), s.unallocated())
	s.expect(FromOutside, s.nodePort(), through)
}

// foreignCase: nothing that belongs to somebody else is touched or counted.
func foreignCase(s *scene) {
	s.node.Meddler.Plant(s.T)
	s.apply(s.Exposed(), s.Slice(s.A, s.B))
	s.node.Meddler.CheckPlanted(s.T)
	s.expectEqual("beside somebody else's rules")
	s.expect(FromPod, s.clusterIP(), reaches(OwnSource, s.A, s.B))
	s.restart()
	s.Audit(s.T)
	s.Converge(s.T)
	s.node.Meddler.CheckPlanted(s.T)
}

// driftCase damages each object in turn; an audit sees it and a write repairs it.
func driftCase(s *scene) {
	s.apply(s.externalLocal(), s.Slice(s.A, s.B))
	damaged := 0
	for _, object := range s.read(s.T) {
		if !s.node.Meddler.Damage(s.T, object.ID) {
			continue
		}
		damaged++
		if drift := s.Audit(s.T); !drift.Any() {
			s.Errorf("damage to %v is not seen", object.ID)
		}
		s.Converge(s.T)
		s.expectEqual("after repairing " + object.ID.Name)
	}
	if damaged < 5 {
		s.Errorf("only %d objects could be damaged", damaged)
	}
	s.expect(FromPod, s.clusterIP(), reaches(OwnSource, s.A, s.B))
	s.expect(FromOutside, s.vip(), reaches(OwnSource, s.A))
}

// wipeCase: S-SYNC-01: everything is written again after somebody has emptied
// the tables, the jumps from the built-in chains included.
func wipeCase(s *scene) {
	s.apply(s.Exposed(), s.Slice(s.A, s.B))
	s.node.Meddler.Wipe(s.T)
	s.expect(FromPod, s.clusterIP(), through)
	if drift := s.Audit(s.T); drift.Missing == 0 {
		s.Errorf("wiped tables are not seen: %+v", drift)
	}
	s.Converge(s.T)
	s.expectEqual("after writing again")
	s.expect(FromPod, s.clusterIP(), reaches(OwnSource, s.A, s.B))
	s.expect(FromNode, s.clusterIP(), reaches(NodeSource, s.A, s.B))
	s.expect(FromOutside, s.nodePort(), reaches(NodeSource, s.A, s.B))
}
