package conformance

import (
	"net/netip"
	"slices"

	"github.com/sluice-proxy/sluice/dataplane"
)

// refusedCase: while a batch is refused, clients are served by an endpoint of
// before or after it.
func refusedCase(s *scene) {
	s.poisonEach(
		func() { s.Serve(s.externalLocal(), s.Slice(s.A, s.B)) },
		func() { s.Serve(s.Exposed(), s.Slice(s.B, s.C)) },
		s.questions(), Answered,
	)
}

// questions are connections to the frontends of the Service.
func (s *scene) questions() []Question {
	return []Question{
		{From: FromPod, To: s.clusterIP()}, {From: FromNode, To: s.clusterIP()},
		{From: FromOutside, To: s.nodePort()}, {From: FromOutside, To: s.vip()},
	}
}

// refusedTurnCase: on the way from no endpoints to some, and back, clients are
// served or refused. Their packets never go through untranslated, not even when
// another Service goes the other way in the same batch.
func refusedTurnCase(s *scene) {
	other := s.Spec()
	other.Key.Name = "svc2"
	other.ClusterIPs[s.Family] = s.OtherClusterIP
	questions := append(s.questions(), Question{From: FromPod, To: netip.AddrPortFrom(s.OtherClusterIP, servicePort)})
	nobody := func() {
		s.Serve(s.Exposed())
		s.Serve(other, s.Slice(s.B))
	}
	somebody := func() {
		s.Serve(s.Exposed(), s.Slice(s.A))
		s.Serve(other)
	}
	// A refusal over IPv6 may take longer than a test waits that takes silence
	// for an answer, too.
	s.poisonEach(nobody, somebody, questions, Answered, Refused, Silent)
	s.poisonEach(somebody, nobody, questions, Answered, Refused, Silent)
}

// poisonEach goes from one state to another once for each object that changes,
// with poison in that object. The receipt has to be true (every write is checked
// for that), connections must end in one of the fates meanwhile, and the next
// attempt has to land.
func (s *scene) poisonEach(before, after func(), questions []Question, fates ...Fate) {
	s.Helper()
	before()
	s.Converge(s.T)
	poisoned := 0
	for at := 0; ; at++ {
		after()
		batch := s.Plan()
		if at >= len(batch.Changes) {
			break
		}
		if s.poison(batch, at) {
			poisoned++
			if got := s.Write(s.Context(), s.T, batch); got.Outcome != dataplane.Rejected || got.Err == nil {
				s.Errorf("poison in %v: got %v, want rejected with the tool's words", batch.Changes[at].ID, got)
			}
			s.expectFates(questions, fates...)
		}
		after()
		s.Converge(s.T)
		s.expectEqual("after the poison")
		before()
		s.Converge(s.T)
	}
	if poisoned < 2 {
		s.Errorf("only %d objects could be poisoned", poisoned)
	}
}

// expectFates fails when a connection ends otherwise. It is waited for before the
// next write.
func (s *scene) expectFates(questions []Question, fates ...Fate) {
	s.Helper()
	for _, q := range questions {
		q.Patience = answerPatience
		if slices.Contains(fates, Silent) {
			q.Patience = silencePatience
		}
		s.asking.Go(func() {
			if got := s.node.Probe.Ask(s.T, q); !slices.Contains(fates, got.Fate) {
				s.Errorf("%v: got %v while a batch had failed", q, got)
			}
		})
	}
}

// poison replaces what a change brings by something that the kernel refuses.
func (s *scene) poison(batch *dataplane.Batch, at int) bool {
	change := &batch.Changes[at]
	if change.After == nil {
		return false
	}
	bad, ok := s.node.Meddler.Poison(*change.After)
	if ok {
		change.After = &bad
	}
	return ok
}

// refusedFirstCase: a node whose very first batch is refused is not worse off,
// and gets its rules from the next one.
func refusedFirstCase(s *scene) {
	s.Serve(s.Exposed(), s.Slice(s.A, s.B))
	batch := s.Plan()
	for at := len(batch.Changes) - 1; at >= 0 && !s.poison(batch, at); at-- {
	}
	if got := s.Write(s.Context(), s.T, batch); got.Outcome != dataplane.Rejected {
		s.Fatalf("got %v, want rejected", got)
	}
	s.Converge(s.T)
	s.expectEqual("after the second attempt")
	s.expect(FromPod, s.clusterIP(), reaches(OwnSource, s.A, s.B))
}

// refusedOnDriftCase: when a batch is refused on a kernel that somebody has
// changed meanwhile, the receipt tells what is there, not what was.
func refusedOnDriftCase(s *scene) {
	s.apply(s.externalLocal(), s.Slice(s.A, s.B))
	s.Serve(s.Exposed(), s.Slice(s.B, s.C))
	batch := s.Plan()
	damaged := 0
	for i := range batch.Changes {
		if change := &batch.Changes[i]; change.Before != nil && s.node.Meddler.Damage(s.T, change.ID) {
			damaged++
		}
	}
	for at := len(batch.Changes) - 1; at >= 0 && !s.poison(batch, at); at-- {
	}
	if got := s.Write(s.Context(), s.T, batch); got.Outcome != dataplane.Rejected || damaged == 0 {
		s.Fatalf("%d objects damaged; got %v, want rejected", damaged, got)
	}
	s.Converge(s.T)
	s.expectEqual("after the second attempt")
	s.expect(FromOutside, s.nodePort(), reaches(NodeSource, s.B, s.C))
}
