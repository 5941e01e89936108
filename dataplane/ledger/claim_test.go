// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// TestClaims_CountedQuick plays random claims for one object against a list of them. All rendered claims are equal, and
// a rendered object replaces a found one.
func TestClaims_CountedQuick(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	accounts := []*account{{key: service.Node}}
	for i := range 20 {
		accounts = append(accounts, &account{key: service.Key{Namespace: "ns", Name: strconv.Itoa(i)}, stance: stance(1 - i%2)})
	}
	var cs claims
	model := map[*account]*dataplane.Object{}
	for step := range 20000 {
		a := accounts[random.IntN(len(accounts))]
		object := &dataplane.Object{Body: "rendered"}
		if a.keeps() {
			object.Body = "found " + strconv.Itoa(random.IntN(4))
		}
		before := cs.winner()
		if before != nil {
			before = &claim{before.by, before.object}
		}
		switch was := model[a]; {
		case was == nil:
			cs.add(claim{a, object})
			model[a] = object
		case random.IntN(2) == 0 || (step/2000)%2 == 1 && random.IntN(3) > 0:
			cs.drop(a)
			delete(model, a)
		default:
			cs.replace(claim{a, object})
			model[a] = object
		}
		rendered := false
		for a := range model {
			rendered = rendered || !a.keeps()
		}
		winner := cs.winner()
		switch {
		case cs.len() != len(model):
			t.Fatalf("step %d: %d claims, want %d", step, cs.len(), len(model))
		case len(model) == 0:
			if winner != nil || cs.last() != a || cs.shared != nil {
				t.Fatalf("step %d: %v wins, last was %v", step, winner, cs.last())
			}
		case winner == nil:
			t.Fatalf("step %d: no claim wins", step)
		case winner.by != nil && model[winner.by] == nil:
			t.Fatalf("step %d: %v wins, which claims nothing", step, winner.by.key)
		case rendered && winner.object.Body != "rendered":
			t.Fatalf("step %d: %q wins", step, winner.object.Body)
		case before != nil && cs.shared != nil && before.object.Body == "rendered" && winner.object.Body != "rendered":
			t.Fatalf("step %d: what is rendered yields to %q", step, winner.object.Body)
		}
	}
}

// TestClaims_ChainOfAllServices: the claims for a chain that all Services share are a count, so they do not make the
// change of one Service expensive.
func TestClaims_ChainOfAllServices(t *testing.T) {
	const many = 1000
	l := New(nil, names{}, nil)
	for i := range many {
		l.Want(fragment("s"+strconv.Itoa(i), 1, chain("shared", "x")))
	}
	if cs := &l.entries.get(chain("shared", "").ID).claims; cs.len() != many {
		t.Errorf("%d claims, want %d", cs.len(), many)
	}
	l.Settle(l.Plan(), landed())
	before := l.steps
	l.Want(fragment("s7", 2, chain("shared", "x"), chain("new", "x")))
	l.Settle(l.Plan(), landed())
	if steps := l.steps - before; steps > 10 {
		t.Errorf("%d steps for a change of one", steps)
	}
	for i := range many {
		if l.Differs(chain("shared", "").ID) {
			t.Fatalf("%d have left, and the chain goes", i)
		}
		l.Want(gone("s" + strconv.Itoa(i)))
	}
	if got, want := changes(l.Plan()), "new:x>- shared:x>- "; got != want {
		t.Errorf("planned %q, want %q", got, want)
	}
}

// TestClaims_SharedRejectionBlamesUnsettled: the change of a shared object is attributed to a Service that has not
// settled, and not to a settled or deleted Service.
func TestClaims_SharedRejectionBlamesUnsettled(t *testing.T) {
	l := New(nil, names{}, nil)
	l.Want(fragment("settled", 1, chain("shared", "x")))
	l.Settle(l.Plan(), landed())
	for _, name := range []string{"first", "b", "a"} {
		l.Want(fragment(name, 1, chain("shared", "y")))
	}
	l.Want(gone("first"))
	b := l.Plan()
	if len(b.Changes) != 1 || b.Changes[0].Owner != key("a") {
		t.Errorf("planned %+v, want one change that a owns", b.Changes)
	}
}

// TestClaims_ContentKeepsWhatItLeadsTo: when the Services that replaced a chain's leftover content are deleted, the
// chain and the objects it leads to stay as long as an adopted Service still leads there.
func TestClaims_ContentKeepsWhatItLeadsTo(t *testing.T) {
	linked := func(o dataplane.Object, to string) dataplane.Object {
		o.Links = dataplane.LinkTo(dataplane.ID{Container: "nat", Name: to})
		return o
	}
	l := New(nil, names{}, nil)
	young := []dataplane.Object{linked(chain("shared", "new →nat/pool"), "pool"), linked(chain("pool", "new →nat/deep"), "deep"), chain("deep", " ")}
	l.Want(fragment("young", 1, young...))
	l.Observe([]dataplane.Object{served(1, "found→nat/shared"), chain("shared", " →nat/former"), chain("former", " ")})
	l.Adopt([]service.Key{key("found")}, labels{})
	l.Settle(l.Plan(), landed())
	l.Want(gone("young"))
	if b := l.Plan(); b != nil && len(b.Changes) > 0 {
		t.Fatalf("planned %q", changes(b))
	}
	l.Settle(l.Plan(), landed())
	l.Want(fragment("again", 1, young...))
	l.Want(gone("found"))
	l.Settle(l.Plan(), landed())
	l.Want(gone("again"))
	l.Settle(l.Plan(), landed())
	if s := l.Stats(); s != (Stats{}) {
		t.Errorf("left: %+v", s)
	}
}
