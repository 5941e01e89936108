package kernel

import (
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/dataplane/nftables/rules"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

var someone = service.Key{Namespace: "ns", Name: "svc"}

func change(container, name string, owner service.Key, before, after string) dataplane.Change {
	c := dataplane.Change{ID: dataplane.ID{Container: container, Name: name}, Owner: owner}
	if before != "" {
		c.Before = &dataplane.Object{ID: c.ID, Body: before}
	}
	if after != "" {
		c.After = &dataplane.Object{ID: c.ID, Body: after}
	}
	return c
}

// order returns the steps of all parts.
func order(p *plan) []string {
	names := [...]string{
		"table", "new shared set", "new set", "delete base", "new chain", "flush", "delete element", "new element", "rules",
		"new verdict", "delete set", "gone with its set:", "delete chain", "delete table",
	}
	var listed []string
	for i, part := range p.parts {
		if i > 0 {
			listed = append(listed, "|")
		}
		for _, o := range part {
			listed = append(listed, names[o.step]+" "+p.changes[o.number].ID.Name)
		}
	}
	return listed
}

func verdictBody() string {
	b, mark := netlink.Nest(nil, unix.NFTA_SET_ELEM_DATA)
	return string(netlink.End((&rules.Verdict{Code: rules.Goto, Chain: "x"}).Append(b), mark))
}

func dataBody() string {
	b, mark := netlink.Nest(nil, unix.NFTA_SET_ELEM_DATA)
	return string(netlink.End(netlink.AppendBytes(b, unix.NFTA_DATA_VALUE, []byte{1, 2, 3, 4}), mark))
}

func rulesBody(base string) string {
	c := rules.Chain{Name: "x", Rules: []rules.Rule{{Exprs: []rules.Expr{&rules.Verdict{Code: rules.Drop}}}}}
	if base != "" {
		c.Base = &rules.Base{Kind: base}
	}
	return string(c.Encode())
}

// TestOrderOfATransaction: containers, contents, references, and what goes follows what
// refers to it.
func TestOrderOfATransaction(t *testing.T) {
	changes := []dataplane.Change{
		change("@map", "gone", someone, dataBody(), ""),
		change("@map", "new", someone, "", dataBody()),
		change("@map", "replaced", someone, dataBody(), dataBody()+"\x00"),
		change("@map", "verdict", someone, "", verdictBody()),
		change("chain", "base", service.Node, rulesBody("nat"), rulesBody("filter")),
		change("chain", "gone", service.Node, rulesBody(""), ""),
		change("chain", "new", someone, "", rulesBody("")),
		change("chain", "rewritten", someone, rulesBody("")+rulesBody(""), rulesBody("")),
		change("chain", "same", someone, rulesBody(""), rulesBody("")),
		change("set", "gone", service.Node, "x", ""),
		change("set", "new", service.Node, "", "x"),
		change("set", render.SetName("no-local-endpoints"), service.Node, "", "x"),
		change("table", "table", service.Node, "", "x"),
	}
	want := []string{
		"table table", "new shared set " + render.SetName("no-local-endpoints"), "new set new", "delete base base", "new chain base", "new chain new",
		"flush gone", "flush rewritten", "delete element gone", "delete element replaced",
		"new element new", "new element replaced", "rules base", "rules new", "rules rewritten",
		"new verdict verdict", "delete set gone", "delete chain gone",
	}
	if got := order(newPlan(&rules.Headers[service.IPv4], changes, 1<<20)); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// TestStagesOfALargeBatch divides as far as possible.
func TestStagesOfALargeBatch(t *testing.T) {
	dns := service.Key{Namespace: "kube-system", Name: "kube-dns"}
	services := []dataplane.Change{
		change("@map", "a-verdict", someone, "", verdictBody()),
		change("@map", "a-slot", someone, "", dataBody()),
		change("@map", "dns-verdict", dns, "", verdictBody()),
		change("@map", "dns-slot", dns, "", dataBody()),
		change("@map", "forgotten", service.Node, verdictBody(), ""),
		change("chain", "class", someone, "", rulesBody("")),
		change("set", "map", service.Node, "", "x"),
	}
	fresh := append(slices.Clone(services), change("chain", "services", service.Node, "", rulesBody("")))
	want := []string{
		"new set map", "|", "new chain class", "|", "new chain services", "|", "rules class", "|",
		"new element dns-slot", "new verdict dns-verdict", "|", "rules services", "|",
		"new element a-slot", "new verdict a-verdict", "|", "delete element forgotten",
	}
	if got := order(newPlan(&rules.Headers[service.IPv4], fresh, 1)); !slices.Equal(got, want) {
		t.Errorf("on an empty node: got  %q\nwant %q", got, want)
	}
	taken := append(slices.Clone(services), change("chain", "services", service.Node, rulesBody("")+"\x00", rulesBody("")))
	want = []string{
		"new set map", "|", "new chain class", "|", "rules class", "|",
		"new element dns-slot", "new verdict dns-verdict", "|", "new element a-slot", "new verdict a-verdict", "|",
		"flush services", "rules services", "|", "delete element forgotten",
	}
	if got := order(newPlan(&rules.Headers[service.IPv4], taken, 1)); !slices.Equal(got, want) {
		t.Errorf("on a node that serves: got  %q\nwant %q", got, want)
	}
}

// TestStagesOfAnUpgrade divides a batch that replaces another release's maps, chains and
// rules: packets meet the old ones until the new ones are complete.
func TestStagesOfAnUpgrade(t *testing.T) {
	other := rulesBody("") + "\x00"
	changes := []dataplane.Change{
		change("set", "new", service.Node, "", "x"),
		change("set", "old", service.Node, "x", ""),
		change("@new", "slot", someone, "", dataBody()),
		change("@old", "slot", someone, dataBody(), ""),
		change("chain", "class", someone, other, rulesBody("")),
		change("chain", "old-class", service.Node, other, ""),
		change("chain", "endpoint-HASH-ns/svc", someone, other, rulesBody("")),
		change("chain", "endpoint-HASH-ns/gone", someone, other, ""),
		change("chain", "services", service.Node, other, rulesBody("")),
		change("chain", "new-base", service.Node, "", rulesBody("nat")),
	}
	want := []string{
		"new set new", "|", "new chain new-base", "|",
		"flush endpoint-HASH-ns/svc", "new element slot", "rules endpoint-HASH-ns/svc", "|",
		"flush class", "flush services", "rules class", "rules new-base", "rules services", "|",
		"flush endpoint-HASH-ns/gone", "|", "flush old-class", "|", "delete set old", "|", "gone with its set: slot", "|",
		"delete chain endpoint-HASH-ns/gone", "|", "delete chain old-class",
	}
	if got := order(newPlan(&rules.Headers[service.IPv4], changes, 1)); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// TestAnEmptiedChainIsFilledFirst: an interrupted removal left a class chain without rules.
func TestAnEmptiedChainIsFilledFirst(t *testing.T) {
	class := change("chain", "class", someone, "", rulesBody(""))
	class.Before = &dataplane.Object{ID: class.ID}
	changes := []dataplane.Change{class, change("@map", "verdict", someone, "", verdictBody())}
	want := []string{"flush class", "|", "rules class", "|", "new verdict verdict"}
	if got := order(newPlan(&rules.Headers[service.IPv4], changes, 1)); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestNothingToDoIsNoTransaction(t *testing.T) {
	same := []dataplane.Change{change("@map", "same", someone, dataBody(), dataBody())}
	if p := newPlan(&rules.Headers[service.IPv4], same, 1); len(p.parts) != 0 {
		t.Errorf("planned %v", order(p))
	}
}

// TestElementsShareMessages: many elements need few messages, each below what an
// attribute can hold.
func TestElementsShareMessages(t *testing.T) {
	var changes []dataplane.Change
	for i := range 5000 {
		changes = append(changes, change("@"+render.SetName("frontends"), fmt.Sprintf("%012d", i), someone, "", verdictBody()))
	}
	p := newPlan(&rules.Headers[service.IPv4], changes, 1<<30)
	if got := p.transaction(p.parts[0], &counting{}); got.Messages() > 12 || got.Messages() < 5 {
		t.Errorf("%d messages with %d bytes for 5,000 elements", got.Messages(), got.Bytes())
	}
}

// TestCertainOfADividedPlan: after any number of transactions, what landed and what has not
// begun is certain, and what is half done is not.
func TestCertainOfADividedPlan(t *testing.T) {
	changes := []dataplane.Change{
		change(render.ContainerChain, "services", service.Node, "", rulesBody("")),
		change(render.ContainerSet, "frontends", service.Node, "", "set"),
		change("@frontends", "one", someone, "", verdictBody()),
		change(render.ContainerChain, "cluster-1", someone, "", rulesBody("")),
		change("@frontends", "equal", someone, "x", "x"),
	}
	p := newPlan(&rules.Headers[service.IPv4], changes, 1)
	completed := 0
	for landed := range len(p.parts) + 1 {
		certain := p.certain(landed)
		for i := range changes {
			c := &changes[i]
			begun, done := false, true
			for n, part := range p.parts {
				for _, o := range part {
					if o.number == i {
						begun, done = begun || n < landed, done && n < landed
					}
				}
			}
			object, sure := certain[c.ID]
			switch {
			case done && (!sure || !dataplane.Same(object, c.After)):
				t.Errorf("%d of %d landed: %s: certain %v, %v; want it as wanted", landed, len(p.parts), c.ID.Name, sure, object)
			case !begun && !done && (!sure || !dataplane.Same(object, c.Before)):
				t.Errorf("%d of %d landed: %s: certain %v, %v; want it as it was", landed, len(p.parts), c.ID.Name, sure, object)
			case begun && !done && sure:
				t.Errorf("%d of %d landed: %s is half done, and said to be certain", landed, len(p.parts), c.ID.Name)
			}
		}
		if landed < len(p.parts) {
			completed += p.completes[landed]
		}
	}
	if len(p.parts) < 4 || completed != 4 {
		t.Errorf("%d parts complete %d changes, want several and 4: %v", len(p.parts), completed, order(p))
	}
}

// TestRemovalsOfADividedBatchGoWithTheirService: one transaction removes what a Service loses
// before it adds what it gets, and Services that lose something come first. (Once removals
// went last, and the kernel rejected a changed source range while the old one existed.)
func TestRemovalsOfADividedBatchGoWithTheirService(t *testing.T) {
	changes := []dataplane.Change{
		change("chain", "old", someone, rulesBody(""), ""),
		change("chain", "services", service.Node, rulesBody("nat"), rulesBody("filter")),
	}
	for n := range 100 {
		owner := service.Key{Namespace: "ns", Name: fmt.Sprintf("a%02d", n)}
		changes = append(changes, change(render.ContainerOf(render.SetName("allowed-sources")), fmt.Sprintf("fresh%02d", n), owner, "", "x"))
	}
	changes = append(changes,
		change(render.ContainerOf(render.SetName("allowed-sources")), "10.0.0.0/8", someone, "x", ""),
		change(render.ContainerOf(render.SetName("allowed-sources")), "10.0.0.0/9", someone, "", "x"))
	p := newPlan(&rules.Headers[service.IPv4], changes, 1000)
	listed := order(p)
	gone, come := slices.Index(listed, "delete element 10.0.0.0/8"), slices.Index(listed, "new element 10.0.0.0/9")
	first, flush := slices.Index(listed, "new element fresh00"), slices.Index(listed, "flush old")
	if gone < 0 || gone+1 != come || come > first || flush < first || len(p.parts) < 5 {
		t.Errorf("removed at %d, added at %d, the first of others at %d, the chain flushed at %d of %q",
			gone, come, first, flush, listed)
	}
}

// TestWhatIsLeftGoesInOrder: nobody is cut off, and nobody let in, between the transactions that
// remove what a former process has left, and no frontend leads to an emptied chain.
func TestWhatIsLeftGoesInOrder(t *testing.T) {
	changes := []dataplane.Change{
		change(render.ContainerOf(render.SetName("allowed-sources")), "range", service.Node, "x", ""),
		change(inFirewalled, "limited", service.Node, "x", ""),
		change(inFrontends, "frontend", service.Node, verdictBody(), ""),
		change("chain", "led to", service.Node, rulesBody(""), ""),
	}
	want := []string{"delete element frontend", "|", "flush led to", "|", "delete element limited", "|",
		"delete element range", "|", "delete chain led to"}
	if got := order(newPlan(&rules.Headers[service.IPv4], changes, 1)); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// TestElementsAreCertainToGoWithTheirSet: their own steps, which do nothing, may be in another
// transaction than the deletion of the set.
func TestElementsAreCertainToGoWithTheirSet(t *testing.T) {
	changes := []dataplane.Change{change("set", "picks-x", someone, "x", "")}
	for n := range 60 {
		changes = append(changes, change("@picks-x", fmt.Sprintf("%02d", n), someone, verdictBody(), ""))
	}
	p := newPlan(&rules.Headers[service.IPv4], changes, 1000)
	if len(p.parts) < 3 {
		t.Fatalf("%d transactions", len(p.parts))
	}
	for landed := range len(p.parts) + 1 {
		certain := p.certain(landed)
		set := certain[changes[0].ID]
		for _, c := range changes {
			if object, known := certain[c.ID]; !known || (object == nil) != (set == nil) {
				t.Errorf("after %d of %d transactions the set is %v, and %s is %v", landed, len(p.parts), set, c.ID.Name, object)
			}
		}
	}
}
