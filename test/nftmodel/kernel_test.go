// SPDX-License-Identifier: Apache-2.0

package nftmodel

import (
	"context"
	"errors"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/internal/netlink"
)

// TestSocket_DistinctPorts: sockets have distinct ports.
func TestSocket_DistinctPorts(t *testing.T) {
	k := NewKernel()
	a, _ := k.Open()
	b, _ := k.Open()
	if a.Port() == 0 || a.Port() == b.Port() {
		t.Errorf("ports %d and %d", a.Port(), b.Port())
	}
}

func TestSocket_Closed(t *testing.T) {
	s, _ := NewKernel().Open()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	var notTaken *netlink.NotSentError
	if _, err := s.Commit(transaction(unix.NFPROTO_IPV4, addTable())); !errors.As(err, &notTaken) {
		t.Errorf("a closed socket takes a transaction: %v", err)
	}
	if err := s.Ask(t.Context(), unix.NFT_MSG_GETTABLE, unix.NFPROTO_IPV4, true, nil, func(wire.Message) {}); err == nil {
		t.Error("a closed socket answers")
	}
}

// TestSocket_TransactionTooLarge: a transaction that is too large returns EMSGSIZE.
func TestSocket_TransactionTooLarge(t *testing.T) {
	s, _ := NewKernel().Open()
	tx := transaction(unix.NFPROTO_IPV4, addTable())
	tx.Add(func(b []byte) []byte { return append(b, make([]byte, s.Room())...) })
	if _, err := s.Commit(tx); !errors.Is(err, unix.EMSGSIZE) {
		t.Errorf("got %v, want EMSGSIZE", err)
	}
}

// TestSocket_AnswersEndWithContext: no answer is passed on after the context ended.
func TestSocket_AnswersEndWithContext(t *testing.T) {
	k := withRules(t, unix.NFPROTO_IPV4, hooked("filter", unix.NF_INET_PRE_ROUTING, 0), addChain("a"), addChain("b"))
	s, _ := k.Open()
	ctx, cancel := context.WithCancel(t.Context())
	heard := 0
	err := s.Ask(ctx, unix.NFT_MSG_GETCHAIN, unix.NFPROTO_IPV4, true, nil, func(m wire.Message) {
		heard++
		if m.Port != s.Port() {
			t.Errorf("an answer to port %d", m.Port)
		}
		cancel()
	})
	if err != nil || heard != 1 {
		t.Errorf("%d chains were heard of, error %v; want one", heard, err)
	}
}

// TestTables_SeparatePerFamily: tables with the same name in two families are separate.
func TestTables_SeparatePerFamily(t *testing.T) {
	k := NewKernel()
	must(t, k, unix.NFPROTO_IPV4, addTable(), addChain("four"))
	must(t, k, unix.NFPROTO_IPV6, addTable(), addChain("six"))
	if got := k.commit(transaction(unix.NFPROTO_IPV4, addRule("six"))); len(got) != 1 || got[0].Errno != unix.ENOENT {
		t.Errorf("a chain of the other family: %v, want ENOENT", got)
	}
	must(t, k, unix.NFPROTO_IPV6, inTable(unix.NFT_MSG_DELTABLE, 0))
	must(t, k, unix.NFPROTO_IPV4, addRule("four"))
}

// Names that the backend reads the elements of.
const (
	plainSet   = "hairpins"
	dataMap    = "cluster-endpoints-a"
	verdictMap = "frontends"
	rangeSet   = "allowed-sources"
	clientSet  = "known"
	clientMap  = "clients-x"
)

// ranges describes keys of an address and a port.
var ranges = nest(unix.NFTA_SET_DESC, nest(descConcat, entry(u32(setFieldLen, 4)), entry(u32(setFieldLen, 2))))

func between(first, last string) []byte { return entry(key(first), value(elementKeyEnd, last)) }

// standing is what the cases stand on.
var standing = []message{
	addTable(),
	addSet(plainSet, 0, 4),
	addSet(dataMap, unix.NFT_SET_MAP, 4, u32(unix.NFTA_SET_DATA_TYPE, 1), u32(unix.NFTA_SET_DATA_LEN, 8)),
	addSet(verdictMap, unix.NFT_SET_MAP, 4, u32(unix.NFTA_SET_DATA_TYPE, unix.NFT_DATA_VERDICT)),
	addSet(rangeSet, unix.NFT_SET_INTERVAL|flagConcat, 8, ranges),
	addSet(clientSet, unix.NFT_SET_TIMEOUT|unix.NFT_SET_EVAL, 4, nest(unix.NFTA_SET_DESC, u32(unix.NFTA_SET_DESC_SIZE, 3))),
	addSet(clientMap, unix.NFT_SET_MAP|unix.NFT_SET_TIMEOUT|unix.NFT_SET_EVAL, 4, u32(unix.NFTA_SET_DATA_TYPE, 1),
		u32(unix.NFTA_SET_DATA_LEN, 4), nest(unix.NFTA_SET_DESC, u32(unix.NFTA_SET_DESC_SIZE, 3))),
	addChain("in", hooked("filter", unix.NF_INET_LOCAL_IN, 0)),
	addChain("pre", hooked("nat", unix.NF_INET_PRE_ROUTING, -100)),
	addChain("post", hooked("nat", unix.NF_INET_POST_ROUTING, 100)),
	addChain("a"), addChain("b"), addChain("free"),
	addRule("in", reads(1, unix.NFT_PAYLOAD_NETWORK_HEADER, 16, 4), looksUp(verdictMap, 1, u32(unix.NFTA_LOOKUP_DREG, 0))),
	addRule("in", ends(unix.NFT_JUMP, "a")),
	addRule("a", ends(unix.NFT_GOTO, "b")),
	addElements(plainSet, entry(key("aaaa")), entry(key("bbbb"))),
	addElements(dataMap, entry(key("aaaa"), value(unix.NFTA_SET_ELEM_DATA, "datadata"))),
	addElements(verdictMap, entry(key("aaaa"), to(unix.NFTA_SET_ELEM_DATA, unix.NFT_GOTO, "b"))),
	addElements(rangeSet, between("dddd\x00\x50\x00\x00", "hhhh\x00\x60\x00\x00")),
}

// deep is a row of chains each of which jumps to the next one.
func deep(n int) []message {
	messages := []message{}
	name := func(i int) string { return "deep" + string(rune('A'+i)) }
	for i := range n {
		messages = append(messages, addChain(name(i)))
	}
	for i := range n - 1 {
		messages = append(messages, addRule(name(i), ends(unix.NFT_JUMP, name(i+1))))
	}
	return append(messages, addRule("in", ends(unix.NFT_JUMP, name(0))))
}

// transactions are tried on both kernels.
var transactions = []struct {
	name     string
	messages []message
	// rejected says that both kernels reject it, stricter that only the model
	// does, because it does not understand it.
	rejected, stricter bool
}{
	{name: "table again", messages: []message{addTable()}},
	{name: "table again, exclusively", messages: []message{inTable(unix.NFT_MSG_NEWTABLE, create|unix.NLM_F_EXCL)}, rejected: true},
	{name: "delete a table that is not there", messages: []message{{unix.NFT_MSG_DELTABLE, 0, text(1, "none")}}, rejected: true},
	{name: "delete the table", messages: []message{inTable(unix.NFT_MSG_DELTABLE, 0)}},
	{name: "delete all tables", messages: []message{{unix.NFT_MSG_DELTABLE, 0, nil}}},
	{name: "delete and begin anew", messages: append([]message{inTable(unix.NFT_MSG_DELTABLE, 0)}, standing...)},
	{name: "chain in no table", messages: []message{{unix.NFT_MSG_NEWCHAIN, create, slices.Concat(text(1, "none"), text(unix.NFTA_CHAIN_NAME, "c"))}}, rejected: true},
	{name: "dormant table", messages: []message{inTable(unix.NFT_MSG_NEWTABLE, create, u32(unix.NFTA_TABLE_FLAGS, 1))}, stricter: true},

	{name: "chain again", messages: []message{addChain("a")}},
	{name: "chain again, exclusively", messages: []message{inTable(unix.NFT_MSG_NEWCHAIN, create|unix.NLM_F_EXCL, text(unix.NFTA_CHAIN_NAME, "a"))}, rejected: true},
	{name: "base chain again", messages: []message{addChain("in", hooked("filter", unix.NF_INET_LOCAL_IN, 0))}},
	{name: "base chain at another priority", messages: []message{addChain("in", hooked("filter", unix.NF_INET_LOCAL_IN, 1))}, rejected: true},
	{name: "base chain at another hook", messages: []message{addChain("in", hooked("filter", unix.NF_INET_FORWARD, 0))}, rejected: true},
	{name: "base chain of another type", messages: []message{addChain("in", hooked("nat", unix.NF_INET_LOCAL_IN, 0))}, rejected: true},
	{name: "base chain of another type and priority", messages: []message{addChain("in", hooked("nat", unix.NF_INET_LOCAL_IN, 7))}, rejected: true},
	{name: "chain becomes a base chain", messages: []message{addChain("a", hooked("filter", unix.NF_INET_LOCAL_IN, 0))}, rejected: true},
	{name: "policy of a chain", messages: []message{addChain("c", u32(unix.NFTA_CHAIN_POLICY, policyAccept))}, rejected: true},
	{name: "policy drop", messages: []message{addChain("in", u32(unix.NFTA_CHAIN_POLICY, policyDrop))}},
	{name: "policy that there is not", messages: []message{addChain("in", u32(unix.NFTA_CHAIN_POLICY, 7))}, rejected: true},
	{name: "chain type that there is not", messages: []message{addChain("c", hooked("none", unix.NF_INET_LOCAL_IN, 0))}, rejected: true},
	{name: "nat at forward", messages: []message{addChain("c", hooked("nat", unix.NF_INET_FORWARD, 0))}, rejected: true},
	{name: "nat before connections are tracked", messages: []message{addChain("c", hooked("nat", unix.NF_INET_PRE_ROUTING, -300))}, rejected: true},
	{name: "hook without a priority", messages: []message{addChain("c", nest(unix.NFTA_CHAIN_HOOK, u32(unix.NFTA_HOOK_HOOKNUM, 1)))}, rejected: true},
	{name: "delete a chain", messages: []message{deleteChain("free")}},
	{name: "delete a chain with rules", messages: []message{addRule("free", ends(verdictDrop, "")), deleteChain("free")}},
	{name: "delete a chain that is not there", messages: []message{deleteChain("none")}, rejected: true},
	{name: "delete a base chain", messages: []message{deleteChain("in")}},
	{name: "delete a chain that a rule leads to", messages: []message{deleteChain("a")}, rejected: true},
	{name: "delete a chain that an element leads to", messages: []message{flushChain("a"), deleteChain("b")}, rejected: true},
	{name: "delete a chain and what leads there", messages: []message{
		flushChain("a"), deleteElements(verdictMap, entry(key("aaaa"))), deleteChain("b"),
	}},
	{name: "delete a chain that leads to itself", messages: []message{addRule("free", ends(unix.NFT_JUMP, "free")), deleteChain("free")}, rejected: true},
	{name: "delete a chain twice", messages: []message{deleteChain("free"), deleteChain("free")}, rejected: true},
	{name: "delete a chain and make it again", messages: []message{deleteChain("free"), addChain("free"), addRule("free", rejects())}},

	{name: "rule in no chain", messages: []message{addRule("none", ends(verdictDrop, ""))}, rejected: true},
	{name: "rule without leave to create", messages: []message{inTable(unix.NFT_MSG_NEWRULE, 0, text(unix.NFTA_RULE_CHAIN, "a"))}, rejected: true},
	{name: "rule at the start", messages: []message{
		inTable(unix.NFT_MSG_NEWRULE, create, text(unix.NFTA_RULE_CHAIN, "a"), nest(unix.NFTA_RULE_EXPRESSIONS, ends(verdictAccept, ""))),
	}},
	{name: "empty rule", messages: []message{addRule("free")}},
	{name: "jump to a chain that is not there", messages: []message{addRule("free", ends(unix.NFT_JUMP, "none"))}, rejected: true},
	{name: "jump to a base chain", messages: []message{addRule("free", ends(unix.NFT_JUMP, "in"))}, rejected: true},
	{name: "jump to nowhere", messages: []message{addRule("free", ends(unix.NFT_JUMP, ""))}, rejected: true},
	{name: "verdict that there is not", messages: []message{addRule("free", ends(-77, ""))}, rejected: true},
	{name: "flush a chain", messages: []message{flushChain("a")}},
	{name: "flush an empty chain", messages: []message{flushChain("free")}},
	{name: "flush a chain that is not there", messages: []message{flushChain("none")}, rejected: true},
	{name: "circle", messages: []message{addRule("b", ends(unix.NFT_JUMP, "a"))}, rejected: true},
	{name: "circle that nothing leads to", messages: []message{addRule("free", ends(unix.NFT_JUMP, "free"))}},
	{name: "circle by an element", messages: []message{
		addRule("b", reads(1, unix.NFT_PAYLOAD_NETWORK_HEADER, 16, 4), looksUp(verdictMap, 1, u32(unix.NFTA_LOOKUP_DREG, 0))),
	}, rejected: true},
	{name: "15 jumps", messages: deep(15)},
	{name: "16 jumps", messages: deep(16), rejected: true},
	{name: "16 jumps, and more messages", messages: append(deep(16), addRule("free", rejects()), addElements(plainSet, entry(key("zzzz")))), rejected: true},
	{name: "translation in a filter chain", messages: []message{
		addRule("in", loads(1, "addr"), loads(2, "\x00\x50"), translates(2, 1, 2)),
	}, rejected: true},
	{name: "translation behind routing", messages: []message{
		addRule("post", loads(1, "addr"), loads(2, "\x00\x50"), translates(2, 1, 2)),
	}, rejected: true},
	{name: "translation", messages: []message{addRule("pre", loads(1, "addr"), loads(2, "\x00\x50"), translates(2, 1, 2))}},
	{name: "translation to the other family", messages: []message{
		addRule("pre", loads(1, "addr"), loads(2, "\x00\x50"), translates(10, 1, 2)),
	}, rejected: true},
	{name: "masquerade before routing", messages: []message{addRule("pre", ex("masq"))}, rejected: true},
	{name: "masquerade", messages: []message{addRule("post", ex("masq"))}},
	{name: "rejection behind routing", messages: []message{
		addChain("last", hooked("filter", unix.NF_INET_POST_ROUTING, 0)), addRule("last", rejects()),
	}, rejected: true},
	{name: "rejection where nothing leads", messages: []message{addRule("free", rejects())}},
	{name: "rejection that comes within reach", messages: []message{
		addRule("free", rejects()), addRule("free", ends(verdictDrop, "")), addRule("post", ends(unix.NFT_JUMP, "free")),
	}, rejected: true},

	{name: "register that there is not", messages: []message{addRule("free", properties(99, unix.NFT_META_MARK))}, rejected: true},
	{name: "value in the register of verdicts", messages: []message{addRule("free", properties(0, unix.NFT_META_MARK))}, rejected: true},
	{name: "beyond the registers", messages: []message{addRule("free", properties(unix.NFT_REG32_15, unix.NFT_META_IIFNAME))}, rejected: true},
	{name: "register that nothing wrote", messages: []message{addRule("free", compares(1, unix.NFT_CMP_EQ, "aaaa"))}, rejected: true},
	{name: "register that was written in part", messages: []message{
		addRule("free", properties(1, unix.NFT_META_MARK), compares(1, unix.NFT_CMP_EQ, "aaaabbbb")),
	}, rejected: true},
	{name: "comparison that there is not", messages: []message{
		addRule("free", properties(1, unix.NFT_META_MARK), compares(1, 9, "aaaa")),
	}, rejected: true},
	{name: "random number below 0", messages: []message{addRule("free", draws(1, 0, 0))}, rejected: true},
	{name: "random number beyond 32 bits", messages: []message{addRule("free", draws(1, 7, 0xfffffffd))}, rejected: true},
	{name: "look-up in no set", messages: []message{addRule("free", properties(1, unix.NFT_META_MARK), looksUp("none", 1))}, rejected: true},
	{name: "look-up of a short key", messages: []message{
		addRule("free", properties(1, unix.NFT_META_MARK), looksUp(rangeSet, 1)),
	}, rejected: true},
	{name: "look-up of data in a set", messages: []message{
		addRule("free", properties(1, unix.NFT_META_MARK), looksUp(plainSet, 1, u32(unix.NFTA_LOOKUP_DREG, 2))),
	}, rejected: true},
	{name: "look-up of data that is not there", messages: []message{
		addRule("free", properties(1, unix.NFT_META_MARK), looksUp(dataMap, 1, u32(unix.NFTA_LOOKUP_DREG, 2), u32(unix.NFTA_LOOKUP_FLAGS, 1))),
	}, rejected: true},
	{name: "look-up of data as a verdict", messages: []message{
		addRule("free", properties(1, unix.NFT_META_MARK), looksUp(dataMap, 1, u32(unix.NFTA_LOOKUP_DREG, 0))),
	}, rejected: true},
	{name: "look-up with flags", messages: []message{
		addRule("free", properties(1, unix.NFT_META_MARK), looksUp(plainSet, 1, u32(unix.NFTA_LOOKUP_FLAGS, 6))),
	}, rejected: true},
	{name: "look-ups", messages: []message{
		addRule("free", properties(1, unix.NFT_META_MARK), looksUp(plainSet, 1, u32(unix.NFTA_LOOKUP_FLAGS, 1)), looksUp(dataMap, 1, u32(unix.NFTA_LOOKUP_DREG, 2))),
	}},
	{name: "packets fill a set", messages: []message{addRule("free", properties(1, unix.NFT_META_MARK), remembers(clientSet, 1, 1000))}},
	{name: "packets fill a map", messages: []message{
		addRule("free", loads(1, "aaaabbbb"), changesMap(unix.NFT_DYNSET_OP_UPDATE, clientMap, 1, unix.NFT_REG32_01, u64(unix.NFTA_DYNSET_TIMEOUT, 1000))),
	}},
	{name: "packets empty a map", messages: []message{
		addRule("free", loads(1, "aaaabbbb"), changesMap(dynsetDelete, clientMap, 1, unix.NFT_REG32_01)),
	}},
	{name: "packets fill a map without data", messages: []message{
		addRule("free", properties(1, unix.NFT_META_MARK), remembers(clientMap, 1, 1000)),
	}, rejected: true},
	{name: "packets fill a map with what is in no register", messages: []message{
		addRule("free", properties(1, unix.NFT_META_MARK), changesMap(unix.NFT_DYNSET_OP_UPDATE, clientMap, 1, 2, u64(unix.NFTA_DYNSET_TIMEOUT, 1000))),
	}, rejected: true},
	{name: "packets fill a set with data", messages: []message{
		addRule("free", loads(1, "aaaabbbb"), changesMap(unix.NFT_DYNSET_OP_UPDATE, clientSet, 1, unix.NFT_REG32_01, u64(unix.NFTA_DYNSET_TIMEOUT, 1000))),
	}, rejected: true},
	{name: "another destination in the header", messages: []message{addRule("free", loads(1, "aaaa"), writesDestination(1))}},
	{name: "another destination of no register", messages: []message{addRule("free", writesDestination(1))}, rejected: true},
	{name: "another destination with two registers", messages: []message{
		addRule("free", loads(1, "aaaa"), writesDestination(1, u32(unix.NFTA_PAYLOAD_DREG, 2))),
	}, rejected: true},
	{name: "packets fill a set that is not for it", messages: []message{
		addRule("free", properties(1, unix.NFT_META_MARK), remembers(plainSet, 1, 1000)),
	}, rejected: true},
	{name: "fib of both addresses", messages: []message{
		addRule("free", ex("fib", u32(unix.NFTA_FIB_DREG, 1), u32(unix.NFTA_FIB_RESULT, 3), u32(unix.NFTA_FIB_FLAGS, 3))),
	}, rejected: true},
	{name: "the address that was asked for", messages: []message{
		addRule("free", ex("ct", u32(unix.NFTA_CT_DREG, 1), u32(unix.NFTA_CT_KEY, ctDstIP), u8(unix.NFTA_CT_DIRECTION, 0)), remembers(clientSet, 1, 1000)),
	}},
	{name: "the address that was asked for, without a direction", messages: []message{
		addRule("free", ex("ct", u32(unix.NFTA_CT_DREG, 1), u32(unix.NFTA_CT_KEY, ctDstIP))),
	}, rejected: true},
	{name: "a status with a direction", messages: []message{
		addRule("free", ex("ct", u32(unix.NFTA_CT_DREG, 1), u32(unix.NFTA_CT_KEY, unix.NFT_CT_STATUS), u8(unix.NFTA_CT_DIRECTION, 0))),
	}, rejected: true},
	{name: "meta without a register", messages: []message{addRule("free", ex("meta", u32(unix.NFTA_META_KEY, 3)))}, rejected: true},
	{name: "expression without data", messages: []message{addRule("free", ex("payload"))}, rejected: true},
	{name: "expression that is not modelled", messages: []message{
		addRule("free", ex("limit", u64(1, 10), u64(2, 1))),
	}, stricter: true},
	{name: "attribute that there is not", messages: []message{
		addRule("free", ex("counter", u32(77, 1))),
	}, stricter: true},
	{name: "counter", messages: []message{addRule("free", ex("counter", u64(unix.NFTA_COUNTER_BYTES, 0), u64(unix.NFTA_COUNTER_PACKETS, 0)))}},

	{name: "set again", messages: []message{addSet(plainSet, 0, 4)}},
	{name: "set with another definition", messages: []message{addSet(plainSet, 0, 8)}, rejected: true},
	{name: "set with other flags", messages: []message{addSet(plainSet, unix.NFT_SET_TIMEOUT, 4)}, rejected: true},
	{name: "set without a number", messages: []message{inTable(unix.NFT_MSG_NEWSET, create, text(unix.NFTA_SET_NAME, "x"), u32(unix.NFTA_SET_KEY_LEN, 4))}, rejected: true},
	{name: "set with keys of no bytes", messages: []message{addSet("x", 0, 0)}, rejected: true},
	{name: "set with keys beyond the registers", messages: []message{addSet("x", 0, 68)}, rejected: true},
	{name: "map without data", messages: []message{addSet("x", unix.NFT_SET_MAP, 4)}, rejected: true},
	{name: "data in a set", messages: []message{addSet("x", 0, 4, u32(unix.NFTA_SET_DATA_TYPE, 1), u32(unix.NFTA_SET_DATA_LEN, 4))}, rejected: true},
	{name: "fields of another size", messages: []message{addSet("x", unix.NFT_SET_INTERVAL|flagConcat, 12, ranges)}, rejected: true},
	{name: "delete a set", messages: []message{deleteSet(plainSet)}},
	{name: "delete a set that is not there", messages: []message{deleteSet("none")}, rejected: true},
	{name: "delete a set that a rule names", messages: []message{deleteSet(verdictMap)}, rejected: true},
	{name: "delete a set and the rules that name it", messages: []message{flushChain("in"), deleteSet(verdictMap)}},
	{name: "delete a map and where it leads", messages: []message{flushChain("in"), flushChain("a"), deleteSet(verdictMap), deleteChain("b")}},

	{name: "elements", messages: []message{addElements(plainSet, entry(key("cccc")), entry(key("dddd")))}},
	{name: "element again", messages: []message{addElements(plainSet, entry(key("aaaa")))}},
	{name: "element again, exclusively", messages: []message{elements(unix.NFT_MSG_NEWSETELEM, create|unix.NLM_F_EXCL, plainSet, entry(key("cccc")), entry(key("aaaa")))}, rejected: true},
	{name: "element in no set", messages: []message{addElements("none", entry(key("aaaa")))}, rejected: true},
	{name: "element with a short key", messages: []message{addElements(plainSet, entry(key("cccc")), entry(key("dd")))}, rejected: true},
	{name: "element without a key", messages: []message{addElements(plainSet, entry())}, rejected: true},
	{name: "element with data in a set", messages: []message{addElements(plainSet, entry(key("cccc"), value(unix.NFTA_SET_ELEM_DATA, "dddd")))}, rejected: true},
	{name: "element without data in a map", messages: []message{addElements(dataMap, entry(key("cccc")))}, rejected: true},
	{name: "element with short data", messages: []message{addElements(dataMap, entry(key("cccc"), value(unix.NFTA_SET_ELEM_DATA, "dddd")))}, rejected: true},
	{name: "element with the same data", messages: []message{addElements(dataMap, entry(key("aaaa"), value(unix.NFTA_SET_ELEM_DATA, "datadata")))}},
	{name: "element with other data", messages: []message{addElements(dataMap, entry(key("aaaa"), value(unix.NFTA_SET_ELEM_DATA, "otherone")))}, rejected: true},
	{name: "element is exchanged", messages: []message{
		deleteElements(dataMap, entry(key("aaaa"))), addElements(dataMap, entry(key("aaaa"), value(unix.NFTA_SET_ELEM_DATA, "otherone"))),
	}},
	{name: "element leads to another chain", messages: []message{
		deleteElements(verdictMap, entry(key("aaaa"))), addElements(verdictMap, entry(key("aaaa"), to(unix.NFTA_SET_ELEM_DATA, unix.NFT_GOTO, "free"))),
	}},
	{name: "element leads elsewhere, by addition", messages: []message{
		addElements(verdictMap, entry(key("aaaa"), to(unix.NFTA_SET_ELEM_DATA, unix.NFT_GOTO, "free"))),
	}, rejected: true},
	{name: "element leads nowhere", messages: []message{addElements(verdictMap, entry(key("cccc"), to(unix.NFTA_SET_ELEM_DATA, unix.NFT_GOTO, "none")))}, rejected: true},
	{name: "element with a value for a verdict", messages: []message{addElements(verdictMap, entry(key("cccc"), value(unix.NFTA_SET_ELEM_DATA, "dddd")))}, rejected: true},
	{name: "element brings a rejection within reach", messages: []message{
		addRule("free", ex("masq")), addElements(verdictMap, entry(key("cccc"), to(unix.NFTA_SET_ELEM_DATA, unix.NFT_GOTO, "free"))),
	}, rejected: true},
	{name: "end of a range in a set without", messages: []message{addElements(plainSet, entry(key("cccc"), u32(unix.NFTA_SET_ELEM_FLAGS, 1)))}, rejected: true},
	{name: "range in a set without", messages: []message{addElements(plainSet, between("cccc", "dddd"))}, rejected: true},
	{name: "comment", messages: []message{addElements(plainSet, entry(key("cccc"), blob(unix.NFTA_SET_ELEM_USERDATA, "\x00\x02x\x00")))}},
	{name: "delete elements", messages: []message{deleteElements(plainSet, entry(key("aaaa")), entry(key("bbbb")))}},
	{name: "delete an element that is not there", messages: []message{deleteElements(plainSet, entry(key("aaaa")), entry(key("cccc")))}, rejected: true},
	{name: "delete an element twice", messages: []message{deleteElements(plainSet, entry(key("aaaa")), entry(key("aaaa")))}, rejected: true},
	{name: "delete all elements", messages: []message{inTable(unix.NFT_MSG_DELSETELEM, 0, text(unix.NFTA_SET_ELEM_LIST_SET, plainSet))}},
	{name: "timeout in a set without", messages: []message{addElements(plainSet, entry(key("cccc"), u64(unix.NFTA_SET_ELEM_TIMEOUT, 1000)))}, rejected: true},
	{name: "timeout", messages: []message{addElements(clientSet, entry(key("cccc"), u64(unix.NFTA_SET_ELEM_TIMEOUT, 100000)))}},
	{name: "full set", messages: []message{addElements(clientSet, entry(key("cccc")), entry(key("dddd")), entry(key("eeee")))}},
	{name: "overfull set", messages: []message{addElements(clientSet, entry(key("cccc")), entry(key("dddd")), entry(key("eeee")), entry(key("ffff")))}, rejected: true},

	{name: "range", messages: []message{addElements(rangeSet, between("iiii\x00\x50\x00\x00", "iizz\x00\x50\x00\x00"))}},
	{name: "range of one value", messages: []message{addElements(rangeSet, entry(key("iiii\x00\x50\x00\x00")))}},
	{name: "range of one value, given twice", messages: []message{
		addElements(rangeSet, entry(key("iiii\x00\x50\x00\x00"))), addElements(rangeSet, between("iiii\x00\x50\x00\x00", "iiii\x00\x50\x00\x00")),
	}},
	{name: "range again", messages: []message{addElements(rangeSet, between("dddd\x00\x50\x00\x00", "hhhh\x00\x60\x00\x00"))}},
	{name: "range that overlaps at its end", messages: []message{addElements(rangeSet, between("cccc\x00\x50\x00\x00", "eeee\x00\x60\x00\x00"))}, rejected: true},
	{name: "range inside of another one", messages: []message{addElements(rangeSet, between("eeee\x00\x50\x00\x00", "ffff\x00\x60\x00\x00"))}, rejected: true},
	{name: "range around another one", messages: []message{addElements(rangeSet, between("cccc\x00\x40\x00\x00", "iiii\x00\x70\x00\x00"))}},
	{name: "range beside another one in one field", messages: []message{addElements(rangeSet, between("eeee\x00\x61\x00\x00", "ffff\x00\x70\x00\x00"))}},
	{name: "range that ends before it begins", messages: []message{addElements(rangeSet, between("iiii\x00\x50\x00\x00", "aaaa\x00\x50\x00\x00"))}, rejected: true},
	{name: "range with a short end", messages: []message{addElements(rangeSet, between("iiii\x00\x50\x00\x00", "iizz"))}, rejected: true},
	{name: "delete a range", messages: []message{deleteElements(rangeSet, between("dddd\x00\x50\x00\x00", "hhhh\x00\x60\x00\x00"))}},
	{name: "delete a range by a value inside", messages: []message{deleteElements(rangeSet, entry(key("eeee\x00\x55\x00\x00")))}},
	{name: "delete the older of two ranges around a value", messages: []message{
		addElements(rangeSet, between("cccc\x00\x40\x00\x00", "iiii\x00\x70\x00\x00")), deleteElements(rangeSet, entry(key("eeee\x00\x55\x00\x00"))),
	}},
	{name: "delete a range that is not there", messages: []message{deleteElements(rangeSet, between("iiii\x00\x50\x00\x00", "iizz\x00\x60\x00\x00"))}, rejected: true},

	{name: "delete all elements and a chain they led to", messages: []message{
		inTable(unix.NFT_MSG_DELSETELEM, 0, text(unix.NFTA_SET_ELEM_LIST_SET, verdictMap)), flushChain("a"), deleteChain("b"),
	}},
	{name: "rules and chains go in any order", messages: []message{flushChain("in"), deleteChain("a"), deleteSet(verdictMap), deleteChain("b")}},
	{name: "delete a chain that a new element leads to", messages: []message{addSet("picks-x", unix.NFT_SET_MAP, 4, u32(unix.NFTA_SET_DATA_TYPE, unix.NFT_DATA_VERDICT)), addElements("picks-x", entry(key("cccc"), to(unix.NFTA_SET_ELEM_DATA, unix.NFT_GOTO, "free"))), deleteChain("free")}, rejected: true},
	{name: "short number", messages: []message{addRule("free", ex("meta", blob(unix.NFTA_META_KEY, "\x00\x03"), u32(unix.NFTA_META_DREG, 1)))}, rejected: true},
	{name: "several rejections at once", messages: []message{
		deleteChain("none"), addChain("c"), deleteSet("none"), addElements(plainSet, entry(key("c"))), addRule("c", ends(unix.NFT_JUMP, "none")),
	}, rejected: true},
	{name: "nothing lands of what is rejected", messages: []message{
		addChain("c"), addElements(plainSet, entry(key("cccc"))), deleteElements(dataMap, entry(key("aaaa"))), flushChain("in"), deleteChain("none"),
	}, rejected: true},
}
