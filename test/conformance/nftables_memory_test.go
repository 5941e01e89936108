package conformance

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/nftmodel"
)

// nftablesMemoryHarness is the nftables backend on an in-memory kernel.
func nftablesMemoryHarness(family service.Family, kernel func() *nftmodel.Kernel) Harness {
	return Harness{
		Family:   family,
		Renderer: nftables.NewRenderer(family, nftables.Options{MasqueradeBit: 14}),
		Open: func(t *testing.T, world Fixture) Node {
			t.Helper()
			k := kernel()
			socket, err := k.Open()
			check(t, err)
			return Node{
				NewWriter: func() dataplane.Writer {
					return nftables.NewWriter(family, nftables.WriterConfig{Open: k.Open})
				},
				Probe:   NewTracer(k, world, 1),
				Meddler: &wireMeddler{socket: socket, family: family},
			}
		},
		UnallocatedDropped: true,
	}
}

// wireMeddler does its damage by transactions.
type wireMeddler struct {
	nftablesMeddler // poisons
	socket          nftables.Socket
	family          service.Family
	planted         []string
}

func (m *wireMeddler) protocol() uint8 {
	if m.family == service.IPv6 {
		return unix.NFPROTO_IPV6
	}
	return unix.NFPROTO_IPV4
}

// commit sends one message, which begins with the names given.
func (m *wireMeddler) commit(t *testing.T, kind, flags uint16, fill func([]byte) []byte, names ...string) error {
	t.Helper()
	tx := wire.NewTransaction(m.protocol())
	tx.Begin(kind, flags)
	for i, name := range names {
		tx.Text(uint16(i+1), name)
	}
	if fill != nil {
		tx.Add(fill)
	}
	refusals, err := m.socket.Commit(tx)
	check(t, err)
	if len(refusals) > 0 {
		return refusals[0]
	}
	return nil
}

// Damage implements [Meddler]: it removes an element, the rules of a chain, or a
// chain or set that nothing refers to.
func (m *wireMeddler) Damage(t *testing.T, id dataplane.ID) bool {
	t.Helper()
	set, isElement := strings.CutPrefix(id.Container, "@")
	switch {
	case isElement:
		check(t, m.commit(t, unix.NFT_MSG_DELSETELEM, 0, func(b []byte) []byte {
			return appendElement(b, set, id.Name)
		}, nftables.TableName, set))
		return true
	case id.Container == "set":
		return m.commit(t, unix.NFT_MSG_DELSET, 0, nil, nftables.TableName, id.Name) == nil
	case id.Container != "chain":
		return false
	}
	request := netlink.AppendText(netlink.AppendText(nil, 1, nftables.TableName), unix.NFTA_RULE_CHAIN, id.Name)
	if len(m.ask(t, unix.NFT_MSG_GETRULE, request)) > 0 {
		check(t, m.commit(t, unix.NFT_MSG_DELRULE, 0, nil, nftables.TableName, id.Name))
		return true
	}
	return m.commit(t, unix.NFT_MSG_DELCHAIN, 0, func(b []byte) []byte {
		return netlink.AppendText(b, unix.NFTA_CHAIN_NAME, id.Name)
	}, nftables.TableName) == nil
}

// appendElement names one element, by the first value of its range if it is one.
func appendElement(b []byte, set, key string) []byte {
	if set == nftables.SetName("allowed-sources") {
		key = key[:len(key)/2]
	}
	b, list := netlink.Nest(b, unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	b, element := netlink.Nest(b, unix.NFTA_LIST_ELEM)
	b, nest := netlink.Nest(b, unix.NFTA_SET_ELEM_KEY)
	b = netlink.AppendString(b, unix.NFTA_DATA_VALUE, key)
	return netlink.End(netlink.End(netlink.End(b, nest), element), list)
}

// ask returns the attributes of everything that answers a question.
func (m *wireMeddler) ask(t *testing.T, kind uint16, request []byte) []string {
	t.Helper()
	var answers []string
	check(t, m.socket.Ask(context.Background(), kind, m.protocol(), true, request, func(a netlink.Netfilter) {
		answers = append(answers, string(a.Attrs))
	}))
	return answers
}

// Wipe implements [Meddler].
func (m *wireMeddler) Wipe(t *testing.T) {
	t.Helper()
	check(t, m.commit(t, unix.NFT_MSG_DELTABLE, 0, nil))
}

// foreignTable is somebody else's.
const foreignTable = "foreign"

// Plant implements [Meddler]: a table with a set, a base chain and a rule that
// are named like ours.
func (m *wireMeddler) Plant(t *testing.T) {
	t.Helper()
	check(t, m.commit(t, unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, nil, foreignTable))
	check(t, m.commit(t, unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE, func(b []byte) []byte {
		b = netlink.AppendUint32(b, unix.NFTA_SET_KEY_TYPE, 13)
		b = netlink.AppendUint32(b, unix.NFTA_SET_KEY_LEN, 2)
		return netlink.AppendUint32(b, unix.NFTA_SET_ID, 1)
	}, foreignTable, "frontends"))
	check(t, m.commit(t, unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, func(b []byte) []byte {
		return appendElement(b, "frontends", "\x00\x01")
	}, foreignTable, "frontends"))
	check(t, m.commit(t, unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE, func(b []byte) []byte {
		b = netlink.AppendText(b, unix.NFTA_CHAIN_NAME, "services")
		b, hook := netlink.Nest(b, unix.NFTA_CHAIN_HOOK)
		b = netlink.AppendUint32(b, unix.NFTA_HOOK_HOOKNUM, unix.NF_INET_FORWARD)
		return netlink.End(netlink.AppendUint32(b, unix.NFTA_HOOK_PRIORITY, 5), hook)
	}, foreignTable))
	check(t, m.commit(t, unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_APPEND, func(b []byte) []byte {
		b, list := netlink.Nest(b, unix.NFTA_RULE_EXPRESSIONS)
		b, element := netlink.Nest(b, unix.NFTA_LIST_ELEM)
		b = netlink.AppendText(b, unix.NFTA_EXPR_NAME, "counter")
		return netlink.End(netlink.End(b, element), list)
	}, foreignTable, "services"))
	m.planted = m.foreign(t)
}

// foreign describes everything in the table of somebody else.
func (m *wireMeddler) foreign(t *testing.T) []string {
	t.Helper()
	table := netlink.AppendText(nil, 1, foreignTable)
	var all []string
	for _, kind := range []uint16{unix.NFT_MSG_GETTABLE, unix.NFT_MSG_GETCHAIN, unix.NFT_MSG_GETRULE, unix.NFT_MSG_GETSET} {
		all = append(all, m.ask(t, kind, table)...)
	}
	return append(all, m.ask(t, unix.NFT_MSG_GETSETELEM, netlink.AppendText(table, unix.NFTA_SET_ELEM_LIST_SET, "frontends"))...)
}

// CheckPlanted implements [Meddler].
func (m *wireMeddler) CheckPlanted(t *testing.T) {
	t.Helper()
	if got := m.foreign(t); len(got) != 5 || !slices.Equal(got, m.planted) {
		t.Errorf("somebody else's table is %q, want %q", got, m.planted)
	}
}

func TestNftablesOnMemory(t *testing.T) {
	for _, family := range service.Families {
		t.Run(family.String(), func(t *testing.T) { Run(t, nftablesMemoryHarness(family, nftmodel.NewKernel)) })
	}
}

// nftablesMemoryScene opens a scene together with its kernel.
func nftablesMemoryScene(t *testing.T, family service.Family) (*scene, *nftmodel.Kernel, *Tracer) {
	t.Helper()
	kernel := nftmodel.NewKernel()
	s := openScene(t, nftablesMemoryHarness(family, func() *nftmodel.Kernel { return kernel }))
	t.Cleanup(s.asking.Wait)
	return s, kernel, s.node.Probe.(*Tracer)
}

// TestNftablesBalancingIsFair: the endpoint at slot 0 has the advantage that
// package slots bounds by 1 % of a share, and no other one has any.
func TestNftablesBalancingIsFair(t *testing.T) {
	const advantageMax = 0.01
	for _, family := range service.Families {
		for _, count := range []int{1, 2, 3, 7, 100} {
			t.Run(fmt.Sprintf("%v/%d", family, count), func(t *testing.T) {
				s, kernel, tracer := nftablesMemoryScene(t, family)
				var endpoints []netip.Addr
				for addr := s.B; len(endpoints) < count; addr = addr.Next() {
					endpoints = append(endpoints, addr)
				}
				s.apply(s.Spec(), s.Slice(endpoints...))
				outcomes := kernel.Outcomes(tracer.Packet(Question{From: FromPod, To: s.clusterIP()}))
				if len(outcomes) != count {
					t.Fatalf("%d outcomes, want %d", len(outcomes), count)
				}
				sum := 0.0
				for _, o := range outcomes {
					sum += o.Probability
					if o.Verdict != nftmodel.Delivered || math.Abs(o.Probability*float64(count)-1) > advantageMax {
						t.Errorf("%v to %v with probability %v, want 1/%d", o.Verdict, o.To, o.Probability, count)
					}
				}
				if math.Abs(sum-1) > 1e-9 {
					t.Errorf("probabilities sum to %v", sum)
				}
			})
		}
	}
}

// TestNftablesAffinityEndsWithItsTimeout: S-AFF-03, S-AFF-04, with the clock moved
// by hand.
func TestNftablesAffinityEndsWithItsTimeout(t *testing.T) {
	s, kernel, tracer := nftablesMemoryScene(t, service.IPv4)
	clock := s.Spec().Created
	kernel.SetClock(func() time.Time { return clock })
	spec := s.Spec()
	spec.AffinitySeconds = 10
	s.apply(spec, s.Slice(s.A, s.B, s.C))
	packet := tracer.Packet(Question{From: FromPod, To: s.clusterIP()})
	first := kernel.Trace(packet, tracer.choose).To
	for range 12 { // every five seconds for a minute
		clock = clock.Add(5 * time.Second)
		if got := kernel.Outcomes(packet); len(got) != 1 || got[0].To != first {
			t.Fatalf("%v within the timeout, want %v alone", got, first)
		}
		kernel.Trace(packet, tracer.choose)
	}
	clock = clock.Add(11 * time.Second)
	if got := len(kernel.Outcomes(packet)); got != 3 {
		t.Errorf("%d endpoints are possible after the timeout, want 3", got)
	}
}

// TestNftablesAffinityIsFlat: the rules that a packet passes do not grow with the endpoints,
// whether its client is known, new, or knows an endpoint that has gone.
func TestNftablesAffinityIsFlat(t *testing.T) {
	visited := map[string]int{}
	for _, count := range []int{10, 1000} {
		s, kernel, tracer := nftablesMemoryScene(t, service.IPv4)
		spec := s.Spec()
		spec.AffinitySeconds = 10
		var endpoints []netip.Addr
		for addr := s.B; len(endpoints) < count; addr = addr.Next() {
			endpoints = append(endpoints, addr)
		}
		s.apply(spec, s.Slice(endpoints...))
		packet := tracer.Packet(Question{From: FromPod, To: s.clusterIP()})
		smallest := func(float64) bool { return true } // slot 0, which is never empty
		at := func(what string) netip.Addr {
			trace := kernel.Trace(packet, smallest)
			if was, known := visited[what]; trace.Verdict != nftmodel.Delivered || known && was != trace.RulesVisited {
				t.Errorf("%s, %d endpoints: %v after %d rules, want as many as with 10: %d", what, count, trace.Verdict, trace.RulesVisited, was)
			}
			visited[what] = trace.RulesVisited
			return trace.To.Addr()
		}
		chosen := at("new")
		if again := at("known"); again != chosen {
			t.Errorf("to %v, then to %v", chosen, again)
		}
		s.apply(spec, s.Slice(slices.DeleteFunc(endpoints, func(a netip.Addr) bool { return a == chosen })...))
		if again := at("gone"); again == chosen || at("known") != again {
			t.Errorf("to %v, which has gone, or not twice to %v", chosen, again)
		}
	}
	t.Log(visited)
}

// TestNftablesAffinityOfTwoLists: a client of frontends with different policies stays with one
// endpoint at each of them, and with one at both if it can.
func TestNftablesAffinityOfTwoLists(t *testing.T) {
	s, kernel, tracer := nftablesMemoryScene(t, service.IPv4)
	spec := s.Exposed()
	spec.AffinitySeconds, spec.InternalLocal = 10, true
	s.apply(spec, s.Slice(s.A, s.B, s.C)) // A is on the node
	packet := tracer.Packet(Question{From: FromPod, To: s.clusterIP()})
	from := func(client netip.AddrPort, to netip.AddrPort) netip.Addr {
		packet.Src, packet.Dst = client, to
		return kernel.Trace(packet, tracer.choose).To.Addr()
	}
	client, apart := packet.Src, 0
	for range 20 {
		client = netip.AddrPortFrom(client.Addr().Next(), client.Port())
		first := from(client, s.vip())
		if first != s.A {
			apart++
		}
		for range 3 {
			if local, again := from(client, s.clusterIP()), from(client, s.vip()); local != s.A || again != first {
				t.Fatalf("%v: to %v and %v, want %v and %v", client, local, again, s.A, first)
			}
		}
		client = netip.AddrPortFrom(client.Addr().Next(), client.Port())
		if local, all := from(client, s.clusterIP()), from(client, s.vip()); local != s.A || all != s.A {
			t.Fatalf("%v: to %v and %v, want %v at both", client, local, all, s.A)
		}
	}
	if apart == 0 {
		t.Error("no client was at different endpoints: this proves nothing")
	}
}

// TestNftablesHairpinIsMasqueraded: an endpoint that is sent to itself sees an
// address of the node, and any other endpoint its own client.
func TestNftablesHairpinIsMasqueraded(t *testing.T) {
	for _, family := range service.Families {
		s, kernel, tracer := nftablesMemoryScene(t, family)
		s.apply(s.Spec(), s.Slice(s.A, s.B))
		for _, o := range kernel.Outcomes(tracer.Packet(Question{From: FromBackend, To: s.clusterIP()})) {
			if o.Masqueraded != (o.To.Addr() == s.A) {
				t.Errorf("%v: to %v, masqueraded %t", family, o.To, o.Masqueraded)
			}
		}
	}
}
