// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// names is the naming of the objects in these tests. The names of those in frontendContainers begin
// with a frontend of IPv4.
type names struct{}

var frontendContainers = []string{"@frontends", "@no-local-endpoints", "@cluster-endpoints-a", "@firewalled", "@allowed-sources"}

func (names) Frontend(id dataplane.ID) (f service.Frontend, ok bool) {
	if !slices.Contains(frontendContainers, id.Container) {
		return f, false
	}
	addr, _ := netip.AddrFromSlice([]byte(id.Name[:4]))
	return service.Frontend{Addr: addr, Port: uint16(id.Name[9]), Protocol: service.TCP}, true
}

func (names) Stage(id dataplane.ID) dataplane.Stage {
	if id.Container == "@frontends" {
		return dataplane.StageFrontend
	}
	return dataplane.StageNone
}

// Sends reads bodies such as "to 10.0.0.1:80 10.0.0.2:80".
func (names) Sends(o *dataplane.Object, each func(netip.AddrPort)) {
	for word := range strings.SplitSeq(o.Body, " ") {
		if at, err := netip.ParseAddrPort(word); err == nil {
			each(at)
		}
	}
}

// served and rejected are objects of frontend x.
func served(x int, body string) dataplane.Object   { return frontendIn("@frontends", x, body) }
func rejected(x int, body string) dataplane.Object { return frontendIn("@no-local-endpoints", x, body) }

func frontendIn(container string, x int, body string) dataplane.Object {
	name := string([]byte{192, 0, 2, byte(x), 6, 0, 0, 0, 0, 80, 0, 0})
	return dataplane.Object{ID: dataplane.ID{Container: container, Name: name}, Kind: dataplane.Element, Body: body}
}

// slot is an endpoint of frontend x at a place of its table.
func slot(x, at int, body string) dataplane.Object {
	o := frontendIn("@cluster-endpoints-a", x, body)
	o.ID.Name += string([]byte{byte(at), 0, 0, 0})
	return o
}

// firewall is what source ranges of a frontend come to.
func firewall(x int, body string, ranges ...byte) []dataplane.Object {
	all := []dataplane.Object{frontendIn("@firewalled", x, body)}
	for _, r := range ranges {
		o := frontendIn("@allowed-sources", x, body)
		name := o.ID.Name
		o.ID.Name = name + string([]byte{10, r, 0, 0}) + name + string([]byte{10, r, 255, 255})
		all = append(all, o)
	}
	return all
}

// hairpin is an object that Services share.
func hairpin() dataplane.Object {
	return dataplane.Object{ID: dataplane.ID{Container: "@hairpins", Name: "pod"}, Kind: dataplane.Element}
}

// owners has who owns each frontend by the API.
type owners map[int]string

func (o owners) of(f service.Frontend) (service.Key, bool) {
	name, known := o[int(f.Addr.As4()[3])]
	return key(name), known
}

// applied lists what a ledger wants, by container and whose it is.
func applied(l *Ledger) string {
	counts := map[string]int{}
	for id, e := range l.entries.all() {
		if e.wanted != nil {
			counts[strings.TrimPrefix(id.Container, "@")+" "+e.wanted.Body]++
		}
	}
	var lines []string
	for _, line := range slices.Sorted(maps.Keys(counts)) {
		lines = append(lines, fmt.Sprintf("%s %d", line, counts[line]))
	}
	return strings.Join(lines, ", ")
}

func expectApplied(t *testing.T, l *Ledger, when, want string) {
	t.Helper()
	if got := applied(l); got != want {
		t.Errorf("%s: got %q, want %q", when, got, want)
	}
}

// TestFrontends_OneServiceHasAll: all objects of a frontend belong to one Service. Endpoints and source ranges of two
// Services never mix, in either order of submission.
func TestFrontends_OneServiceHasAll(t *testing.T) {
	has := owners{1: "owner"}
	for what, c := range map[string]struct {
		owner, other []dataplane.Object
		want         string
	}{
		"fewer endpoints": {
			[]dataplane.Object{served(1, "owner"), slot(1, 0, "owner"), slot(1, 2, "owner")},
			[]dataplane.Object{served(1, "other"), slot(1, 0, "other"), slot(1, 1, "other"), slot(1, 2, "other"), slot(1, 3, "other")},
			"cluster-endpoints-a owner 2, frontends owner 1"},
		"open to all": {
			[]dataplane.Object{served(1, "owner")}, append(firewall(1, "other", 1, 2), served(1, "other")), "frontends owner 1"},
		"other source ranges": {
			append(firewall(1, "owner", 1), served(1, "owner")), append(firewall(1, "other", 1, 2, 3), served(1, "other")),
			"allowed-sources owner 1, firewalled owner 1, frontends owner 1"},
		"no endpoints": {
			[]dataplane.Object{rejected(1, "owner")}, []dataplane.Object{served(1, "other"), slot(1, 0, "other")}, "no-local-endpoints owner 1"},
		"another frontend as well": {
			[]dataplane.Object{served(1, "owner")}, []dataplane.Object{served(1, "other"), served(2, "other"), slot(2, 0, "other")},
			"cluster-endpoints-a other 1, frontends other 1, frontends owner 1"},
	} {
		owner, other := fragment("owner", 1, c.owner...), fragment("other", 1, c.other...)
		for _, order := range [][]*dataplane.Fragment{{owner, other}, {other, owner}} {
			l := New(nil, names{}, has.of)
			for _, f := range order {
				l.Want(f)
			}
			expectApplied(t, l, what, c.want)
			if settled := l.Settle(l.Plan(), landed()); len(settled) != 2 {
				t.Errorf("%s: settled %v, want both", what, settled)
			}
		}
	}
}

// TestFrontends_NextOwnerAfterLeave: when the owner of a frontend is deleted, the next Service gets it with everything
// that it wants by then.
func TestFrontends_NextOwnerAfterLeave(t *testing.T) {
	l := New(nil, names{}, owners{1: "owner"}.of)
	l.Want(fragment("other", 1, served(1, "other"), slot(1, 0, "other"), served(2, "other")))
	l.Want(fragment("owner", 1, served(1, "owner"), slot(1, 0, "owner")))
	l.Settle(l.Plan(), landed())
	l.Want(fragment("other", 2, served(1, "other"), slot(1, 1, "other"), slot(1, 2, "other")))
	expectApplied(t, l, "the other one has changed", "cluster-endpoints-a owner 1, frontends owner 1")
	l.Want(gone("owner"))
	expectApplied(t, l, "the owner has left", "cluster-endpoints-a other 2, frontends other 1")
	l.Want(gone("other"))
	l.Settle(l.Plan(), landed())
	if s := l.Stats(); s != (Stats{}) || len(l.frontends.tenures)+len(l.frontends.losers) > 0 {
		t.Errorf("left: %+v, %+v", s, l.frontends)
	}
}

// TestFrontends_OwnerMovesWhileFormerHeld: when a frontend moves away from a held Service, its objects are removed in
// the batch that serves the new owner, and not before. The held Service keeps its other objects.
func TestFrontends_OwnerMovesWhileFormerHeld(t *testing.T) {
	has := owners{1: "old", 2: "old"}
	l := New(nil, names{}, has.of)
	l.Want(fragment("old", 1, append(firewall(1, "old", 1), served(1, "old"), served(2, "old"))...))
	l.Settle(l.Plan(), landed())
	l.Want(fragment("old", 2, served(2, "old"), chain("o", "rejected")))
	l.Hold(key("old"))
	has[1] = "new"
	if b := l.Plan(); b != nil {
		t.Fatalf("before the new owner submits: %q", changes(b))
	}
	l.Want(fragment("new", 1, served(1, "new"), slot(1, 0, "new")))
	expectApplied(t, l, "the new owner has submitted", "cluster-endpoints-a new 1, frontends new 1, frontends old 1")
	l.Settle(l.Plan(), landed())
	l.Hold(key("new"))
	expectApplied(t, l, "the new owner is held", "cluster-endpoints-a new 1, frontends new 1, frontends old 1")
	has[1] = "old" // it is taken from the new one, which is held now
	l.Want(fragment("old", 3, append(firewall(1, "old", 1), served(1, "old 3"), served(2, "old 3"))...))
	l.Release(key("old"))
	expectApplied(t, l, "back", "allowed-sources old 1, firewalled old 1, frontends old 3 2")
}

// TestFrontends_RemovalBelongsToTaker: the Service that takes a frontend also owns the removal of the previous owner's
// objects there. Otherwise a write divided by Services could add a source range next to one that it overlaps, which the
// kernel rejects.
func TestFrontends_RemovalBelongsToTaker(t *testing.T) {
	has := owners{1: "loser"}
	l := New(nil, names{}, has.of)
	l.Want(fragment("loser", 1, append(firewall(1, "loser", 1, 2), served(1, "loser"), served(2, "loser"))...))
	l.Settle(l.Plan(), landed())
	has[1] = "taker"
	l.Want(fragment("taker", 1, append(firewall(1, "taker", 3), served(1, "taker"))...))
	l.Want(fragment("loser", 2))
	removed := map[service.Key]int{}
	for _, c := range l.Plan().Changes {
		if c.After == nil {
			removed[c.Owner]++
		}
	}
	if want := map[service.Key]int{key("taker"): 2, key("loser"): 1}; !maps.Equal(removed, want) {
		t.Errorf("removals by owner: %v, want two ranges of the taker's and the other frontend: %v", removed, want)
	}
}

// TestFrontends_HeldServiceGivesWay: a held Service gives a frontend to a Service that still wants it, if the API names
// no owner.
func TestFrontends_HeldServiceGivesWay(t *testing.T) {
	l := New(nil, names{}, nil)
	l.Want(fragment("a", 1, served(1, "a")))
	l.Settle(l.Plan(), landed())
	l.Want(fragment("b", 1, served(1, "b")))
	expectApplied(t, l, "two want it", "frontends a 1")
	l.Want(fragment("a", 2, chain("c", "rejected")))
	l.Hold(key("a"))
	l.Want(fragment("b", 2, served(1, "b")))
	expectApplied(t, l, "the first one is held", "frontends b 1")
	l.Want(gone("b"))
	expectApplied(t, l, "the second one has left", "frontends a 1")
}

// TestFrontends_KeptByTwoOneInKernelStays: if two held Services keep a frontend that neither owns any more, the objects
// in the kernel stay. The objects of the Service that lost it earlier do not return.
func TestFrontends_KeptByTwoOneInKernelStays(t *testing.T) {
	for _, order := range [][2]string{{"a", "b"}, {"b", "a"}} {
		former, latter := order[0], order[1]
		has := owners{1: former}
		l := New(nil, names{}, has.of)
		l.Want(fragment(former, 1, served(1, former)))
		l.Settle(l.Plan(), landed())
		l.Want(fragment(former, 2, chain("c", "rejected")))
		l.Hold(key(former))
		has[1] = latter
		l.Want(fragment(latter, 1, append(firewall(1, latter, 1), served(1, latter))...))
		l.Settle(l.Plan(), landed())
		delete(has, 1)
		l.Want(fragment(latter, 2, chain("d", "rejected")))
		b := l.Plan()
		l.Settle(b, rejectedButFor(b, func(dataplane.ID) bool { return false }))
		l.Hold(key(latter))
		expectApplied(t, l, latter+" is held", fmt.Sprintf("allowed-sources %[1]s 1, firewalled %[1]s 1, frontends %[1]s 1", latter))
	}
}

// TestFrontends_Quick: after any history, each frontend has exactly the objects that one Service wants there, and its
// owner has it if the owner wants anything.
func TestFrontends_Quick(t *testing.T) {
	seeds := uint64(100)
	if testenv.All() {
		seeds = 1000
	}
	for seed := range seeds {
		random := rand.New(rand.NewPCG(seed, 7))
		has := owners{}
		for x := range 2 {
			if random.IntN(3) > 0 {
				has[x] = "s" + strconv.Itoa(random.IntN(6)) // s5 never submits
			}
		}
		l := New(nil, names{}, has.of)
		for step := range uint64(60) {
			name := "s" + strconv.Itoa(random.IntN(5))
			switch random.IntN(8) {
			case 0:
				l.Hold(key(name))
			case 1:
				l.Release(key(name))
			default:
				f := fragment(name, step+1, randomOfFrontends(random, name)...)
				f.Gone = len(f.Objects) == 0
				l.Want(f)
			}
			if err := checkFrontends(l, has); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, step, err)
			}
			if random.IntN(3) == 0 {
				if b := l.Plan(); b != nil {
					l.Settle(b, landed())
				}
			}
		}
		for i := range 5 {
			l.Release(key("s" + strconv.Itoa(i)))
			l.Want(gone("s" + strconv.Itoa(i)))
		}
		if b := l.Plan(); b != nil {
			l.Settle(b, landed())
		}
		if s := l.Stats(); s != (Stats{}) || len(l.frontends.tenures)+len(l.frontends.losers) > 0 {
			t.Fatalf("seed %d: left: %+v, %+v, %s", seed, s, l.frontends, applied(l))
		}
	}
}

func checkFrontends(l *Ledger, has owners) error {
	for x := range 2 {
		f, _ := names{}.Frontend(served(x, "").ID)
		wanted := map[dataplane.ID]string{}
		for id, e := range l.entries.all() {
			if at, ok := (names{}).Frontend(id); ok && at == f && e.wanted != nil {
				wanted[id] = e.wanted.Body
			}
		}
		var wishes []string
		by := service.Key{}
		for k, a := range l.accounts {
			wish := map[dataplane.ID]string{}
			for _, o := range objectsOf(a.folded) {
				if at, ok := (names{}).Frontend(o.ID); ok && at == f {
					wish[o.ID] = o.Body
				}
			}
			if len(wish) == 0 {
				continue
			}
			wishes = append(wishes, fmt.Sprint(k, wish))
			if maps.Equal(wish, wanted) {
				by = k
			}
		}
		owner, known := has.of(f)
		ownerWants := known && slices.ContainsFunc(wishes, func(w string) bool { return strings.HasPrefix(w, owner.String()+"map") })
		switch {
		case len(wishes) == 0 && len(wanted) > 0, len(wishes) > 0 && by == (service.Key{}):
			return fmt.Errorf("frontend %d has %v, of the wishes %v", x, wanted, wishes)
		case ownerWants && by != owner:
			return fmt.Errorf("%v has frontend %d, and %v owns it", by, x, owner)
		}
	}
	return nil
}

func randomOfFrontends(random *rand.Rand, body string) []dataplane.Object {
	all := []dataplane.Object{}
	for x := range 2 {
		switch random.IntN(4) {
		case 0, 1:
			all = append(all, served(x, body))
			for at := range 4 {
				if random.IntN(2) == 0 {
					all = append(all, slot(x, at, body+strconv.Itoa(random.IntN(2))))
				}
			}
		case 2:
			all = append(all, rejected(x, body))
		default:
			continue
		}
		if random.IntN(2) == 0 {
			all = append(all, firewall(x, body, byte(random.IntN(3)), byte(3+random.IntN(3)))...)
		}
	}
	return all
}

// TestFrontends_CostWhatIsLost: the cost of moving frontends is linear in their number. A Service may lose thousands of
// frontends in one change.
func TestFrontends_CostWhatIsLost(t *testing.T) {
	cost := func(frontends int) int {
		has := owners{}
		var old, young []dataplane.Object
		for x := range frontends {
			has[x] = "old"
			old, young = append(old, served(x, "old"), slot(x, 0, "old")), append(young, served(x, "young"), slot(x, 0, "young"))
		}
		l := New(nil, names{}, has.of)
		l.Want(fragment("old", 1, old...))
		l.Want(fragment("young", 1, young...))
		l.Settle(l.Plan(), landed())
		before := l.steps
		l.Want(gone("old"))
		l.Settle(l.Plan(), landed())
		return l.steps - before
	}
	if few, many := cost(20), cost(200); many > 11*few || few == 0 {
		t.Errorf("20 frontends cost %d steps, 200 cost %d", few, many)
	}
}

// TestFrontends_SharingAllocatesNothing: a change of a Service that shares hairpins, but no frontend, with other
// Services allocates no more than it does alone.
func TestFrontends_SharingAllocatesNothing(t *testing.T) {
	allocations := func(others int) float64 {
		l := New(nil, names{}, nil)
		for i := range others {
			l.Want(fragment("other"+strconv.Itoa(i), 1, served(i+10, "other"), hairpin()))
		}
		with, without := fragment("a", 1, served(1, "1"), hairpin()), fragment("a", 1, served(1, "2"))
		l.Want(with)
		l.Settle(l.Plan(), landed())
		return testing.AllocsPerRun(200, func() {
			l.Want(without)
			l.Want(with)
		})
	}
	if alone, among := allocations(0), allocations(20); among > alone {
		t.Errorf("%v allocations among others, %v alone", among, alone)
	}
}
