// SPDX-License-Identifier: Apache-2.0

package writertest

import (
	"context"
	"net/netip"
	"slices"

	"github.com/sluice-proxy/sluice/dataplane"
)

// readCase: what was written reads back as the same objects, and nothing else is left.
func readCase(s *Scene) {
	s.Converge(s.T)
	scaffold := s.read(s.T)
	spec := s.Exposed()
	spec.AffinitySeconds = 10800
	spec.HealthCheckNodePort = 32000
	for _, local := range []bool{false, true} {
		spec.InternalLocal, spec.ExternalLocal = local, local
		s.apply(spec, s.Slice(s.A, s.B, s.C))
		s.ExpectEqual("with endpoints")
		s.apply(spec, s.Slice(s.B))
		s.ExpectEqual("without local endpoints")
		s.apply(spec)
		s.ExpectEqual("without endpoints")
	}
	s.Forget(serviceKey)
	s.Converge(s.T)
	s.ExpectEqual("without the Service")
	if left := s.read(s.T); !sameObjects(scaffold, left) {
		s.Errorf("%d objects are left after the last Service, %d were there before it", len(left), len(scaffold))
	}
}

// sameObjects compares the results of two reads, in any order.
func sameObjects(a, b []dataplane.Object) bool {
	byID := func(a, b dataplane.Object) int { return a.ID.Compare(b.ID) }
	same := func(a, b dataplane.Object) bool { return dataplane.Same(&a, &b) }
	return slices.EqualFunc(slices.SortedFunc(slices.Values(a), byID), slices.SortedFunc(slices.Values(b), byID), same)
}

// confluenceCase: the kernel's final state does not depend on the history.
func confluenceCase(s *Scene) {
	other := s.neighbor()
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

// canceledCase: a write that times out does not claim to have landed, and loses nothing.
func canceledCase(s *Scene) {
	s.apply(s.Exposed(), s.Slice(s.A))
	s.Serve(s.Exposed(), s.Slice(s.B))
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	if got := s.Write(ctx, s.T, s.Plan()); got.Outcome == dataplane.Landed || got.Err == nil {
		s.Errorf("got %v from a write without time", got)
	}
	s.Converge(s.T)
	s.ExpectEqual("after the second attempt")
}

// adoptCase: a restarted process that wants the same objects finds them and writes nothing.
func adoptCase(s *Scene) {
	s.apply(s.externalLocal(), s.Slice(s.A, s.B))
	s.restart()
	s.Serve(s.externalLocal(), s.Slice(s.A, s.B))
	if drift := s.Audit(s.T); drift.Any() || drift.Equal == 0 {
		s.Errorf("after a restart: %+v, want everything equal", drift)
	}
	if batch := s.Plan(); batch != nil && len(batch.Changes) > 0 {
		s.Errorf("a restart writes %s", names(batch.Changes))
	}
}

// sweepCase: a restarted process removes what only its predecessor wanted.
func sweepCase(s *Scene) {
	other := s.neighbor()
	s.Serve(other, s.Slice(s.B))
	s.apply(s.Exposed(), s.Slice(s.A, s.B))
	s.restart()
	s.Serve(other, s.Slice(s.C))
	if drift := s.Audit(s.T); drift.Unwanted == 0 {
		s.Errorf("the objects of a Service that is gone are not seen: %+v", drift)
	}
	s.Converge(s.T)
	s.ExpectEqual("after the sweep")
}

// foreignCase: nothing that belongs to another program is touched or counted.
func foreignCase(s *Scene) {
	s.node.Meddler.Plant(s.T)
	s.apply(s.Exposed(), s.Slice(s.A, s.B))
	s.node.Meddler.CheckPlanted(s.T)
	s.ExpectEqual("among another program's rules")
	s.restart()
	s.Audit(s.T)
	s.Converge(s.T)
	s.node.Meddler.CheckPlanted(s.T)
}

// driftCase damages each object in turn; an audit sees it and a write repairs it.
func driftCase(s *Scene) {
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
		s.ExpectEqual("after repairing " + object.ID.Name)
	}
	if damaged < 5 {
		s.Errorf("only %d objects could be damaged", damaged)
	}
}

// wipeCase: S-SYNC-01: everything is written again after another program has emptied the tables,
// including the jumps from the built-in chains.
func wipeCase(s *Scene) {
	s.apply(s.Exposed(), s.Slice(s.A, s.B))
	s.node.Meddler.Wipe(s.T)
	if drift := s.Audit(s.T); drift.Missing == 0 {
		s.Errorf("wiped tables are not seen: %+v", drift)
	}
	s.Converge(s.T)
	s.ExpectEqual("after writing again")
}

// rejectedCase: while the kernel refuses a batch, an endpoint from before or after it serves each
// client.
func rejectedCase(s *Scene) {
	s.poisonEach(
		func() { s.Serve(s.externalLocal(), s.Slice(s.A, s.B)) },
		func() { s.Serve(s.Exposed(), s.Slice(s.B, s.C)) },
		s.Questions(), Answered,
	)
}

// rejectedTurnCase: on the way from no endpoints to some, and back, clients are served or refused.
// Their packets never go through untranslated, not even when another Service goes the other way in
// the same batch.
func rejectedTurnCase(s *Scene) {
	other := s.neighbor()
	questions := append(s.Questions(), Question{From: FromPod, To: netip.AddrPortFrom(s.OtherClusterIP, servicePort)})
	nobody := func() {
		s.Serve(s.Exposed())
		s.Serve(other, s.Slice(s.B))
	}
	somebody := func() {
		s.Serve(s.Exposed(), s.Slice(s.A))
		s.Serve(other)
	}
	// Where silence is allowed, too, a test may wait for less time than a refusal over IPv6 takes.
	s.poisonEach(nobody, somebody, questions, Answered, Refused, Silent)
	s.poisonEach(somebody, nobody, questions, Answered, Refused, Silent)
}

// poisonEach goes from one state to another once for each object that changes, and spoils that
// object. The receipt has to be true (every write checks it), connections must meanwhile end in one
// of the fates, and the next attempt has to land.
func (s *Scene) poisonEach(before, after func(), questions []Question, fates ...Fate) {
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
			s.ExpectFates(questions, fates...)
		}
		after()
		s.Converge(s.T)
		s.ExpectEqual("after the poison")
		before()
		s.Converge(s.T)
	}
	if poisoned < 2 {
		s.Errorf("only %d objects could be poisoned", poisoned)
	}
}

// poison replaces the object of a change by one that the kernel refuses.
func (s *Scene) poison(batch *dataplane.Batch, at int) bool {
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

// rejectedFirstCase: a refused first batch leaves the node no worse off, and the next one writes the
// rules.
func rejectedFirstCase(s *Scene) {
	s.Serve(s.Exposed(), s.Slice(s.A, s.B))
	batch := s.Plan()
	for at := len(batch.Changes) - 1; at >= 0 && !s.poison(batch, at); at-- {
	}
	if got := s.Write(s.Context(), s.T, batch); got.Outcome != dataplane.Rejected {
		s.Fatalf("got %v, want rejected", got)
	}
	s.Converge(s.T)
	s.ExpectEqual("after the second attempt")
}

// rejectedOnDriftCase: when a batch is refused after another program has changed the kernel, the
// receipt says what is there now.
func rejectedOnDriftCase(s *Scene) {
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
	s.ExpectEqual("after the second attempt")
}
