// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"maps"
	"slices"
	"strings"
	"testing"

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

// TestAdopt_SettlesObjectsAsWanted: Adopt settles a Service whose objects are all as wanted without a write, even if
// another Service differs.
func TestAdopt_SettlesObjectsAsWanted(t *testing.T) {
	l := New(nil, names{}, nil)
	l.Want(fragment("a", 1, chain("a1", "x"), chain("a2", "x")))
	l.Want(fragment("b", 1, chain("b1", "new")))
	l.Observe([]dataplane.Object{chain("a1", "x"), chain("a2", "x"), chain("b1", "old"), chain("left", "over")})
	if got := settledKeys(l.Adopt(nil, labels{})); got != "a" {
		t.Errorf("settled %q, want a alone", got)
	}
	if got := changes(l.Plan()); got != "b1:old>new left:over>- " {
		t.Errorf("planned %q", got)
	}
}

// TestHold_KeepsPreviousProcessObjects: a Service held after a start keeps leftover objects of the previous process:
// those that it still wants, those named after it, and the chains and elements that these lead to.
func TestHold_KeepsPreviousProcessObjects(t *testing.T) {
	l := New(nil, names{}, nil)
	l.Want(fragment("bad", 1, chain("same", "as it was"), chain("new", "poison")))
	l.Want(fragment("other", 1, chain("o", "o")))
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

// TestAdopt_RetainedGoesWithItsService: the removal of a chain that a previous process left belongs to the Service whose
// elements led there, and the result of the removal is the result of that Service.
func TestAdopt_RetainedGoesWithItsService(t *testing.T) {
	l := New(nil, names{}, nil)
	l.Want(fragment("other", 1, chain("old", " →nat/older"), chain("older", " ")))
	l.Observe([]dataplane.Object{served(1, "late→nat/old"), chain("old", " →nat/older"), chain("older", " ")})
	l.Adopt([]service.Key{key("late")}, labels{})
	l.Want(gone("other"))
	l.Settle(l.Plan(), landed())
	l.Want(fragment("late", 1, served(1, "late")))
	b := l.Plan()
	certain := map[dataplane.ID]*dataplane.Object{}
	for _, c := range b.Changes {
		if certain[c.ID] = c.After; c.ID.Name == "older" {
			certain[c.ID] = c.Before
		}
		if c.Owner != key("late") {
			t.Errorf("%v is of %v", c.ID, c.Owner)
		}
	}
	if settled := l.Settle(b, dataplane.Receipt{Outcome: dataplane.Rejected, Certain: certain}); len(b.Changes) != 3 || len(settled) != 0 {
		t.Errorf("planned %q, settled %v before all of it is gone", changes(b), settled)
	}
}

// TestAdopt_UnsubmittedKeepsWhatItHas: a Service that has not submitted keeps the objects named after it until it
// submits or is deleted. It keeps a frontend that another Service wants only if it owns the frontend.
func TestAdopt_UnsubmittedKeepsWhatItHas(t *testing.T) {
	for owner, want := range map[string]string{"late": "gone:gone>- ", "a": "%s:late>a gone:gone>- ", "unknown": "%s:late>a gone:gone>- "} {
		l := New(nil, names{}, owners{1: owner}.of)
		if owner == "unknown" {
			l = New(nil, names{}, nil)
		}
		l.Want(fragment("a", 1, served(1, "a")))
		l.Observe([]dataplane.Object{element("frontends", "vip", "late"), served(1, "late"), element("frontends", "gone", "gone")})
		l.Adopt([]service.Key{key("late"), key("never heard of")}, labels{})
		b := l.Plan()
		if got, want := changes(b), strings.Replace(want, "%s", served(1, "").ID.Name, 1); got != want {
			t.Errorf("%s owns it: planned %q, want %q", owner, got, want)
		}
		l.Settle(b, landed())
		left := gone("late")
		left.Revision = service.Revision{}
		l.Want(left)
		l.Settle(l.Plan(), landed())
		expectApplied(t, l, "the late one is gone", "frontends a 1")
	}
}

// TestAdopt_NamelessElementsStayForHeirs: elements without a name may belong to any Service, so they stay until every
// Service that the previous process served differently is applied.
func TestAdopt_NamelessElementsStayForHeirs(t *testing.T) {
	l := New(nil, names{}, nil)
	l.Want(fragment("a", 1, chain("a", "new")))
	l.Want(fragment("b", 1, chain("b", "new")))
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

// TestAdopt_HeirElementsOutliveOthers: leftover elements without a name also stay when another Service wants them at
// the start and is deleted.
func TestAdopt_HeirElementsOutliveOthers(t *testing.T) {
	l := New(nil, names{}, nil)
	l.Want(fragment("other", 1, hairpin()))
	l.Observe([]dataplane.Object{served(1, "late"), hairpin()})
	l.Adopt([]service.Key{key("late")}, labels{})
	l.Want(gone("other"))
	if b := l.Plan(); b != nil && len(b.Changes) > 0 {
		t.Fatalf("planned %q", changes(b))
	}
	l.Settle(l.Plan(), landed())
	l.Want(fragment("late", 1, served(1, "late")))
	l.Settle(l.Plan(), landed())
	if got, want := changes(l.Plan()), "pod:>- "; got != want {
		t.Errorf("once it has submitted: planned %q, want %q", got, want)
	}
}

// TestFreeze_LeavesWhatKernelHas: a frozen Service keeps the objects that the kernel has, even if these are fewer than
// were applied.
func TestFreeze_LeavesWhatKernelHas(t *testing.T) {
	l := New(nil, names{}, nil)
	l.Want(fragment("a", 1, chain("a1", "x"), chain("a2", "x")))
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

// TestSettle_EachContributorByItself: the ack of a Service waits for the objects that this Service gave up, and not for
// objects of other Services.
func TestSettle_EachContributorByItself(t *testing.T) {
	l := New(nil, names{}, nil)
	l.Want(fragment("a", 1, chain("a1", "x"), chain("a2", "x")))
	l.Want(fragment("b", 1, chain("b1", "x")))
	l.Settle(l.Plan(), landed())
	l.Want(fragment("a", 2, chain("a1", "y")))
	l.Want(fragment("b", 2, chain("b1", "y")))
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

// TestFreeze_LandedRepairSurvivesHold: a Service that is frozen, released and held again keeps a repair that landed in
// between, and does not fall back to the damaged objects.
func TestFreeze_LandedRepairSurvivesHold(t *testing.T) {
	l := New(nil, names{}, nil)
	l.Want(fragment("a", 1, chain("a1", "x"), chain("a2", "x")))
	l.Settle(l.Plan(), landed())
	l.Observe([]dataplane.Object{chain("a1", "changed"), chain("a2", "changed")})
	l.Freeze([]service.Key{key("a")}, nil)
	l.Release(key("a"))
	l.Settle(l.Plan(), dataplane.Receipt{Outcome: dataplane.Unknown})
	l.Observe([]dataplane.Object{chain("a1", "x"), chain("a2", "changed")})
	l.Hold(key("a"))
	if b := l.Plan(); b != nil {
		t.Errorf("held again: %q, want nothing to change", changes(b))
	}
}

// rowLayout composes all elements into one chain, a row each.
type rowLayout struct{ rows map[dataplane.ID]string }

func (l *rowLayout) Put(e *dataplane.Object, _ service.Key) { l.rows[e.ID] = e.ID.Name + "=" + e.Body }
func (l *rowLayout) Remove(id dataplane.ID)                 { delete(l.rows, id) }
func (l *rowLayout) Path(dataplane.ID) []dataplane.ID       { return []dataplane.ID{chain("root", "").ID} }

func (l *rowLayout) Flush() []dataplane.Composed {
	root := chain("root", strings.Join(slices.Sorted(maps.Values(l.rows)), "\n"))
	return []dataplane.Composed{{ID: root.ID, Object: &root}}
}

func (l *rowLayout) Recover(read []*dataplane.Object) (elements, others []*dataplane.Object) {
	for _, o := range read {
		if o.ID.Name != "root" {
			others = append(others, o)
			continue
		}
		for row := range strings.SplitSeq(o.Body, "\n") {
			name, body, _ := strings.Cut(row, "=")
			elements = append(elements, &dataplane.Object{
				ID: dataplane.ID{Container: "@rows", Name: name}, Kind: dataplane.Element, Body: body,
			})
		}
	}
	return elements, others
}

// TestFreeze_LandedRepairSurvivesHoldWithLayout checks the same as TestFreeze_LandedRepairSurvivesHold for a layout
// whose writes land as a whole, where a read shows that a write without an answer landed.
func TestFreeze_LandedRepairSurvivesHoldWithLayout(t *testing.T) {
	l := New(&rowLayout{map[dataplane.ID]string{}}, names{}, nil)
	row := dataplane.Object{ID: dataplane.ID{Container: "@rows", Name: "r"}, Kind: dataplane.Element, Body: "to a1"}
	l.Want(fragment("a", 1, chain("a1", "x"), row))
	l.Settle(l.Plan(), landed())
	l.Observe([]dataplane.Object{chain("a1", "changed"), chain("root", "r=to a1")})
	l.Freeze([]service.Key{key("a")}, nil)
	l.Release(key("a"))
	l.Settle(l.Plan(), dataplane.Receipt{Outcome: dataplane.Unknown})
	l.Observe([]dataplane.Object{chain("a1", "x"), chain("root", "r=to a1")})
	l.Hold(key("a"))
	if b := l.Plan(); b != nil {
		t.Errorf("held again: %q, want nothing to change", changes(b))
	}
}

// TestFreeze_UnsubmittedThaws: a Service that has not submitted can be frozen, and its objects are written when it
// submits.
func TestFreeze_UnsubmittedThaws(t *testing.T) {
	l := New(nil, names{}, nil)
	l.Observe([]dataplane.Object{element("frontends", "vip", "late")})
	l.Adopt([]service.Key{key("late")}, labels{})
	l.Observe([]dataplane.Object{element("frontends", "vip", "late→nat/elsewhere")})
	l.Hold(key("late"))
	l.Freeze([]service.Key{key("late")}, labels{})
	if b := l.Plan(); b != nil {
		t.Fatalf("frozen: %q", changes(b))
	}
	l.Release(key("late"))
	if b := l.Plan(); b != nil {
		t.Errorf("released: %q", changes(b))
	}
	l.Want(fragment("late", 1, element("frontends", "vip", "late")))
	if got := changes(l.Plan()); got != "vip:late→nat/elsewhere>late " {
		t.Errorf("submitted: %q", got)
	}
}

// TestHold_RejectedServiceSharesChain: a shared chain stays as the other Services want it while elements of a rejected
// Service lead to it. A rejected Service without elements in the kernel keeps no chain.
func TestHold_RejectedServiceSharesChain(t *testing.T) {
	for _, served := range []bool{true, false} {
		l := New(nil, names{}, nil)
		leading := dataplane.Object{ID: dataplane.ID{Container: "frontends", Name: "vip"}, Kind: dataplane.Element,
			Body: "bad→nat/shared; new", Links: dataplane.LinkTo(dataplane.ID{Container: "nat", Name: "shared"})}
		l.Want(fragment("bad", 1, chain("shared", " pool"), leading))
		l.Want(fragment("other", 1, chain("shared", " pool"), element("frontends", "vip2", "other→nat/shared")))
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
		l.Want(gone("other"))
		want := "vip2:other→nat/shared>- "
		if !served {
			want += "shared: pool>- "
		}
		if got := changes(l.Plan()); got != want {
			t.Errorf("served before %t: when the other goes: %q, want %q", served, got, want)
		}
	}
}

// TestAdopt_ElementsOfOwnSet: a leftover nameless element in a set that one Service wants belongs to this Service. It
// is removed although another Service is rejected.
func TestAdopt_ElementsOfOwnSet(t *testing.T) {
	l := New(nil, names{}, nil)
	l.Want(fragment("a", 1, chain("a-picks", " ")))
	l.Want(fragment("bad", 1, chain("b", "new")))
	l.Observe([]dataplane.Object{chain("a-picks", " "), element("picks", "1", " →nat/a-picks"), chain("b", " old")})
	l.Adopt(nil, labels{})
	l.Hold(key("bad"))
	if got := changes(l.Plan()); got != "1: →nat/a-picks>- " {
		t.Errorf("planned %q", got)
	}
}

// TestAdopt_NamelessElementsGoWithFrontend: an element without a name belongs to the owner of its frontend. It is
// removed when this Service is written, and no rejected Service keeps it.
func TestAdopt_NamelessElementsGoWithFrontend(t *testing.T) {
	l := New(nil, names{}, owners{1: "good", 2: "late", 3: "bad", 4: "bad"}.of)
	l.Want(fragment("good", 1, served(1, "good"), slot(1, 0, "good")))
	l.Want(fragment("late", 1, served(2, "late"), slot(2, 0, "late")))
	l.Want(fragment("bad", 1, served(3, "bad new"), served(4, "bad new")))
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
	if got := applied(l); got != want {
		t.Errorf("with the bad one held:\n%s, want\n%s", got, want)
	}
	l.Release(key("bad"))
	l.Settle(l.Plan(), landed())
	l.Settle(l.Plan(), landed())
	want = "cluster-endpoints-a good 1, cluster-endpoints-a late 1, frontends bad new 2, frontends good 1, frontends late 1"
	if got := applied(l); got != want {
		t.Errorf("released:\n%s, want\n%s", got, want)
	}
	if b := l.Plan(); b != nil {
		t.Errorf("left: %q", changes(b))
	}
}

// TestHold_SharedChainAsOthersWant: a rejected Service that led to a shared chain, emptied while no process ran, does
// not keep other Services from restoring the chain. When the last of them is deleted, the chain stays as it is.
func TestHold_SharedChainAsOthersWant(t *testing.T) {
	linked := func(o dataplane.Object, to string) dataplane.Object {
		o.Links = dataplane.LinkTo(dataplane.ID{Container: "nat", Name: to})
		return o
	}
	l := New(nil, names{}, owners{1: "old"}.of)
	l.Want(fragment("bad", 1, served(1, "bad new")))
	l.Observe([]dataplane.Object{served(1, "bad→nat/shared"), chain("shared", " emptied")})
	l.Adopt([]service.Key{key("late")}, labels{})
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
	young := fragment("young", 1, linked(chain("shared", " →nat/pool"), "pool"), chain("pool", " pool"),
		linked(element("frontends", "vip2", "young"), "shared"))
	l.Want(young)
	plan("shared", "vip2:->young pool:-> pool shared: emptied> →nat/pool ")
	l.Want(gone("young"))
	plan("when the other goes", "vip2:young>- ")
	l.Want(fragment("old", 1, served(1, "old")))
	plan("the frontend, which is not shared", served(1, "").ID.Name+":bad→nat/shared>old ")
	l.Want(gone("old"))
	plan("when the elder goes", served(1, "").ID.Name+":old>bad→nat/shared ")
	l.Release(key("bad"))
	plan("released", served(1, "").ID.Name+":bad→nat/shared>bad new pool: pool>- shared: →nat/pool>- ")
}

// TestAdopt_FoundTogetherStaysTogether: when a frontend is found under its owner's name and its other objects under
// that of another Service, none of them is removed until the owner submits.
func TestAdopt_FoundTogetherStaysTogether(t *testing.T) {
	for _, test := range []struct {
		found   []dataplane.Object
		submits bool
	}{{firewall(1, "s17", 1), false}, {firewall(1, "s17", 1), true}, {[]dataplane.Object{slot(1, 0, "s17")}, true}} {
		l := New(nil, names{}, owners{1: "s10"}.of)
		if test.submits {
			l.Want(fragment("s17", 1, append(slices.Clone(test.found), served(1, "s17"))...))
		}
		l.Observe(append(slices.Clone(test.found), served(1, "s10")))
		l.Adopt([]service.Key{key("s10"), key("s17")}, labels{})
		if b := l.Plan(); b != nil && len(b.Changes) > 0 {
			t.Errorf("%+v: planned %q", test, changes(b))
		}
		l.Want(fragment("s10", 1, append(firewall(1, "s10", 2), served(1, "s10"))...))
		l.Settle(l.Plan(), landed())
		expectApplied(t, l, "when the owner submits", "allowed-sources s10 1, firewalled s10 1, frontends s10 1")
	}
}

// TestAdopt_NamelessFrontendIsOwners: a frontend without a name belongs to its owner and is removed when the owner is
// written. Without an owner, it may belong to any Service, and stays for a rejected one.
func TestAdopt_NamelessFrontendIsOwners(t *testing.T) {
	for _, owned := range []bool{true, false} {
		at, want := 3, "frontends   1, frontends bad 1, no-local-endpoints good 1"
		if owned {
			at, want = 1, "frontends bad 1, no-local-endpoints good 1"
		}
		l := New(nil, names{}, owners{1: "good", 2: "bad"}.of)
		l.Want(fragment("good", 1, rejected(1, "good")))
		l.Want(fragment("bad", 1, served(2, "bad new")))
		l.Observe([]dataplane.Object{served(at, " "), served(2, "bad")})
		l.Adopt(nil, labels{})
		l.Hold(key("bad"))
		l.Settle(l.Plan(), landed())
		if got := applied(l); got != want {
			t.Errorf("owned %t: got %q, want %q", owned, got, want)
		}
	}
}
