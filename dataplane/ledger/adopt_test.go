package ledger

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// labels says of objects whose body has the form "owner" or "owner→container/name" whose
// they are and what they need.
type labels struct{}

func (labels) Owner(o *dataplane.Object) (service.Key, bool) {
	name, _, _ := strings.Cut(o.Body, "→")
	return key(name), name != "" && !strings.Contains(name, " ")
}

func (labels) Refs(o *dataplane.Object) []dataplane.ID {
	_, ref, found := strings.Cut(o.Body, "→")
	container, name, _ := strings.Cut(ref, "/")
	if !found {
		return nil
	}
	return []dataplane.ID{{Container: container, Name: name}}
}

func element(container, name, body string) dataplane.Object {
	return dataplane.Object{ID: dataplane.ID{Container: container, Name: name}, Kind: dataplane.Element, Body: body}
}

func settledKeys(contributions []dataplane.Contribution) string {
	var names []string
	for _, c := range contributions {
		names = append(names, c.Key.Name)
	}
	return strings.Join(names, " ")
}

// What was read as it is wanted is applied without a write; what differs does not
// hold up the others.
func TestAdoptSettlesWhatIsThereAsWanted(t *testing.T) {
	l := New(nil, names{})
	l.Want(fragment("a", 0, 1, chain("a1", "x"), chain("a2", "x")))
	l.Want(fragment("b", 0, 1, chain("b1", "new")))
	l.Observe([]dataplane.Object{chain("a1", "x"), chain("a2", "x"), chain("b1", "old"), chain("left", "over")})
	if got := settledKeys(l.Adopt(nil, labels{})); got != "a" {
		t.Errorf("settled %q, want a alone", got)
	}
	if got := changes(l.Plan()); got != "b1:old>new left:over>- " {
		t.Errorf("planned %q", got)
	}
}

// A hold after a start falls back to what a former process has left: what the Service
// still wants, what bears its name, what those lead to, and what lives in that.
func TestHoldFallsBackToWhatAFormerProcessHasLeft(t *testing.T) {
	l := New(nil, names{})
	l.Want(fragment("bad", 0, 1, chain("same", "as it was"), chain("new", "poison")))
	l.Want(fragment("other", 0, 1, chain("o", "o")))
	kernel := []dataplane.Object{
		chain("same", "as it was"),
		element("frontends", "vip", "bad→nat/target"),
		chain("target", " →nat/deeper"), chain("deeper", " "), element("picks", "1", " →nat/deeper"),
		chain("sweep", " of nobody"), element("frontends", "vip2", "other"), chain("o", "o"),
	}
	l.Observe(kernel)
	if got := settledKeys(l.Adopt(nil, labels{})); got != "other" {
		t.Errorf("settled %q, want the other one", got)
	}
	l.Hold(key("bad"))
	b := l.Plan()
	if got := changes(b); got != "vip2:other>- sweep: of nobody>- " {
		t.Errorf("with the bad one held: %q", got)
	}
	l.Settle(b, landed())
	l.Release(key("bad"))
	b = l.Plan()
	l.Settle(b, landed())
	if got := changes(b); got != "vip:bad→nat/target>- deeper: >- new:->poison target: →nat/deeper>- 1: →nat/deeper>- " {
		t.Errorf("released: %q", got)
	}
	if b := l.Plan(); b != nil {
		t.Errorf("left: %q", changes(b))
	}
}

// A Service that has not submitted keeps what bears its name, below everybody who is
// known to exist, until it speaks or is gone.
func TestWhoHasNotSubmittedKeepsWhatItHas(t *testing.T) {
	l := New(nil, names{})
	l.Want(fragment("a", 5, 1, element("frontends", "contested", "a")))
	l.Observe([]dataplane.Object{element("frontends", "vip", "late"), element("frontends", "contested", "late"),
		element("frontends", "gone", "gone")})
	l.Adopt([]Absent{{Key: key("late")}, {Key: key("never heard of")}}, labels{})
	b := l.Plan()
	if got := changes(b); got != "contested:late>a gone:gone>- " {
		t.Errorf("planned %q", got)
	}
	l.Settle(b, landed())
	gone := fragment("late", 0, 0)
	gone.Gone, gone.Revision = true, service.Revision{}
	l.Want(gone)
	if got := changes(l.Plan()); got != "vip:late>- " {
		t.Errorf("gone: %q", got)
	}
}

// Elements without a name may be anybody's: they stay until each Service that a former
// process has served otherwise is in force as it is now.
func TestNamelessElementsStayForAsLongAsAnHeirIsLeft(t *testing.T) {
	l := New(nil, names{})
	l.Want(fragment("a", 0, 1, chain("a", "new")))
	l.Want(fragment("b", 0, 1, chain("b", "new")))
	l.Observe([]dataplane.Object{chain("a", " old"), chain("b", " old"), element("hairpins", "10.0.0.1", "")})
	l.Adopt(nil, labels{})
	l.Hold(key("b"))
	b := l.Plan()
	if got := changes(b); got != "a: old>new " {
		t.Fatalf("planned %q", got)
	}
	l.Settle(b, landed())
	if b := l.Plan(); b != nil {
		t.Fatalf("with one heir left: %q", changes(b))
	}
	l.Release(key("b"))
	l.Settle(l.Plan(), landed())
	if got := changes(l.Plan()); got != "10.0.0.1:>- " {
		t.Errorf("with no heir left: %q", got)
	}
}

// Freeze leaves what the kernel has, though it is less than was applied.
func TestFreezeLeavesWhatTheKernelHas(t *testing.T) {
	l := New(nil, names{})
	l.Want(fragment("a", 0, 1, chain("a1", "x"), chain("a2", "x")))
	l.Settle(l.Plan(), landed())
	l.Observe([]dataplane.Object{chain("a1", "changed")})
	l.Hold(key("a"))
	if got := changes(l.Plan()); got != "a1:changed>x a2:->x " {
		t.Fatalf("held: %q", got)
	}
	l.Freeze([]service.Key{key("a")}, nil)
	if b := l.Plan(); b != nil {
		t.Fatalf("frozen: %q", changes(b))
	}
	l.Release(key("a"))
	if got := changes(l.Plan()); got != "a1:changed>x a2:->x " {
		t.Errorf("released: %q", got)
	}
}

// A verdict waits for what its Service has given up, and for nobody else's objects.
func TestEachContributorIsSettledByItself(t *testing.T) {
	l := New(nil, names{})
	l.Want(fragment("a", 0, 1, chain("a1", "x"), chain("a2", "x")))
	l.Want(fragment("b", 0, 1, chain("b1", "x")))
	l.Settle(l.Plan(), landed())
	l.Want(fragment("a", 0, 2, chain("a1", "y")))
	l.Want(fragment("b", 0, 2, chain("b1", "y")))
	b := l.Plan()
	owners := ""
	for _, c := range b.Changes {
		owners += c.ID.Name + " of " + c.Owner.Name + ", "
	}
	if owners != "a1 of a, a2 of a, b1 of b, " {
		t.Errorf("owners: %s", owners)
	}
	x := chain("a2", "x")
	certain := map[dataplane.ID]*dataplane.Object{
		b.Changes[0].ID: b.Changes[0].After, b.Changes[1].ID: &x, b.Changes[2].ID: b.Changes[2].After}
	if got := settledKeys(l.Settle(b, dataplane.Receipt{Outcome: dataplane.Rejected, Certain: certain})); got != "b" {
		t.Errorf("settled %q while an object that a has given up is there, want b", got)
	}
	b = l.Plan()
	if got := settledKeys(l.Settle(b, landed())); got != "a" {
		t.Errorf("then settled %q, want a", got)
	}
}

// A frozen Service that is released after the node turned out to be at fault falls back
// to what was applied, and not to what the kernel lacked at that moment.
func TestAFrozenServiceRemembersWhatWasApplied(t *testing.T) {
	l := New(nil, nil)
	l.Want(fragment("a", 0, 1, chain("a1", "x")))
	l.Settle(l.Plan(), landed())
	l.Observe(nil)
	l.Freeze([]service.Key{key("a")}, nil)
	if b := l.Plan(); b != nil {
		t.Fatalf("frozen: %q", changes(b))
	}
	l.Restore(key("a"))
	l.Release(key("a"))
	l.Want(fragment("a", 0, 2, chain("a1", "bad")))
	l.Hold(key("a"))
	if got := changes(l.Plan()); got != "a1:->x " {
		t.Errorf("held again: %q", got)
	}
}

// A Service that has not submitted is never held. It is frozen in a search like any other, and
// what another program has changed meanwhile must not stay for ever.
func TestWhoHasNotSubmittedThaws(t *testing.T) {
	for name, thaw := range map[string]func(*Ledger, service.Key){"restored": (*Ledger).Restore, "released": (*Ledger).Release} {
		l := New(nil, names{})
		l.Observe([]dataplane.Object{element("frontends", "vip", "late")})
		l.Adopt([]Absent{{Key: key("late")}}, labels{})
		l.Observe([]dataplane.Object{element("frontends", "vip", "late→nat/elsewhere")})
		l.Hold(key("late"))
		l.Freeze([]service.Key{key("late")}, labels{})
		if b := l.Plan(); b != nil {
			t.Fatalf("frozen: %q", changes(b))
		}
		thaw(l, key("late"))
		if got := changes(l.Plan()); got != "vip:late→nat/elsewhere>late " {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// A chain that several Services share stays while the elements of a refused one lead to
// it, as the others want it. A refused Service whose elements are not there keeps none.
func TestARefusedServiceSharesAChain(t *testing.T) {
	for _, served := range []bool{true, false} {
		l := New(nil, names{})
		leading := dataplane.Object{ID: dataplane.ID{Container: "frontends", Name: "vip"}, Kind: dataplane.Element,
			Body: "bad→nat/shared; new", Links: dataplane.LinkTo(dataplane.ID{Container: "nat", Name: "shared"})}
		l.Want(fragment("bad", 0, 1, chain("shared", " pool"), leading))
		l.Want(fragment("other", 0, 1, chain("shared", " pool"), element("frontends", "vip2", "other→nat/shared")))
		kernel := []dataplane.Object{chain("shared", " emptied"), element("frontends", "vip2", "other→nat/shared")}
		if served {
			kernel = append(kernel, element("frontends", "vip", "bad→nat/shared"))
		}
		l.Observe(kernel)
		l.Adopt(nil, labels{})
		l.Hold(key("bad"))
		b := l.Plan()
		if got := changes(b); got != "shared: emptied> pool " {
			t.Errorf("served before %t: planned %q", served, got)
		}
		l.Settle(b, landed())
		gone := fragment("other", 0, 2)
		gone.Gone = true
		l.Want(gone)
		want := "vip2:other→nat/shared>- "
		if !served {
			want += "shared: pool>- "
		}
		if got := changes(l.Plan()); got != want {
			t.Errorf("served before %t: when the other goes: %q, want %q", served, got, want)
		}
	}
}

// A nameless element in a set that one Service wants is that Service's: it goes with it,
// although others are refused.
func TestElementsOfAServicesOwnSetAreItsOwn(t *testing.T) {
	l := New(nil, names{})
	l.Want(fragment("a", 0, 1, chain("a-picks", " ")))
	l.Want(fragment("bad", 0, 1, chain("b", "new")))
	l.Observe([]dataplane.Object{chain("a-picks", " "), element("picks", "1", " →nat/a-picks"), chain("b", " old")})
	l.Adopt(nil, labels{})
	l.Hold(key("bad"))
	if got := changes(l.Plan()); got != "1: →nat/a-picks>- " {
		t.Errorf("planned %q", got)
	}
}

// A Service whose actor is stuck has not submitted. It keeps what it has, although a younger
// Service wants the same. A Service without an age, which is too large, gives that up, and keeps the rest.
func TestWhoHasNotSubmittedKeepsItsRank(t *testing.T) {
	for created, want := range map[time.Time]string{epoch: "", {}: "contested:stuck>young "} {
		l := New(nil, names{})
		l.Want(fragment("young", 5, 1, element("frontends", "contested", "young")))
		l.Observe([]dataplane.Object{element("frontends", "contested", "stuck"), element("frontends", "own", "stuck")})
		l.Adopt([]Absent{{Key: key("stuck"), Created: created}}, labels{})
		if got := changes(l.Plan()); got != want {
			t.Errorf("planned %q, want %q", got, want)
		}
		l.Forgo(key("stuck"), 1) // its actor has seen later that it is too large
		if got := changes(l.Plan()); got != "contested:stuck>young " {
			t.Errorf("planned %q once it is too large", got)
		}
	}
}

// What goes with a lead is of the Service that has the lead, also if another program has taken
// its name: it goes with that Service, and no refused one keeps it.
func TestNamelessElementsGoWithTheirLead(t *testing.T) {
	l := New(nil, names{})
	l.Want(fragment("good", 0, 1, served(1, "good"), slot(1, 0, "good")))
	l.Want(fragment("late", 0, 1, served(2, "late"), slot(2, 0, "late")))
	l.Want(fragment("bad", 0, 1, served(3, "bad new"), served(4, "bad new")))
	l.Observe([]dataplane.Object{
		served(1, "good"), slot(1, 0, "good"), slot(1, 1, " good's"),
		served(2, "late"), slot(2, 0, "old"), slot(2, 1, " late's"),
		served(3, "bad"), slot(3, 0, " bad's"), served(4, " "), slot(4, 0, " bad's"),
		slot(5, 0, " anybody's"),
	})
	if got := settledKeys(l.Adopt(nil, labels{})); got != "good" {
		t.Fatalf("settled %q", got)
	}
	l.Hold(key("bad"))
	l.Settle(l.Plan(), landed())
	want := "cluster-endpoints-a  anybody's 1, cluster-endpoints-a  bad's 2, cluster-endpoints-a good 1, " +
		"cluster-endpoints-a late 1, frontends   1, frontends bad 1, frontends good 1, frontends late 1"
	if got := inForce(l); got != want {
		t.Errorf("with the bad one held:\n%s, want\n%s", got, want)
	}
	l.Release(key("bad"))
	l.Settle(l.Plan(), landed())
	l.Settle(l.Plan(), landed())
	want = "cluster-endpoints-a good 1, cluster-endpoints-a late 1, frontends bad new 2, frontends good 1, frontends late 1"
	if got := inForce(l); got != want {
		t.Errorf("released:\n%s, want\n%s", got, want)
	}
	if b := l.Plan(); b != nil {
		t.Errorf("left: %q", changes(b))
	}
}

// Another program has emptied a chain that Services share, while no process ran. A refused
// Service that led there does not keep others from it, and is served again with them. When the
// last of them goes, the chain stays as it is.
func TestWhatIsSharedIsAsOthersWantIt(t *testing.T) {
	linked := func(o dataplane.Object, to string) dataplane.Object {
		o.Links = dataplane.LinkTo(dataplane.ID{Container: "nat", Name: to})
		return o
	}
	l := New(nil, names{})
	l.Want(fragment("bad", 3, 1, element("frontends", "vip", "bad new")))
	l.Observe([]dataplane.Object{element("frontends", "vip", "bad→nat/shared"), chain("shared", " emptied")})
	l.Adopt([]Absent{{Key: key("late")}}, labels{})
	l.Hold(key("bad"))
	if b := l.Plan(); b != nil {
		t.Fatalf("held: %q", changes(b))
	}
	plan := func(when, want string) {
		t.Helper()
		b := l.Plan()
		if got := changes(b); got != want {
			t.Errorf("%s: planned %q, want %q", when, got, want)
		}
		if b != nil {
			l.Settle(b, landed())
		}
	}
	young := fragment("young", 5, 1, linked(chain("shared", " →nat/pool"), "pool"), chain("pool", " pool"),
		linked(element("frontends", "vip2", "young"), "shared"))
	l.Want(young)
	plan("shared", "vip2:->young pool:-> pool shared: emptied> →nat/pool ")
	leave := func(name string) {
		gone := fragment(name, 0, 2)
		gone.Gone = true
		l.Want(gone)
	}
	leave("young")
	plan("when the other goes", "vip2:young>- ")
	l.Want(fragment("old", 0, 1, element("frontends", "vip", "old")))
	plan("the frontend, which is not shared", "vip:bad→nat/shared>old ")
	leave("old")
	plan("when the elder goes", "vip:old>bad→nat/shared ")
	l.Release(key("bad"))
	plan("released", "vip:bad→nat/shared>bad new pool: pool>- shared: →nat/pool>- ")
}

// Of two Services that share a frontend, one was found with the frontend and the other with what
// goes with it. The first is the elder now. Nothing goes until it submits, whether the other one
// does or not.
func TestWhatWasFoundTogetherStaysTogether(t *testing.T) {
	for _, test := range []struct {
		found   []dataplane.Object
		submits bool
	}{{firewall(1, "s17", 1), false}, {firewall(1, "s17", 1), true}, {[]dataplane.Object{slot(1, 0, "s17")}, true}} {
		l := New(nil, names{})
		if test.submits {
			l.Want(fragment("s17", 5, 1, append(slices.Clone(test.found), served(1, "s17"))...))
		}
		l.Observe(append(slices.Clone(test.found), served(1, "s10")))
		l.Adopt([]Absent{{Key: key("s10"), Created: epoch}, {Key: key("s17"), Created: epoch}}, labels{})
		if b := l.Plan(); b != nil && len(b.Changes) > 0 {
			t.Errorf("%+v: planned %q", test, changes(b))
		}
		l.Want(fragment("s10", 0, 1, append(firewall(1, "s10", 2), served(1, "s10"))...))
		l.Settle(l.Plan(), landed())
		expectInForce(t, l, "when the elder submits", "allowed-sources s10 1, firewalled s10 1, frontends s10 1")
	}
}

// A frontend without a name is of the one Service that wants something there, and goes with it.
// If several do, it may be anybody's.
func TestANamelessFrontendIsOfWhoWantsIt(t *testing.T) {
	for _, several := range []bool{false, true} {
		l := New(nil, names{})
		l.Want(fragment("good", 0, 1, refused(1, "good")))
		if several {
			l.Want(fragment("other", 5, 1, refused(1, "other")))
		}
		l.Want(fragment("bad", 0, 1, served(2, "bad new")))
		l.Observe([]dataplane.Object{served(1, " "), served(2, "bad")})
		l.Adopt(nil, labels{})
		l.Hold(key("bad"))
		l.Settle(l.Plan(), landed())
		want := "frontends bad 1, no-local-endpoints good 1"
		if several {
			want = "frontends   1, " + want
		}
		if got := inForce(l); got != want {
			t.Errorf("several %t: got %q, want %q", several, got, want)
		}
	}
}
