package actors

import (
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

var (
	web     = service.Key{Namespace: "ns", Name: "web"}
	outputs = []Output{{Name: "one"}, {Name: "two"}}
	facts   = &service.NodeFacts{Name: "n1"}
	noon    = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
)

func spec() *service.Spec {
	return &service.Spec{
		Key: web, Created: noon,
		ClusterIPs: service.PerFamily[netip.Addr]{service.IPv4: netip.MustParseAddr("172.30.0.41")},
		Ports:      []service.Port{{Name: "http", Port: 80}},
	}
}

func slice(name string, addresses ...string) *service.Slice {
	s := &service.Slice{Service: web, Name: name, Ports: []service.SlicePort{{Name: "http", Port: 8080}}}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, service.SliceEndpoint{Addr: netip.MustParseAddr(a), Ready: true, Serving: true})
	}
	return s
}

// objects renders a view so that every endpoint shows.
func objects(view *service.View) []dataplane.Object {
	var text string
	for _, p := range view.Ports[service.IPv4] {
		for _, e := range p.Cluster {
			text += e.String() + " "
		}
	}
	if len(view.Ports[service.IPv4]) == 0 {
		return nil
	}
	return []dataplane.Object{{ID: dataplane.ID{Name: "web"}, Body: text}}
}

// turn ends a turn and returns the fragments that it submits.
func turn(m *Machine) (fragments []*dataplane.Fragment) {
	if !m.Conclude(noon) {
		return nil
	}
	for i := range outputs {
		view, _ := m.View(i)
		if f := m.Fragment(i, objects(view)); f != nil {
			fragments = append(fragments, f)
		}
	}
	m.Submitted()
	return fragments
}

func live(slices ...*service.Slice) *Machine {
	m := NewMachine(web, 3, outputs)
	m.Hydrate(service.Snapshot{Spec: spec(), Slices: slices}, facts)
	return m
}

func applied(domain string, f *dataplane.Fragment) VerdictGiven {
	return VerdictGiven{dataplane.Verdict{Key: web, Domain: domain, Revision: f.Revision}}
}

func TestHydratingIgnoresMessagesTheSnapshotHolds(t *testing.T) {
	m := NewMachine(web, 1, outputs)
	m.Step(SliceChanged{Name: "s", Slice: slice("s", "10.0.0.1")})
	if m.State() != Hydrating || m.Conclude(noon) {
		t.Fatalf("state %v", m.State())
	}
}

func TestATurnEndsWithOneFragmentPerDomain(t *testing.T) {
	m := live(slice("s", "10.0.0.1"))
	first := turn(m)
	if len(first) != 2 || first[0].Objects[0].Body != "10.0.0.1:8080 " || first[0].Revision.Incarnation != 3 {
		t.Fatalf("%+v", first)
	}
	m.Step(SliceChanged{Name: "s", Slice: slice("s", "10.0.0.2"), Cause: Cause{Trigger: noon, Received: noon.Add(2)}})
	m.Step(SliceChanged{Name: "t", Slice: slice("t", "10.0.0.3"), Cause: Cause{Trigger: noon.Add(-1), Received: noon.Add(1)}})
	second := turn(m)
	if len(second) != 2 || second[0].Objects[0].Body != "10.0.0.2:8080 10.0.0.3:8080 " {
		t.Fatalf("%+v", second)
	}
	f := second[1]
	if !f.Urgent || !f.Trigger.Equal(noon.Add(-1)) || !f.Received.Equal(noon.Add(1)) {
		t.Fatalf("urgent %v, trigger %v, received %v", f.Urgent, f.Trigger, f.Received)
	}
	if f.Revision.Compare(first[1].Revision) <= 0 {
		t.Fatal("revisions must grow")
	}
}

func TestWhatChangesNothingRendersNothing(t *testing.T) {
	m := live(slice("s", "10.0.0.1"))
	turn(m)
	again := slice("s", "10.0.0.1")
	again.Trigger = noon
	m.Step(SliceChanged{Name: "s", Slice: again})
	m.Step(SpecChanged{Spec: spec()})
	if m.Conclude(noon) {
		t.Fatal("rendered")
	}
	// New facts are rendered, but an equal fragment is not submitted.
	m.SetFacts(&service.NodeFacts{Name: "n1", Zone: "za"})
	if fragments := turn(m); fragments != nil {
		t.Fatalf("submitted %+v", fragments)
	}
}

func TestASliceThatIsGoneLeaves(t *testing.T) {
	m := live(slice("s", "10.0.0.1"), slice("t", "10.0.0.2"))
	turn(m)
	m.Step(SliceChanged{Name: "s"})
	m.Step(SliceChanged{Name: "never seen"})
	if f := turn(m); len(f) != 2 || f[0].Objects[0].Body != "10.0.0.2:8080 " {
		t.Fatalf("%+v", f)
	}
}

func TestRetiringWaitsForEveryDomainsVerdict(t *testing.T) {
	m := live(slice("s", "10.0.0.1"))
	before := turn(m)
	m.Step(SpecChanged{})
	gone := turn(m)
	if m.State() != Draining || len(gone) != 2 || !gone[0].Gone || len(gone[0].Objects) != 0 {
		t.Fatalf("state %v, %+v", m.State(), gone)
	}
	m.Step(applied("one", gone[0]))
	m.Step(applied("two", before[1])) // a late answer to something earlier
	m.Step(VerdictGiven{dataplane.Verdict{Key: web, Domain: "two", Revision: gone[1].Revision, Quarantined: true}})
	if m.State() != Draining {
		t.Fatalf("state %v", m.State())
	}
	m.Step(applied("two", gone[1]))
	if m.State() != Retired {
		t.Fatalf("state %v", m.State())
	}
}

func TestAServiceThatReturnsWhileDrainingIsLiveAgain(t *testing.T) {
	m := live(slice("s", "10.0.0.1"))
	turn(m)
	m.Step(SpecChanged{})
	turn(m)
	m.Step(SpecChanged{Spec: spec()})
	if !m.Stale() {
		t.Fatal("nobody posts slices of a Service without a spec: the snapshot must be read")
	}
	m.Hydrate(service.Snapshot{Spec: spec(), Slices: []*service.Slice{slice("s", "10.0.0.9")}}, facts)
	f := turn(m)
	if m.State() != Live || m.Stale() || f[0].Objects[0].Body != "10.0.0.9:8080 " || len(f) != 2 || f[0].Gone {
		t.Fatalf("state %v, %+v", m.State(), f)
	}
}

func TestRehydratingSubmitsAgainSinceVerdictsMayBeLost(t *testing.T) {
	m := live(slice("s", "10.0.0.1"))
	first := turn(m)
	m.Hydrate(service.Snapshot{Spec: spec(), Slices: []*service.Slice{slice("s", "10.0.0.1")}}, facts)
	again := turn(m)
	if len(again) != 2 || again[0].Digest != first[0].Digest || again[0].Revision.Compare(first[0].Revision) <= 0 {
		t.Fatalf("%+v", again)
	}
}

func TestASnapshotOfNothingLeavesATombstone(t *testing.T) {
	m := NewMachine(web, 1, outputs)
	m.Hydrate(service.Snapshot{}, facts)
	f := turn(m)
	if m.State() != Draining || len(f) != 2 || !f[0].Gone {
		t.Fatalf("state %v, %+v", m.State(), f)
	}
}

func TestTheNodesActorRendersFactsAndNeverRetires(t *testing.T) {
	m := NewMachine(service.Node, 1, outputs)
	m.Hydrate(service.Snapshot{}, facts)
	concluded := m.Conclude(noon)
	if view, on := m.View(0); m.State() != Live || !concluded || view != nil || on != facts {
		t.Fatalf("state %v, concluded %v, view %+v", m.State(), concluded, view)
	}
	if f := m.Fragment(0, nil); f == nil || f.Gone {
		t.Fatalf("%+v", f)
	}
	if m.Conclude(noon) {
		t.Fatal("rendered without a change")
	}
}

// programmed returns the outputs that have something to report.
func programmed(m *Machine) (reported []int, view service.View) {
	for i := range outputs {
		if v, news := m.Programmed(i); news {
			reported, view = append(reported, i), v
		}
	}
	return reported, view
}

func TestAViewIsReportedOnceItIsInForce(t *testing.T) {
	m := live(slice("s", "10.0.0.1"))
	first := turn(m)
	if at, _ := programmed(m); at != nil {
		t.Fatalf("reported by %v before any verdict", at)
	}
	m.Step(applied("two", first[1]))
	if at, view := programmed(m); len(at) != 1 || at[0] != 1 || len(view.Ports[service.IPv4][0].Cluster) != 1 {
		t.Fatalf("reported by %v: %+v; want the second domain alone", at, view)
	}
	if at, _ := programmed(m); at != nil {
		t.Fatalf("reported again by %v", at)
	}

	// An overtaken view is left out: its verdict settles nothing newer.
	m.Step(SliceChanged{Name: "s", Slice: slice("s", "10.0.0.1", "10.0.0.2")})
	second := turn(m)
	m.Step(applied("one", first[0]))
	if at, _ := programmed(m); at != nil {
		t.Fatalf("the older verdict reported the newer view of %v", at)
	}
	m.Step(applied("one", second[0]))
	if at, view := programmed(m); len(at) != 1 || at[0] != 0 || len(view.Ports[service.IPv4][0].Cluster) != 2 {
		t.Fatalf("reported by %v: %+v", at, view)
	}
}

func TestAViewThatChangesNoRuleIsReportedAtOnce(t *testing.T) {
	m := live(slice("s", "10.0.0.1"))
	for i, f := range turn(m) {
		m.Step(applied(outputs[i].Name, f))
	}
	programmed(m)
	changed := spec()
	changed.ExternalLocal, changed.HealthCheckNodePort = true, 31000
	m.Step(SpecChanged{Spec: changed})
	if fragments := turn(m); fragments != nil {
		t.Fatalf("%d fragments", len(fragments))
	}
	if at, view := programmed(m); len(at) != 2 || view.HealthCheckNodePort != 31000 {
		t.Fatalf("reported by %v: %+v", at, view)
	}
}

func TestAQuarantinedViewIsNotReported(t *testing.T) {
	m := live(slice("s", "10.0.0.1"))
	f := turn(m)
	m.Step(VerdictGiven{dataplane.Verdict{Key: web, Domain: "one", Revision: f[0].Revision, Quarantined: true}})
	if at, _ := programmed(m); at != nil {
		t.Fatalf("reported by %v", at)
	}
}

func TestTheEndOfAServiceIsReported(t *testing.T) {
	m := live(slice("s", "10.0.0.1"))
	turn(m)
	m.Step(SpecChanged{})
	for i, f := range turn(m) {
		m.Step(applied(outputs[i].Name, f))
	}
	if at, view := programmed(m); len(at) != 2 || len(view.Ports[service.IPv4]) != 0 || view.Key != web {
		t.Fatalf("reported by %v: %+v", at, view)
	}
}
