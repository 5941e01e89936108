// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strings"
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

// The elements of these tests are slots of a Service with affinity, and frontends of node ports.
var slotsMap, inSlots = render.SetName("slots") + "-x", render.ContainerOf(render.SetName("slots") + "-x")

func slot(n byte) string     { return string(binary.NativeEndian.AppendUint32(nil, uint32(n))) }
func nodePort(n byte) string { return string([]byte{unix.IPPROTO_TCP, 0, 0, 0, 0, n, 0, 0}) }

// set is the definition of a set of ours.
func set(name string) string { return render.FoundSet(service.IPv4, name).Body }

// text prints the transactions of a plan, one a line.
func text(p *plan) string {
	var lines strings.Builder
	for _, part := range p.parts {
		sent := strings.Split(strings.TrimSpace(render.Statements(p.transaction(part, &counting{}).All())), "\n")
		lines.WriteString(strings.Join(sent, "; ") + "\n")
	}
	return lines.String()
}

// checkPlan compares the transactions of a plan. A line that is indented once more continues the transaction.
// ${slots} stands for the name of that set, and so on.
func checkPlan(t *testing.T, changes []dataplane.Change, bytesMax int, want string) {
	t.Helper()
	want = strings.NewReplacer("\n\t\t\t", "; ", "\t", "").Replace(os.Expand(want[1:], render.SetName))
	if got := text(newPlan(&rules.Headers[service.IPv4], changes, bytesMax)); got != want {
		t.Errorf("sends\n%swant\n%s", got, want)
	}
}

func verdictBody() string {
	b, mark := netlink.Nest(nil, unix.NFTA_SET_ELEM_DATA)
	return string(netlink.End((&rules.Verdict{Code: rules.Goto, Chain: "x"}).Append(b), mark))
}

// dataBody is the endpoint 10.0.0.n.
func dataBody(n byte) string {
	b, mark := netlink.Nest(nil, unix.NFTA_SET_ELEM_DATA)
	return string(netlink.End(netlink.AppendBytes(b, unix.NFTA_DATA_VALUE, []byte{10, 0, 0, n}), mark))
}

func rulesBody(base string) string {
	c := rules.Chain{Name: "x", Rules: []rules.Rule{{Exprs: []rules.Expr{&rules.Verdict{Code: rules.Drop}}}}}
	if base != "" {
		c.Base = &rules.Base{Kind: base}
	}
	return string(c.Encode())
}

// TestPlan_TransactionOrder: a transaction adds containers, then contents, then references, and deletes an object after
// the objects that refer to it.
func TestPlan_TransactionOrder(t *testing.T) {
	gone, fresh, shared := render.SetName("slots")+"-gone", render.SetName("live")+"-new", render.SetName("no-local-endpoints")
	checkPlan(t, []dataplane.Change{
		change(inSlots, slot(1), someone, dataBody(1), ""),
		change(inSlots, slot(2), someone, "", dataBody(2)),
		change(inSlots, slot(3), someone, dataBody(3), dataBody(4)),
		change(inNodePorts, nodePort(80), someone, "", verdictBody()),
		change("chain", "base", service.Node, rulesBody("nat"), rulesBody("filter")),
		change("chain", "gone", service.Node, rulesBody(""), ""),
		change("chain", "new", someone, "", rulesBody("")),
		change("chain", "rewritten", someone, rulesBody("")+rulesBody(""), rulesBody("")),
		change("chain", "same", someone, rulesBody(""), rulesBody("")),
		change("set", gone, service.Node, set(gone), ""),
		change("set", fresh, service.Node, "", set(fresh)),
		change("set", shared, service.Node, "", set(shared)),
		change("table", "table", service.Node, "", string(netlink.AppendUint32(nil, unix.NFTA_TABLE_FLAGS, 0))),
	}, 1<<20, `
		add table ip kube-proxy { comment "node service proxy: sluice"; }
			add set ip kube-proxy ${no-local-endpoints} { type ipv4_addr . inet_proto . inet_service; counter; }
			add set ip kube-proxy ${live}-new { type ipv4_addr; }
			delete chain ip kube-proxy base
			add chain ip kube-proxy base { type filter hook prerouting priority 0; policy accept; }
			add chain ip kube-proxy new
			flush chain ip kube-proxy gone
			flush chain ip kube-proxy rewritten
			delete element ip kube-proxy ${slots}-x { 1, 3 }
			add element ip kube-proxy ${slots}-x { 2 : 10.0.0.2, 3 : 10.0.0.4 }
			add rule ip kube-proxy base drop
			add rule ip kube-proxy new drop
			add rule ip kube-proxy rewritten drop
			add element ip kube-proxy ${nodeports} { tcp . 80 : goto x }
			delete set ip kube-proxy ${slots}-gone
			delete chain ip kube-proxy gone
`)
}

// TestPlan_StagesOfLargeBatch: a large batch is divided as far as possible, with complete Services in each transaction.
func TestPlan_StagesOfLargeBatch(t *testing.T) {
	dns := service.Key{Namespace: "kube-system", Name: "kube-dns"}
	services := []dataplane.Change{
		change(inNodePorts, nodePort(80), someone, "", verdictBody()),
		change(inSlots, slot(1), someone, "", dataBody(1)),
		change(inNodePorts, nodePort(53), dns, "", verdictBody()),
		change(inSlots, slot(2), dns, "", dataBody(2)),
		change(inNodePorts, nodePort(99), service.Node, verdictBody(), ""),
		change("chain", "class", someone, "", rulesBody("")),
		change("set", slotsMap, service.Node, "", set(slotsMap)),
	}
	checkPlan(t, append(slices.Clone(services), change("chain", "services", service.Node, "", rulesBody(""))), 1, `
		add map ip kube-proxy ${slots}-x { typeof numgen random mod 16 : ip daddr; }
		add chain ip kube-proxy class
		add chain ip kube-proxy services
		add rule ip kube-proxy class drop
		add element ip kube-proxy ${slots}-x { 2 : 10.0.0.2 }; add element ip kube-proxy ${nodeports} { tcp . 53 : goto x }
		add rule ip kube-proxy services drop
		add element ip kube-proxy ${slots}-x { 1 : 10.0.0.1 }; add element ip kube-proxy ${nodeports} { tcp . 80 : goto x }
		delete element ip kube-proxy ${nodeports} { tcp . 99 }
`)
	// On a node that serves, its rules change when all Services are complete.
	checkPlan(t, append(slices.Clone(services), change("chain", "services", service.Node, rulesBody("")+"\x00", rulesBody(""))), 1, `
		add map ip kube-proxy ${slots}-x { typeof numgen random mod 16 : ip daddr; }
		add chain ip kube-proxy class
		add rule ip kube-proxy class drop
		add element ip kube-proxy ${slots}-x { 2 : 10.0.0.2 }; add element ip kube-proxy ${nodeports} { tcp . 53 : goto x }
		add element ip kube-proxy ${slots}-x { 1 : 10.0.0.1 }; add element ip kube-proxy ${nodeports} { tcp . 80 : goto x }
		flush chain ip kube-proxy services; add rule ip kube-proxy services drop
		delete element ip kube-proxy ${nodeports} { tcp . 99 }
`)
}

// TestPlan_StagesOfUpgrade: a batch that replaces another release's maps, chains and rules is divided so that packets
// meet the old ones until the new ones are complete.
func TestPlan_StagesOfUpgrade(t *testing.T) {
	other, old := rulesBody("")+"\x00", render.SetName("slots")+"-old"
	checkPlan(t, []dataplane.Change{
		change("set", slotsMap, service.Node, "", set(slotsMap)),
		change("set", old, service.Node, set(old), ""),
		change(inSlots, slot(1), someone, "", dataBody(1)),
		change(render.ContainerOf(old), slot(1), someone, dataBody(1), ""), // goes with its set
		change("chain", "class", someone, other, rulesBody("")),
		change("chain", "old-class", service.Node, other, ""),
		change("chain", "endpoint-HASH-ns/svc", someone, other, rulesBody("")),
		change("chain", "endpoint-HASH-ns/gone", someone, other, ""),
		change("chain", "services", service.Node, other, rulesBody("")),
		change("chain", "new-base", service.Node, "", rulesBody("nat")),
	}, 1, `
		add map ip kube-proxy ${slots}-x { typeof numgen random mod 16 : ip daddr; }
		add chain ip kube-proxy new-base { type nat hook prerouting priority 0; policy accept; }
		flush chain ip kube-proxy endpoint-HASH-ns/svc
			add element ip kube-proxy ${slots}-x { 1 : 10.0.0.1 }
			add rule ip kube-proxy endpoint-HASH-ns/svc drop
		flush chain ip kube-proxy class
			flush chain ip kube-proxy services
			add rule ip kube-proxy class drop
			add rule ip kube-proxy new-base drop
			add rule ip kube-proxy services drop
		flush chain ip kube-proxy endpoint-HASH-ns/gone
		flush chain ip kube-proxy old-class
		delete set ip kube-proxy ${slots}-old

		delete chain ip kube-proxy endpoint-HASH-ns/gone
		delete chain ip kube-proxy old-class
`)
}

// TestPlan_EmptiedChainFilledFirst: a chain that an interrupted removal left without rules is filled before an element
// leads to it.
func TestPlan_EmptiedChainFilledFirst(t *testing.T) {
	class := change("chain", "class", someone, "", rulesBody(""))
	class.Before = &dataplane.Object{ID: class.ID}
	checkPlan(t, []dataplane.Change{class, change(inNodePorts, nodePort(80), someone, "", verdictBody())}, 1, `
		flush chain ip kube-proxy class
		add rule ip kube-proxy class drop
		add element ip kube-proxy ${nodeports} { tcp . 80 : goto x }
`)
}

// TestPlan_NothingToDo: a batch without differences is no transaction.
func TestPlan_NothingToDo(t *testing.T) {
	same := []dataplane.Change{change(inSlots, slot(1), someone, dataBody(1), dataBody(1))}
	if p := newPlan(&rules.Headers[service.IPv4], same, 1); len(p.parts) != 0 {
		t.Errorf("planned %s", text(p))
	}
}

// TestPlan_ElementsShareMessages: many elements take few messages, none larger than an attribute can be.
func TestPlan_ElementsShareMessages(t *testing.T) {
	var changes []dataplane.Change
	for i := range 5000 {
		changes = append(changes, change("@"+render.SetName("frontends"), fmt.Sprintf("%012d", i), someone, "", verdictBody()))
	}
	p := newPlan(&rules.Headers[service.IPv4], changes, 1<<30)
	if got := p.transaction(p.parts[0], &counting{}); got.Messages() > 12 || got.Messages() < 5 {
		t.Errorf("%d messages with %d bytes for 5,000 elements", got.Messages(), got.Bytes())
	}
}

// TestPlan_CertainWhenDivided: after any number of transactions of a divided plan, changes that landed or did not begin
// are certain, and half-done ones are not.
func TestPlan_CertainWhenDivided(t *testing.T) {
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
		t.Errorf("%d parts complete %d changes, want several and 4:\n%s", len(p.parts), completed, text(p))
	}
}

// TestPlan_DividedRemovalsGoWithService: in a divided batch, one transaction removes a Service's old elements before it
// adds the new ones, and Services with removals come first. (Once removals came last, and the kernel rejected a changed
// source range while the old one existed.)
func TestPlan_DividedRemovalsGoWithService(t *testing.T) {
	checkPlan(t, []dataplane.Change{
		change("chain", "old", someone, rulesBody(""), ""),
		change("chain", "services", service.Node, rulesBody("nat"), rulesBody("filter")),
		change(inSlots, slot(0), service.Key{Namespace: "ns", Name: "a"}, "", dataBody(0)),
		change(inSlots, slot(1), service.Key{Namespace: "ns", Name: "b"}, "", dataBody(1)),
		change(inSlots, slot(5), someone, dataBody(5), ""),
		change(inSlots, slot(6), someone, "", dataBody(6)),
	}, 1, `
		delete element ip kube-proxy ${slots}-x { 5 }; add element ip kube-proxy ${slots}-x { 6 : 10.0.0.6 }
		add element ip kube-proxy ${slots}-x { 0 : 10.0.0.0 }
		add element ip kube-proxy ${slots}-x { 1 : 10.0.0.1 }
		delete chain ip kube-proxy services
			add chain ip kube-proxy services { type filter hook prerouting priority 0; policy accept; }
			add rule ip kube-proxy services drop
		flush chain ip kube-proxy old
		delete chain ip kube-proxy old
`)
}

// TestPlan_LeftoversGoInOrder: leftovers of a previous process are removed in an order that cuts off no client, admits
// none, and lets no frontend lead to an emptied chain.
func TestPlan_LeftoversGoInOrder(t *testing.T) {
	const frontend = "\x0a\x00\x00\x01\x06\x00\x00\x00\x00\x50\x00\x00"
	checkPlan(t, []dataplane.Change{
		change(render.ContainerOf(render.SetName("allowed-sources")), frontend+"\x0a\x00\x00\x00"+frontend+"\x0a\xff\xff\xff", service.Node, "x", ""),
		change(inFirewalled, frontend, service.Node, "x", ""),
		change(inFrontends, frontend, service.Node, verdictBody(), ""),
		change("chain", "led-to", service.Node, rulesBody(""), ""),
	}, 1, `
		delete element ip kube-proxy ${frontends} { 10.0.0.1 . tcp . 80 }
		flush chain ip kube-proxy led-to
		delete element ip kube-proxy ${firewalled} { 10.0.0.1 . tcp . 80 }
		delete element ip kube-proxy ${allowed-sources} { 10.0.0.1 . tcp . 80 . 10.0.0.0/8 }
		delete chain ip kube-proxy led-to
`)
}

// TestPlan_ElementsCertainToGoWithSet: elements of a deleted set are certain exactly when the set is. Their own steps,
// which do nothing, may be in another transaction.
func TestPlan_ElementsCertainToGoWithSet(t *testing.T) {
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
