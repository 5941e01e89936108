package ledger

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// names is the naming of the objects in these tests: their names begin with a
// frontend of IPv4, which takes frontendBytes.
type names struct{}

const frontendBytes = 12

func (names) Frontend(id dataplane.ID) (dataplane.Frontend, bool) {
	if id.Container != "@frontends" && id.Container != "@no-local-endpoints" {
		return dataplane.Frontend{}, false
	}
	addr, _ := netip.AddrFromSlice([]byte(id.Name[:4]))
	return dataplane.Frontend{Addr: addr, Port: uint16(id.Name[9])}, true
}

func (names) Lead(id dataplane.ID) (dataplane.ID, bool) {
	lead, follows := map[string]string{
		"@cluster-endpoints-a": "@frontends", "@firewalled": "@frontends", "@allowed-sources": "@firewalled",
	}[id.Container]
	if !follows {
		return dataplane.ID{}, false
	}
	return dataplane.ID{Container: lead, Name: id.Name[:frontendBytes]}, true
}

func (names) Leads(id dataplane.ID) bool {
	return id.Container == "@frontends" || id.Container == "@firewalled"
}

func (names) LedLead(id dataplane.ID) (dataplane.ID, bool) {
	return dataplane.ID{Container: "@firewalled", Name: id.Name}, id.Container == "@frontends"
}

// slot is an endpoint of frontend x at a place of its table.
func slot(x, at int, body string) dataplane.Object {
	o := frontendIn("@cluster-endpoints-a", x, body)
	o.ID.Name += string([]byte{byte(at), 0, 0, 0})
	return o
}

// firewall is what n source ranges of a VIP come to.
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

// inForce lists what a ledger wants, by container and whose it is.
func inForce(l *Ledger) string {
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

func expectInForce(t *testing.T, l *Ledger, when, want string) {
	t.Helper()
	if got := inForce(l); got != want {
		t.Errorf("%s: got %q, want %q", when, got, want)
	}
}

// TestSlotsGoWithTheFrontend: the younger Service has more endpoints, and none of
// them shows in the gaps of the older one's table.
func TestSlotsGoWithTheFrontend(t *testing.T) {
	l := New(nil, names{})
	l.Want(fragment("young", 9, 1, served(1, "young"), slot(1, 0, "young"), slot(1, 1, "young"), slot(1, 2, "young"), served(2, "young"), slot(2, 0, "young")))
	expectInForce(t, l, "alone", "cluster-endpoints-a young 4, frontends young 2")
	l.Want(fragment("old", 1, 1, served(1, "old"), slot(1, 0, "old"), slot(1, 2, "old")))
	expectInForce(t, l, "with an older one", "cluster-endpoints-a old 2, cluster-endpoints-a young 1, frontends old 1, frontends young 1")
	l.Want(fragment("young", 9, 2, served(1, "young"), slot(1, 0, "young"), slot(1, 3, "young"), served(2, "young"), slot(2, 1, "young")))
	expectInForce(t, l, "after a change of the younger one", "cluster-endpoints-a old 2, cluster-endpoints-a young 1, frontends old 1, frontends young 1")
	gone := fragment("old", 1, 2)
	gone.Gone = true
	l.Want(gone)
	expectInForce(t, l, "alone again", "cluster-endpoints-a young 3, frontends young 2")
}

// TestTheFirewallGoesWithTheFrontend, also where one of the two has no endpoints, and
// where the older one lets everybody in.
func TestTheFirewallGoesWithTheFrontend(t *testing.T) {
	young := append(firewall(1, "young", 1, 2, 3), served(1, "young"))
	idle := append(firewall(1, "young", 1, 2, 3), refused(1, "young"))
	for what, c := range map[string]struct {
		old, young []dataplane.Object
		want       string
	}{
		"both": {append(firewall(1, "old", 1), served(1, "old")), young, "allowed-sources old 1, firewalled old 1, frontends old 1"},
		"the older one open": {
			[]dataplane.Object{served(1, "old")}, young, "frontends old 1"},
		"the older one open, the younger one idle": {
			[]dataplane.Object{served(1, "old")}, idle, "frontends old 1, no-local-endpoints young 1"},
		"the older one idle": {
			append(firewall(1, "old", 1), refused(1, "old")), young, "allowed-sources old 1, firewalled old 1, frontends young 1, no-local-endpoints old 1"},
		"another frontend": {
			append(firewall(2, "old", 1), served(2, "old")), young, "allowed-sources old 1, allowed-sources young 3, firewalled old 1, firewalled young 1, frontends old 1, frontends young 1"},
	} {
		old, last := fragment("old", 1, 1, c.old...), fragment("young", 9, 1, c.young...)
		for _, order := range [][]*dataplane.Fragment{{old, last}, {last, old}} {
			l := New(nil, names{})
			for _, f := range order {
				l.Want(f)
			}
			expectInForce(t, l, what, c.want)
		}
	}
}

// TestFollowersOfManyQuick compares a ledger after any history with a model that
// serves one Service after another, the oldest first.
func TestFollowersOfManyQuick(t *testing.T) {
	for seed := range uint64(400) {
		random := rand.New(rand.NewPCG(seed, 7))
		l := New(nil, names{})
		latest := map[string]*dataplane.Fragment{}
		for step := range uint64(40) {
			name := fmt.Sprintf("s%d", random.IntN(5))
			f := fragment(name, random.IntN(4), step+1, randomFollowers(random, name)...)
			f.Gone = len(f.Objects) == 0
			l.Want(f)
			latest[name] = f
			if got, want := wantedBodies(l), inTurn(slices.Collect(maps.Values(latest))); !maps.Equal(got, want) {
				t.Fatalf("seed %d, step %d: got %v, want %v", seed, step, got, want)
			}
			if random.IntN(3) == 0 {
				l.Settle(l.Plan(), landed())
			}
		}
		for name := range latest {
			gone := fragment(name, 0, 100)
			gone.Gone = true
			l.Want(gone)
		}
		l.Settle(l.Plan(), landed())
		if s := l.Stats(); s != (Stats{}) || len(l.following.waiting)+len(l.following.queued)+len(l.following.affected) > 0 {
			t.Fatalf("seed %d: something is left: %+v, %+v", seed, s, l.following)
		}
	}
}

func randomFollowers(random *rand.Rand, body string) []dataplane.Object {
	var all []dataplane.Object
	for x := range 2 {
		switch random.IntN(4) {
		case 0, 1:
			all = append(all, served(x, body))
			for at := range 4 {
				if random.IntN(2) == 0 {
					all = append(all, slot(x, at, body))
				}
			}
		case 2:
			all = append(all, refused(x, body))
		default:
			continue
		}
		if random.IntN(2) == 0 {
			all = append(all, firewall(x, body, byte(random.IntN(3)), byte(3+random.IntN(3)))...)
		}
	}
	return all
}

func wantedBodies(l *Ledger) map[dataplane.ID]string {
	wanted := map[dataplane.ID]string{}
	for id, e := range l.entries.all() {
		if e.wanted != nil {
			wanted[id] = e.wanted.Body
		}
	}
	return wanted
}

// inTurn serves fragments in the order of their ranks: each gets what is not taken,
// but for what goes with something that is.
func inTurn(fragments []*dataplane.Fragment) map[dataplane.ID]string {
	slices.SortFunc(fragments, func(a, b *dataplane.Fragment) int {
		if by := a.Created.Compare(b.Created); by != 0 {
			return by
		}
		return a.Key.Compare(b.Key)
	})
	taken, bodies := map[dataplane.ID]service.Key{}, map[dataplane.ID]string{}
	for _, f := range fragments {
		before := maps.Clone(taken)
		for _, o := range f.Objects {
			_, lost := before[o.ID]
			for lead, ok := (names{}).Lead(o.ID); ok; lead, ok = (names{}).Lead(lead) {
				_, led := before[lead]
				lost = lost || led
			}
			if !lost {
				taken[o.ID], bodies[o.ID] = f.Key, o.Body
			}
		}
	}
	return bodies
}
