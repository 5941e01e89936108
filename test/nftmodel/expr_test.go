// SPDX-License-Identifier: Apache-2.0

package nftmodel

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	nftrender "github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/service"
)

// withRules returns a kernel with sets, and one base chain with rules.
func withRules(t *testing.T, family uint8, base []byte, messages ...message) *Kernel {
	t.Helper()
	k := NewKernel()
	k.SetAddresses(netip.MustParseAddr("192.168.0.2"), netip.MustParseAddr("2001:db8::2"))
	must(t, k, family, append([]message{addTable(), addChain("base", base)}, messages...)...)
	return k
}

// must commits what has to land.
func must(t testing.TB, k *Kernel, family uint8, messages ...message) {
	t.Helper()
	for _, r := range k.commit(transaction(family, messages...)) {
		t.Fatalf("%v, about %v", r, r.About)
	}
}

func packet(from, to string) Packet {
	return Packet{Src: netip.MustParseAddrPort(from), Dst: netip.MustParseAddrPort(to), In: "eth0", Out: "veth1"}
}

var arrival = packet("203.0.113.10:40000", "172.30.0.41:80")

// never decides for the largest number.
func never(float64) bool { return false }

// first decides for the smallest number.
func first(float64) bool { return true }

// TestExpr_Matches: each expression matches the packet exactly if it should.
func TestExpr_Matches(t *testing.T) {
	const reg1, reg2, word1 = unix.NFT_REG_1, unix.NFT_REG_2, unix.NFT_REG32_01
	const network, transport = unix.NFT_PAYLOAD_NETWORK_HEADER, unix.NFT_PAYLOAD_TRANSPORT_HEADER
	sets := []message{
		addSet("set", 0, 8), addElements("set", entry(key("\x06\x00\x00\x00\x00\x50\x00\x00"))),
		addSet("map", unix.NFT_SET_MAP, 4, u32(unix.NFTA_SET_DATA_TYPE, 1), u32(unix.NFTA_SET_DATA_LEN, 4)),
		addElements("map", entry(key("\xac\x1e\x00\x29"), value(unix.NFTA_SET_ELEM_DATA, "data"))),
		addSet("ranges", unix.NFT_SET_INTERVAL|flagConcat, 8, ranges),
		addElements("ranges", between("\xcb\x00\x71\x00\x00\x40\x00\x00", "\xcb\x00\x71\x7f\x00\x50\x00\x00")),
	}
	protocol, port := properties(reg1, unix.NFT_META_L4PROTO), reads(word1, transport, 2, 2)
	fib := func(flags, kind uint32) []byte {
		return slices.Concat(ex("fib", u32(unix.NFTA_FIB_DREG, 1), u32(unix.NFTA_FIB_RESULT, unix.NFT_FIB_RESULT_ADDRTYPE), u32(unix.NFTA_FIB_FLAGS, flags)),
			compares(reg1, unix.NFT_CMP_EQ, host(kind)))
	}
	ct := func(key, bits uint32) []byte {
		return slices.Concat(ex("ct", u32(unix.NFTA_CT_DREG, reg1), u32(unix.NFTA_CT_KEY, key)), compares(reg1, unix.NFT_CMP_EQ, host(bits)))
	}
	masked := func(mask, flip uint32) []byte {
		return ex("bitwise", u32(unix.NFTA_BITWISE_SREG, reg1), u32(unix.NFTA_BITWISE_DREG, reg2), u32(unix.NFTA_BITWISE_LEN, 4),
			value(unix.NFTA_BITWISE_MASK, host(mask)), value(unix.NFTA_BITWISE_XOR, host(flip)))
	}
	for _, c := range []struct {
		name  string
		exprs []byte
		want  bool
	}{
		{"payload: destination", slices.Concat(reads(reg1, network, 16, 4), compares(reg1, unix.NFT_CMP_EQ, "\xac\x1e\x00\x29")), true},
		{"payload: part of the source", slices.Concat(reads(reg1, network, 12, 3), compares(reg1, unix.NFT_CMP_EQ, "\xcb\x00\x71")), true},
		{"payload: the rest of the word is zero", slices.Concat(loads(reg1, "xxxx"), reads(reg1, network, 12, 3), compares(reg1, unix.NFT_CMP_EQ, "\xcb\x00\x71\x00")), true},
		{"payload: source port", slices.Concat(reads(reg1, transport, 0, 2), compares(reg1, unix.NFT_CMP_EQ, "\x9c\x40")), true},
		{"payload: protocol", slices.Concat(reads(reg1, network, 9, 1), compares(reg1, unix.NFT_CMP_EQ, "\x06")), true},
		{"payload: another port", slices.Concat(port, compares(word1, unix.NFT_CMP_EQ, "\x00\x51")), false},

		{"cmp: other than another", slices.Concat(port, compares(word1, unix.NFT_CMP_NEQ, "\x00\x51")), true},
		{"cmp: other than itself", slices.Concat(port, compares(word1, unix.NFT_CMP_NEQ, "\x00\x50")), false},
		{"cmp: less than itself", slices.Concat(port, compares(word1, unix.NFT_CMP_LT, "\x00\x50")), false},
		{"cmp: less than more", slices.Concat(port, compares(word1, unix.NFT_CMP_LT, "\x01\x00")), true},
		{"cmp: at most itself", slices.Concat(port, compares(word1, unix.NFT_CMP_LTE, "\x00\x50")), true},
		{"cmp: more than itself", slices.Concat(port, compares(word1, unix.NFT_CMP_GT, "\x00\x50")), false},
		{"cmp: more than less", slices.Concat(port, compares(word1, unix.NFT_CMP_GT, "\x00\x4f")), true},
		{"cmp: at least more", slices.Concat(port, compares(word1, unix.NFT_CMP_GTE, "\x00\x51")), false},

		{"meta: protocol", slices.Concat(protocol, compares(reg1, unix.NFT_CMP_EQ, "\x06")), true},
		{"meta: family", slices.Concat(properties(reg1, unix.NFT_META_NFPROTO), compares(reg1, unix.NFT_CMP_EQ, "\x02")), true},
		{"meta: interface", slices.Concat(properties(reg1, unix.NFT_META_IIFNAME), compares(reg1, unix.NFT_CMP_EQ, "eth0\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00")), true},
		{"meta: start of an interface", slices.Concat(properties(reg1, unix.NFT_META_IIFNAME), compares(reg1, unix.NFT_CMP_EQ, "et")), true},
		{"meta: no interface to leave by yet", slices.Concat(properties(reg1, unix.NFT_META_OIFNAME), compares(reg1, unix.NFT_CMP_EQ, "\x00")), true},
		{"meta: no mark", slices.Concat(properties(reg1, unix.NFT_META_MARK), compares(reg1, unix.NFT_CMP_EQ, host(0))), true},
		{"meta: mark that was set", slices.Concat(loads(reg1, host(5)), ex("meta", u32(unix.NFTA_META_KEY, unix.NFT_META_MARK), u32(unix.NFTA_META_SREG, reg1)),
			properties(reg2, unix.NFT_META_MARK), compares(reg2, unix.NFT_CMP_EQ, host(5))), true},

		{"ct: a new connection", ct(unix.NFT_CT_STATE, stateNew), true},
		{"ct: not translated", ct(unix.NFT_CT_STATUS, statusDNAT), false},
		{"fib: destination elsewhere", fib(unix.NFTA_FIB_F_DADDR, unix.RTN_UNICAST), true},
		{"fib: destination here", fib(unix.NFTA_FIB_F_DADDR, unix.RTN_LOCAL), false},
		{"fib: source elsewhere", fib(unix.NFTA_FIB_F_SADDR, unix.RTN_UNICAST), true},

		{"bitwise", slices.Concat(loads(reg1, host(0xf0f1)), masked(0x00ff, 0x0f00), compares(reg2, unix.NFT_CMP_EQ, host(0x0ff1))), true},
		{"immediate in whole words", slices.Concat(loads(reg1, "ab"), compares(reg1, unix.NFT_CMP_EQ, "ab\x00\x00")), true},
		{"registers of words and of four words are the same", slices.Concat(loads(reg2, "abcd"), compares(unix.NFT_REG32_04, unix.NFT_CMP_EQ, "abcd")), true},

		{"lookup: in a set", slices.Concat(protocol, port, looksUp("set", reg1)), true},
		{"lookup: not in a set", slices.Concat(protocol, port, looksUp("set", reg1, u32(unix.NFTA_LOOKUP_FLAGS, unix.NFT_LOOKUP_F_INV))), false},
		{"lookup: another key", slices.Concat(port, loads(reg1, "\x11"), port, looksUp("set", reg1)), false},
		{"lookup: another key is not in the set", slices.Concat(loads(reg1, "\x11"), port, looksUp("set", reg1, u32(unix.NFTA_LOOKUP_FLAGS, unix.NFT_LOOKUP_F_INV))), true},
		{"lookup: data", slices.Concat(reads(reg1, network, 16, 4), looksUp("map", reg1, u32(unix.NFTA_LOOKUP_DREG, reg2)), compares(reg2, unix.NFT_CMP_EQ, "data")), true},
		{"lookup: no data", slices.Concat(reads(reg1, network, 12, 4), looksUp("map", reg1, u32(unix.NFTA_LOOKUP_DREG, reg2))), false},
		{"lookup: in a range", slices.Concat(reads(reg1, network, 12, 4), port, looksUp("ranges", reg1)), true},
		{"lookup: beside a range", slices.Concat(loads(reg1, "\xcb\x00\x71\x80"), port, looksUp("ranges", reg1)), false},
		{"lookup: beside a range in the last field", slices.Concat(reads(reg1, network, 12, 4), loads(word1, "\x00\x51"), looksUp("ranges", reg1)), false},

		{"numgen below 1", slices.Concat(draws(reg1, 1, 0), compares(reg1, unix.NFT_CMP_EQ, host(0))), true},
		{"numgen: the largest number", slices.Concat(draws(reg1, 7, 3), compares(reg1, unix.NFT_CMP_EQ, host(9))), true},
		{"counter", ex("counter"), true},
		{"nothing", nil, true},
		{"verdict continue", ends(unix.NFT_CONTINUE, ""), true},
		{"verdict break", ends(unix.NFT_BREAK, ""), false},
	} {
		k := withRules(t, unix.NFPROTO_IPV4, hooked("filter", unix.NF_INET_PRE_ROUTING, 0), append(slices.Clone(sets),
			addRule("base", c.exprs, ends(verdictDrop, "")))...)
		want := Untouched
		if c.want {
			want = Dropped
		}
		if got := k.Trace(arrival, never); got.Verdict != want || got.RulesVisited != 1 || len(got.Steps) > 0 != c.want {
			t.Errorf("%s: %+v, want %v", c.name, got, want)
		}
	}
}

// TestExpr_AddressesOfOtherFamily: rules of one family do not evaluate packets of the other family.
func TestExpr_AddressesOfOtherFamily(t *testing.T) {
	k := withRules(t, unix.NFPROTO_IPV6, hooked("filter", unix.NF_INET_LOCAL_IN, 0), addRule("base",
		reads(unix.NFT_REG_1, unix.NFT_PAYLOAD_NETWORK_HEADER, 24, 16),
		compares(unix.NFT_REG_1, unix.NFT_CMP_EQ, "\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02"),
		ex("fib", u32(unix.NFTA_FIB_DREG, 1), u32(unix.NFTA_FIB_RESULT, unix.NFT_FIB_RESULT_ADDRTYPE), u32(unix.NFTA_FIB_FLAGS, unix.NFTA_FIB_F_DADDR)),
		compares(unix.NFT_REG_1, unix.NFT_CMP_EQ, host(unix.RTN_LOCAL)), rejects()))
	if got := k.Trace(packet("[2001:db8:ffff::10]:40000", "[2001:db8::2]:80"), never); got.Verdict != Rejected {
		t.Errorf("got %+v, want rejected", got)
	}
	if got := k.Trace(packet("203.0.113.10:40000", "192.168.0.2:80"), never); got.Verdict != Untouched || got.RulesVisited != 0 {
		t.Errorf("a packet of the other family meets %+v", got)
	}
}

func TestExpr_Translation(t *testing.T) {
	k := withRules(t, unix.NFPROTO_IPV4, hooked("nat", unix.NF_INET_PRE_ROUTING, -100),
		addRule("base", loads(1, "\x0a\xf4\x01\x0a"), loads(2, "\x1f\x90"), translates(unix.NFPROTO_IPV4, 1, 2)),
		addRule("base", ends(verdictDrop, "")),
		addChain("again", hooked("nat", unix.NF_INET_PRE_ROUTING, -90)), addRule("again", ends(verdictDrop, "")),
		addChain("seen", hooked("filter", unix.NF_INET_FORWARD, 0)),
		addRule("seen", ex("ct", u32(unix.NFTA_CT_DREG, 1), u32(unix.NFTA_CT_KEY, unix.NFT_CT_STATUS)), compares(1, unix.NFT_CMP_EQ, host(statusDNAT)), ex("counter")),
		addChain("post", hooked("nat", unix.NF_INET_POST_ROUTING, 100)), addRule("post", ex("masq", u32(unix.NFTA_MASQ_FLAGS, unix.NF_NAT_RANGE_PROTO_RANDOM_FULLY))))
	got := k.Trace(arrival, never)
	if got.Verdict != Delivered || got.To.String() != "10.244.1.10:8080" || !got.Masqueraded {
		t.Errorf("got %+v, want delivered and masqueraded", got)
	}
	want := "[ip kube-proxy base #1 ip kube-proxy seen #1 ip kube-proxy post #1]"
	if got := fmt.Sprint(got.Steps); got != want {
		t.Errorf("steps %v, want %v", got, want)
	}
}

// TestExpr_Chance: all random numbers have the same probability, equal outcomes are combined, and numbers that are
// drawn twice are independent.
func TestExpr_Chance(t *testing.T) {
	k := withRules(t, unix.NFPROTO_IPV4, hooked("filter", unix.NF_INET_PRE_ROUTING, 0),
		addRule("base", draws(1, 4, 0), compares(1, unix.NFT_CMP_EQ, host(0)), ends(verdictDrop, "")),
		addRule("base", draws(1, 2, 0), draws(2, 2, 0), compares(1, unix.NFT_CMP_EQ, host(1)), compares(2, unix.NFT_CMP_EQ, host(1)), ends(verdictDrop, "")))
	outcomes := k.Outcomes(arrival)
	if len(outcomes) != 2 {
		t.Fatalf("got %+v, want two outcomes", outcomes)
	}
	for i, want := range []struct {
		Verdict
		probability float64
	}{{Untouched, 9. / 16}, {Dropped, 7. / 16}} {
		if o := outcomes[i]; o.Verdict != want.Verdict || math.Abs(o.Probability-want.probability) > 1e-12 {
			t.Errorf("%v with probability %v, want %v", o.Verdict, o.Probability, want)
		}
	}
	if got := k.Trace(arrival, first); got.Verdict != Dropped {
		t.Errorf("with the smallest numbers: %v", got.Verdict)
	}
}

// TestExpr_MemoryOfPackets: a set remembers clients until their timeout, not more of them than fit, and none of an
// outcome that was only asked for.
func TestExpr_MemoryOfPackets(t *testing.T) {
	const clients = "clients-x"
	source := reads(1, unix.NFT_PAYLOAD_NETWORK_HEADER, 12, 4)
	k := withRules(t, unix.NFPROTO_IPV4, hooked("filter", unix.NF_INET_PRE_ROUTING, 0),
		addSet(clients, unix.NFT_SET_TIMEOUT|unix.NFT_SET_EVAL, 4, nest(unix.NFTA_SET_DESC, u32(unix.NFTA_SET_DESC_SIZE, 2))),
		addRule("base", source, looksUp(clients, 1), ends(verdictDrop, "")),
		addRule("base", source, remembers(clients, 1, 1000)),
		addRule("base", source, looksUp(clients, 1), rejects()))
	now := time.Unix(1, 0)
	k.SetClock(func() time.Time { return now })
	from := func(host string) Packet { return packet(host+":1", "172.30.0.41:80") }
	expect := func(host string, want Verdict) {
		t.Helper()
		for range 2 {
			if got := k.Outcomes(from(host)); len(got) != 1 || got[0].Verdict != want {
				t.Errorf("%s would be %v, want %v", host, got, want)
			}
		}
		if got := k.Trace(from(host), never); got.Verdict != want {
			t.Errorf("%s is %v, want %v", host, got.Verdict, want)
		}
	}
	expect("10.0.0.1", Rejected)
	expect("10.0.0.1", Dropped)
	expect("10.0.0.2", Rejected)
	expect("10.0.0.3", Untouched) // no room
	now = now.Add(999 * time.Millisecond)
	expect("10.0.0.2", Dropped)
	now = now.Add(time.Millisecond)
	expect("10.0.0.2", Rejected)
	expect("10.0.0.3", Rejected) // room again
}

// TestExpr_MemoryBetweenRules: a map keeps its first value until it is removed. A rule that writes the header changes
// what later rules see, and not the address from which the connection is translated.
func TestExpr_MemoryBetweenRules(t *testing.T) {
	const clients, addr = "clients-x", "\x0a\x00\x00"
	source, destination := reads(1, unix.NFT_PAYLOAD_NETWORK_HEADER, 12, 4), reads(2, unix.NFT_PAYLOAD_NETWORK_HEADER, 16, 4)
	update := changesMap(unix.NFT_DYNSET_OP_UPDATE, clients, 1, 2, u64(unix.NFTA_DYNSET_TIMEOUT, 1000))
	k := withRules(t, unix.NFPROTO_IPV4, hooked("nat", unix.NF_INET_PRE_ROUTING, -100),
		addSet(clients, unix.NFT_SET_MAP|unix.NFT_SET_TIMEOUT|unix.NFT_SET_EVAL, 4, u32(unix.NFTA_SET_DATA_TYPE, 7),
			u32(unix.NFTA_SET_DATA_LEN, 4), nest(unix.NFTA_SET_DESC, u32(unix.NFTA_SET_DESC_SIZE, 9))),
		addChain("new"), addChain("translates"),
		addRule("base", source, looksUp(clients, 1, u32(unix.NFTA_LOOKUP_DREG, 1)), writesDestination(1)),
		addRule("base", reads(1, unix.NFT_PAYLOAD_NETWORK_HEADER, 16, 4), compares(1, unix.NFT_CMP_EQ, addr+"\x09"), ends(unix.NFT_JUMP, "translates")),
		addRule("base", source, destination, changesMap(dynsetDelete, clients, 1, 2)),
		addRule("base", loads(1, addr+"\x08"), writesDestination(1)),
		addRule("base", source, destination, update),
		addRule("base", loads(1, addr+"\x09"), writesDestination(1)),
		addRule("base", source, destination, update),
		addRule("translates", reads(1, unix.NFT_PAYLOAD_NETWORK_HEADER, 16, 4), loads(2, "\x00\x50"), translates(unix.NFPROTO_IPV4, 1, 2)))
	p := packet("10.1.0.1:1", "10.0.0.9:80")
	p.Dst = netip.MustParseAddrPort("172.30.0.41:80")
	if got := k.Trace(p, never); got.Verdict != Untouched || got.To.String() != "10.0.0.9:80" {
		t.Errorf("a new client: %v to %v", got.Verdict, got.To)
	}
	name := Name{Family: service.IPv4, Table: nftrender.TableName, Set: clients, Key: "\x0a\x01\x00\x01"}
	for _, table := range k.tables {
		if data := table.sets[clients].elements[name.Key].data; data != addr+"\x08" {
			t.Errorf("remembered %x, want what was there first", data)
		}
	}
	k.Remember(name, addr+"\x09", time.Second)
	if got := k.Trace(p, never); got.Verdict != Delivered || got.To.String() != "10.0.0.9:80" {
		t.Errorf("a known client: %v to %v", got.Verdict, got.To)
	}
}

// TestExpr_UnknownRejected: the model rejects what it does not understand, and the error says that this is the model's
// fault.
func TestExpr_UnknownRejected(t *testing.T) {
	for _, c := range []struct {
		name string
		m    message
	}{
		{"header that packets here do not have", addRule("base", reads(1, unix.NFT_PAYLOAD_LL_HEADER, 0, 6))},
		{"part of a header that is not known", addRule("base", reads(1, unix.NFT_PAYLOAD_NETWORK_HEADER, 8, 1))},
		{"sequence number", addRule("base", reads(1, unix.NFT_PAYLOAD_TRANSPORT_HEADER, 4, 4))},
		{"meta key", addRule("base", properties(1, unix.NFT_META_CPU))},
		{"ct key", addRule("base", ex("ct", u32(unix.NFTA_CT_DREG, 1), u32(unix.NFTA_CT_KEY, unix.NFT_CT_MARK)))},
		{"fib result", addRule("base", ex("fib", u32(unix.NFTA_FIB_DREG, 1), u32(unix.NFTA_FIB_RESULT, unix.NFT_FIB_RESULT_OIF), u32(unix.NFTA_FIB_FLAGS, unix.NFTA_FIB_F_DADDR)))},
		{"symmetric hash", addRule("base", ex("hash", u32(unix.NFTA_HASH_SREG, 1), u32(unix.NFTA_HASH_DREG, 1), u32(unix.NFTA_HASH_LEN, 4),
			u32(unix.NFTA_HASH_MODULUS, 2), u32(unix.NFTA_HASH_SEED, 0), u32(unix.NFTA_HASH_TYPE, unix.NFT_HASH_SYM)))},
		{"expression", addRule("base", ex("quota"))},
		{"flowtable", inTable(unix.NFT_MSG_NEWFLOWTABLE, create)},
		{"connection for a flowtable", addRule("base", ex("flow_offload", text(1, "services")))},
		{"attribute of an expression", addRule("base", ex("counter", u32(9, 1)))},
		{"attribute of a chain", addChain("x", u32(unix.NFTA_CHAIN_USE, 1))},
		{"flag of a set", addSet("x", unix.NFT_SET_CONSTANT, 4)},
		{"ranges of one field", addSet("x", unix.NFT_SET_INTERVAL, 4)},
		{"flag of a message", inTable(unix.NFT_MSG_NEWTABLE, unix.NLM_F_REPLACE)},
		{"message", inTable(unix.NFT_MSG_NEWOBJ, create)},
	} {
		k := withRules(t, unix.NFPROTO_IPV4, hooked("filter", unix.NF_INET_PRE_ROUTING, 0))
		before := k.Generation()
		rejections := k.commit(transaction(unix.NFPROTO_IPV4, c.m))
		if len(rejections) != 1 || rejections[0].Errno != unix.EINVAL || !strings.Contains(rejections[0].Words, "not modelled") {
			t.Errorf("%s: %v, want one rejection that says that it is not modelled", c.name, rejections)
		}
		if k.Generation() != before {
			t.Errorf("%s: a rejected transaction counts", c.name)
		}
	}
}

// TestExpr_Protocols: each protocol has its number in the header.
func TestExpr_Protocols(t *testing.T) {
	for _, protocol := range []service.Protocol{service.TCP, service.UDP, service.SCTP} {
		k := withRules(t, unix.NFPROTO_IPV4, hooked("filter", unix.NF_INET_PRE_ROUTING, 0), addRule("base",
			properties(1, unix.NFT_META_L4PROTO), compares(1, unix.NFT_CMP_EQ, string([]byte{protocol.Number()})), ends(verdictDrop, "")))
		p := arrival
		p.Protocol = protocol
		if got := k.Trace(p, never); got.Verdict != Dropped {
			t.Errorf("%v: %v", protocol, got.Verdict)
		}
	}
}
