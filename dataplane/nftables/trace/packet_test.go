// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"math"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables/owned"
	"github.com/sluice-proxy/sluice/dataplane/nftables/rules"
	"github.com/sluice-proxy/sluice/internal/netlink"
)

// ownTable is the table of a trace with its chains, which is not in a kernel.
func ownTable() *table {
	t := &table{Table: &owned.Table{Name: "own"}, replies: true, bases: map[string]rules.Base{}}
	flow := Flow{From: netip.MustParseAddrPort("10.0.0.1:0"), To: netip.MustParseAddrPort("10.0.0.2:80")}
	for _, c := range t.chains(flow) {
		t.bases[c.Name] = *c.Base
	}
	return t
}

const (
	id        = 7
	foreign   = "foreign"
	forwarded = "forward"
)

func header(from, to string) Header {
	return Header{From: netip.MustParseAddrPort(from), To: netip.MustParseAddrPort(to)}
}

// own is a message of an own chain.
func own(chain string, kind uint32) event {
	e := event{id: id, at: place{unix.NFPROTO_IPV4, "own", chain}, kind: kind, handle: 1, verdict: rules.Verdict{Code: rules.Accept}}
	if kind == kindRule {
		e.verdict.Code = verdictContinue
	}
	return e
}

// selected is a packet that the first chain selected, up to the end of the hook.
func selected(h Header) []event {
	events := []event{own("prerouting-first", kindRule), own("prerouting-first", kindPolicy), own("prerouting-last", kindPolicy)}
	for i := range events {
		events[i].header = h
	}
	return events
}

// foreignPolicy is the end of another program's chain.
func foreignPolicy(code uint32) event {
	return event{id: id, at: place{unix.NFPROTO_INET, foreign, forwarded}, kind: kindPolicy, verdict: rules.Verdict{Code: code}}
}

// assembled returns the packets of messages.
func assembled(t *testing.T, events ...[]event) []Packet {
	t.Helper()
	a := assembly{own: ownTable(), chains: chainList{
		{unix.NFPROTO_INET, foreign, forwarded}: {Kind: "filter", Hook: unix.NF_INET_FORWARD},
	}, rules: ruleLists{known: map[place]map[uint64]found{{unix.NFPROTO_INET, foreign, forwarded}: {}}}}
	for _, e := range slices.Concat(events...) {
		a.add(t.Context(), &e)
	}
	return a.kept()
}

var one, two = header("10.0.0.1:1000", "10.0.0.2:80"), header("10.0.0.1:1001", "10.0.0.2:80")

// TestAssembly_ReusedPacketNumber: two packets with the same reused number are assembled separately, wherever the first
// one ended.
func TestAssembly_ReusedPacketNumber(t *testing.T) {
	for name, end := range map[string][]event{
		"dropped by a chain": {own("forward-first", kindPolicy), foreignPolicy(rules.Drop)},
		"lost after a hook":  {},
		"sent":               {own("forward-first", kindPolicy), foreignPolicy(rules.Accept), own("forward-last", kindPolicy), own("postrouting-first", kindPolicy), own("postrouting-last", kindPolicy)},
	} {
		got := assembled(t, selected(one), end, selected(two), end)
		if len(got) != 2 || got[0].First != one || got[1].First != two || len(got[0].Steps) != len(got[1].Steps) {
			t.Errorf("%s: %d packets: %+v", name, len(got), got)
			continue
		}
		if want := name == "sent"; (got[0].Hook == "postrouting" && got[0].Passed) != want {
			t.Errorf("%s: at hook %s, passed %v", name, got[0].Hook, got[0].Passed)
		}
	}
}

// TestAssembly_OtherTracesSkipped: packets of other traces are skipped.
func TestAssembly_OtherTracesSkipped(t *testing.T) {
	if got := assembled(t, []event{own("prerouting-first", kindPolicy), own("prerouting-last", kindPolicy), foreignPolicy(rules.Drop)}); len(got) != 0 {
		t.Errorf("packets: %+v", got)
	}
}

// TestAssembly_Directions: the rule that selected a packet determines its direction, and the next chain whether it
// begins a connection.
func TestAssembly_Directions(t *testing.T) {
	reply := []event{own("output-replies", kindRule), own("output-replies", kindPolicy), own("output-last", kindPolicy)}
	begins := slices.Insert(selected(one), 2, own("prerouting-new", kindRule), own("prerouting-new", kindPolicy))
	got := assembled(t, begins, reply, selected(one))
	if len(got) != 3 || got[0].Reply || !got[0].New || !got[1].Reply || got[1].New || got[2].Reply || got[2].New {
		t.Errorf("packets: %+v", got)
	}
}

// TestAssembly_TranslationsAreSteps: a changed address is a step at the hook where it changed.
func TestAssembly_TranslationsAreSteps(t *testing.T) {
	translated := header("10.0.0.1:1000", "10.0.0.9:8080")
	changed := selected(one)
	changed[2].header = translated
	got := assembled(t, changed)
	if len(got) != 1 || len(got[0].Steps) != 1 || got[0].Steps[0] != (Step{Hook: "prerouting", Text: "10.0.0.1:1000 -> 10.0.0.9:8080"}) || got[0].Last != translated {
		t.Errorf("packets: %+v", got)
	}
}

// TestAssembly_RemovedRuleHasHandle: the step of a rule that is no longer in its chain has the rule's handle, and the
// end of a chain is no step.
func TestAssembly_RemovedRuleHasHandle(t *testing.T) {
	rule := foreignPolicy(rules.Accept)
	rule.kind, rule.handle = kindRule, 12
	end := foreignPolicy(verdictContinue)
	end.kind = kindReturn
	got := assembled(t, selected(one), []event{end, rule})
	if len(got) != 1 || len(got[0].Steps) != 1 || got[0].Steps[0] != (Step{Hook: "forward", Table: "inet foreign", Chain: forwarded, Handle: 12, Verdict: "accept"}) {
		t.Errorf("packets: %+v", got)
	}
}

// TestTable_OwnChainsOutermost: our chains have the outermost priorities, so no chain of another program comes before
// the first or after the last one of a hook.
func TestTable_OwnChainsOutermost(t *testing.T) {
	for name, base := range ownTable().bases {
		if base.Priority != math.MinInt32 && base.Priority != lastPriority && base.Priority != repliesPriority && base.Priority != begunPriority {
			t.Errorf("%s has priority %d", name, base.Priority)
		}
	}
}

// message encodes a message of the kernel.
func message(attrs []byte) netlink.Message {
	b, mark := netlink.BeginNetfilter(nil, unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_TRACE, 0, unix.NFPROTO_IPV6)
	b = netlink.Finish(append(b, attrs...), mark)
	for m := range netlink.Messages(b) {
		return m
	}
	return netlink.Message{}
}

func TestParse(t *testing.T) {
	network := make([]byte, 40)
	network[0], network[6], network[7+16], network[39] = 0x60, unix.IPPROTO_UDP, 1, 2
	attrs := netlink.AppendUint32(nil, unix.NFTA_TRACE_ID, id)
	attrs = netlink.AppendText(attrs, unix.NFTA_TRACE_TABLE, "t")
	attrs = netlink.AppendText(attrs, unix.NFTA_TRACE_CHAIN, "c")
	attrs = netlink.AppendUint32(attrs, unix.NFTA_TRACE_TYPE, kindRule)
	attrs = netlink.AppendUint64(attrs, unix.NFTA_TRACE_RULE_HANDLE, 5)
	attrs, verdict := netlink.Nest(attrs, unix.NFTA_TRACE_VERDICT)
	attrs = netlink.AppendText(netlink.AppendUint32(attrs, unix.NFTA_VERDICT_CODE, rules.Jump), unix.NFTA_VERDICT_CHAIN, "d")
	attrs = netlink.End(attrs, verdict)
	attrs = netlink.AppendBytes(attrs, unix.NFTA_TRACE_NETWORK_HEADER, network)
	attrs = netlink.AppendBytes(attrs, unix.NFTA_TRACE_TRANSPORT_HEADER, []byte{0, 53, 1, 0})
	want := event{
		id: id, at: place{unix.NFPROTO_IPV6, "t", "c"}, kind: kindRule, handle: 5,
		verdict: rules.Verdict{Code: rules.Jump, Chain: "d"}, header: header("[::1]:53", "[::2]:256"),
	}
	if got, ok := parse(message(attrs)); !ok || got != want {
		t.Errorf("got %+v, %v, want %+v", got, ok, want)
	}
	if _, ok := parse(netlink.Message{Kind: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWGEN, Payload: make([]byte, 4)}); ok {
		t.Error("the end of a transaction counts as a trace")
	}
	for size := range network {
		if got := parseHeader(network[:size], nil); got != (Header{}) {
			t.Errorf("%d bytes of a header are %+v", size, got)
		}
	}
}

func TestVerdicts(t *testing.T) {
	for code, want := range map[uint32]string{
		rules.Drop: "drop", rules.Accept: "accept", verdictStolen: "stolen", verdictQueue: "queue", 5<<16 | verdictQueue: "queue",
		verdictContinue: "continue", rules.Return: "return",
	} {
		e := event{kind: kindRule, handle: 1, verdict: rules.Verdict{Code: code}}
		if got := verdictText(&e.verdict); got != want || e.ends() != (want != "continue" && want != "return") || e.drops() != (want == "drop") {
			t.Errorf("%#x is %q, ends %v, drops %v", code, got, e.ends(), e.drops())
		}
	}
}

// TestRuleLists_IptablesRules: rules of iptables are printed with their comment and target, and with their extensions
// in parentheses.
func TestRuleLists_IptablesRules(t *testing.T) {
	extend := func(kind, name, info string) rules.Expr {
		attrs := netlink.AppendUint32(netlink.AppendText(nil, 1, name), 2, 0)
		return &rules.Unknown{Name: kind, Attrs: string(netlink.AppendBytes(attrs, matchInfo, []byte(info)))}
	}
	counter := &rules.Unknown{Name: "counter"}
	lists := ruleLists{}
	for want, exprs := range map[string][]rules.Expr{
		`counter jump KUBE-SERVICES comment "portals"`: {extend("match", "comment", "portals\x00\x00"), counter, &rules.Verdict{Code: rules.Jump, Chain: "KUBE-SERVICES"}},
		`(match conntrack, target REJECT, …)`:          {&rules.Meta{To: 1, Key: unix.NFT_META_L4PROTO}, extend("match", "conntrack", "x"), counter, extend("target", "REJECT", "")},
	} {
		r := rules.Rule{Exprs: exprs}
		attrs := r.Encode(nil)
		if got := lists.text(place{family: unix.NFPROTO_IPV4}, attrs); got != want || rejects(attrs) != (want[0] == '(') {
			t.Errorf("got %q, rejects %v, want %q", got, rejects(attrs), want)
		}
	}
}
