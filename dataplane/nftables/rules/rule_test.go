// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"encoding/binary"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// random returns an expression of each kind with random content, or nil for a number without a kind.
func random(r *rand.Rand, kind int) Expr {
	n := func() uint32 { return 1 + r.Uint32N(100) }
	text := func(size int) string {
		b := make([]byte, size)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return string(b)
	}
	size := 1 + r.IntN(16)
	all := []Expr{
		&Load{n(), n(), n(), n()}, &Write{n(), n(), n(), n(), n() - 1, n() - 1, n()}, &Meta{n(), n()}, &SetMeta{n(), n()},
		&Conn{n(), n()}, &ConnOriginal{n(), n()}, &Fib{n(), n(), n()}, &Number{n(), n(), r.Uint32()%2 == 0}, &Hash{n(), n(), n(), n(), n()},
		&Bitwise{n(), n(), text(size), text(size)}, &Compare{n(), n(), text(size)}, &Member{"a", n(), n()%2 == 0},
		&VerdictMap{"b", n()}, &Map{"c", n(), n()}, &Dynset{"d", n(), n(), n() - 1, uint64(n() - 1)},
		&Verdict{n(), ""}, &Verdict{Goto, "chain"}, &NAT{n(), n(), n(), n() - 1}, &Masquerade{n()}, &Reject{byte(n())},
		&Reset{}, &Unknown{Name: "teleport", Attrs: string(netlink.AppendUint32(nil, uint16(n()), n()))},
	}
	if kind >= len(all) {
		return nil
	}
	return all[kind]
}

// TestDecodeChain_RoundTrip: a chain with every kind of expression is decoded as it was encoded.
func TestDecodeChain_RoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 43))
	for range 200 {
		rule := Rule{Comment: []string{"", "a comment"}[r.IntN(2)]}
		for kind := 0; random(r, kind) != nil; kind++ {
			rule.Exprs = append(rule.Exprs, random(r, kind))
		}
		r.Shuffle(len(rule.Exprs), func(i, j int) { rule.Exprs[i], rule.Exprs[j] = rule.Exprs[j], rule.Exprs[i] })
		chain := Chain{Name: "x", Base: &Base{"nat", r.Uint32N(5), int32(r.IntN(200) - 100)}, Rules: []Rule{rule, {}}}
		if back := DecodeChain("x", chain.Encode()); !reflect.DeepEqual(chain, back) {
			t.Fatalf("encoded %+v, decoded %+v", chain, back)
		}
	}
}

// expr returns an expression with attributes, as a rule.
func expr(name string, attrs []byte) []byte {
	b, list := netlink.Nest(nil, unix.NFTA_RULE_EXPRESSIONS)
	b, element := netlink.Nest(b, unix.NFTA_LIST_ELEM)
	b = netlink.AppendText(b, unix.NFTA_EXPR_NAME, name)
	b = netlink.AppendBytes(b, unix.NFTA_EXPR_DATA, attrs)
	return netlink.End(netlink.End(b, element), list)
}

func numbers(pairs ...uint32) (b []byte) {
	for i := 0; i < len(pairs); i += 2 {
		b = netlink.AppendUint32(b, uint16(pairs[i]), pairs[i+1])
	}
	return b
}

// TestDecodeRule_NormalForm: attributes that the kernel adds, and their order, do not make a different rule. All other
// attributes do.
func TestDecodeRule_NormalForm(t *testing.T) {
	const family, addr, port = 2, 1, 2
	nat := numbers(unix.NFTA_NAT_TYPE, unix.NFT_NAT_DNAT, unix.NFTA_NAT_FAMILY, family, unix.NFTA_NAT_REG_ADDR_MIN, addr, unix.NFTA_NAT_REG_PROTO_MIN, port)
	translation := &NAT{unix.NFT_NAT_DNAT, family, addr, port}
	random := numbers(unix.NFTA_NG_TYPE, unix.NFT_NG_RANDOM, unix.NFTA_NG_DREG, 1, unix.NFTA_NG_MODULUS, 7)
	for name, c := range map[string]struct {
		expr  string
		attrs []byte
		want  Expr
	}{
		"an empty range":             {"nat", append(slices.Clone(nat), numbers(unix.NFTA_NAT_REG_ADDR_MAX, addr, unix.NFTA_NAT_REG_PROTO_MAX, port)...), translation},
		"flags that announce it":     {"nat", append(slices.Clone(nat), numbers(unix.NFTA_NAT_FLAGS, natImplied)...), translation},
		"another range":              {"nat", append(slices.Clone(nat), numbers(unix.NFTA_NAT_REG_ADDR_MAX, 9)...), nil},
		"other flags":                {"nat", append(slices.Clone(nat), numbers(unix.NFTA_NAT_FLAGS, unix.NF_NAT_RANGE_PROTO_RANDOM)...), nil},
		"another order and a zero":   {"numgen", append(slices.Clone(random), numbers(unix.NFTA_NG_OFFSET, 0)...), &Number{1, 7, false}},
		"an offset":                  {"numgen", append(slices.Clone(random), numbers(unix.NFTA_NG_OFFSET, 1)...), nil},
		"an attribute twice":         {"numgen", append(slices.Clone(random), numbers(unix.NFTA_NG_DREG, 1)...), nil},
		"a missing attribute":        {"numgen", numbers(unix.NFTA_NG_DREG, 1), nil},
		"a counter":                  {"counter", netlink.AppendUint64(netlink.AppendUint64(nil, unix.NFTA_COUNTER_BYTES, 5), unix.NFTA_COUNTER_PACKETS, 1), &Counter{}},
		"a counter of another kind":  {"counter", numbers(7, 5), nil},
		"a number of another size":   {"meta", netlink.AppendUint64(numbers(unix.NFTA_META_KEY, 1), unix.NFTA_META_DREG, 1), nil},
		"a conversion that is idle":  {"byteorder", numbers(unix.NFTA_BYTEORDER_LEN, 1, unix.NFTA_BYTEORDER_SIZE, 2), &Reset{}},
		"a conversion of two bytes":  {"byteorder", numbers(unix.NFTA_BYTEORDER_LEN, 2, unix.NFTA_BYTEORDER_SIZE, 2), nil},
		"a mask of another size":     {"bitwise", wrongMask(), nil},
		"flags of another look-up":   {"lookup", netlink.AppendText(numbers(unix.NFTA_LOOKUP_SREG, 1, unix.NFTA_LOOKUP_FLAGS, 2), unix.NFTA_LOOKUP_SET, "s"), nil},
		"the direction of an answer": {"ct", netlink.AppendUint8(numbers(unix.NFTA_CT_DREG, 1, unix.NFTA_CT_KEY, 20), unix.NFTA_CT_DIRECTION, 1), nil},
	} {
		got := DecodeRule(expr(c.expr, c.attrs))
		want := Rule{Exprs: []Expr{c.want}}
		switch {
		case c.want == nil:
			want.Exprs[0] = &Unknown{c.expr, string(c.attrs)}
		case c.expr == "byteorder":
			want.Exprs = nil
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

func wrongMask() []byte {
	c := codec{b: numbers(unix.NFTA_BITWISE_SREG, 1, unix.NFTA_BITWISE_DREG, 1, unix.NFTA_BITWISE_LEN, 4)}
	mask, flip := "\xff\xff\xff\xff", "\x00"
	c.value(unix.NFTA_BITWISE_MASK, &mask)
	c.value(unix.NFTA_BITWISE_XOR, &flip)
	return c.b
}

// TestRuleText_UnprintableHasNone: a rule has a text only if the text means the rule.
func TestRuleText_UnprintableHasNone(t *testing.T) {
	h := Headers[service.IPv4]
	word := func(n uint32) string { return string(binary.NativeEndian.AppendUint32(nil, n)) }
	daddr := &Load{1, unix.NFT_PAYLOAD_NETWORK_HEADER, uint32(h.Daddr), 4}
	for want, exprs := range map[string][]Expr{
		"ip daddr 10.0.0.1 drop":                    {daddr, &Compare{1, unix.NFT_CMP_EQ, "\x0a\x00\x00\x01"}, &Verdict{Code: Drop}},
		"ip daddr != 10.0.0.0/9 accept":             {daddr, &Bitwise{1, 1, "\xff\x80\x00\x00", word(0)}, &Compare{1, unix.NFT_CMP_NEQ, "\x0a\x00\x00\x00"}, &Verdict{Code: Accept}},
		"ct status confirmed return":                {&Conn{1, unix.NFT_CT_STATUS}, &Bitwise{1, 1, word(StatusConfirmed), word(0)}, &Compare{1, unix.NFT_CMP_NEQ, word(0)}, &Verdict{Code: Return}},
		"meta mark set meta mark | 0x10":            {&Meta{1, unix.NFT_META_MARK}, &Bitwise{1, 1, word(^uint32(0x10)), word(0x10)}, &SetMeta{1, unix.NFT_META_MARK}},
		"iifname \"veth*\" goto x":                  {&Meta{1, unix.NFT_META_IIFNAME}, &Compare{1, unix.NFT_CMP_EQ, "veth"}, &Verdict{Goto, "x"}},
		"ip saddr . th dport @s reject":             {&Load{1, unix.NFT_PAYLOAD_NETWORK_HEADER, uint32(h.Saddr), 4}, &Load{9, unix.NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2}, &Member{"s", 1, false}, &Reject{h.PortUnreachable}},
		"!another comparison":                       {daddr, &Compare{1, unix.NFT_CMP_LT, "\x0a\x00\x00\x01"}},
		"!too long an address":                      {daddr, &Compare{1, unix.NFT_CMP_EQ, strings.Repeat("x", 5)}},
		"!another bit of the status":                {&Conn{1, unix.NFT_CT_STATUS}, &Bitwise{1, 1, word(1), word(0)}, &Compare{1, unix.NFT_CMP_NEQ, word(0)}},
		"!a mark that is compared with a value":     {&Meta{1, unix.NFT_META_MARK}, &Bitwise{1, 1, word(1), word(0)}, &Compare{1, unix.NFT_CMP_EQ, word(1)}},
		"!a mark whose other bits are lost":         {&Meta{1, unix.NFT_META_MARK}, &Bitwise{1, 1, word(1), word(2)}, &SetMeta{1, unix.NFT_META_MARK}},
		"!a protocol of no bytes":                   {&Meta{1, unix.NFT_META_L4PROTO}, &Compare{1, unix.NFT_CMP_EQ, ""}},
		"!a translation of the source":              {daddr, &Map{"m", 1, 1}, &NAT{unix.NFT_NAT_SNAT, unix.NFPROTO_IPV4, 1, 9}},
		"!a translation to a constant":              {&NAT{unix.NFT_NAT_DNAT, unix.NFPROTO_IPV4, 1, 9}},
		"!another ICMP code":                        {&Reject{1}},
		"!a masquerade that keeps the port":         {&Masquerade{0}},
		"!a source that is written":                 {daddr, &Map{"m", 1, 1}, &Write{From: 1, Base: unix.NFT_PAYLOAD_NETWORK_HEADER, Offset: uint32(h.Saddr), Size: 4}},
		"!a value that is not used":                 {daddr},
		"!an address without a part of its network": {&Load{1, unix.NFT_PAYLOAD_NETWORK_HEADER, 5, 4}, &Verdict{Code: Drop}},
	} {
		r := Rule{Exprs: exprs}
		got, err := r.Text(service.IPv4)
		if rejected := strings.HasPrefix(want, "!"); rejected != (err != nil) || !rejected && got != want {
			t.Errorf("%s: %q, %v", want, got, err)
		}
	}
}

// FuzzDecode: any bytes are decoded as a rule whose encoding is decoded as the same rule. It has a text or an error.
func FuzzDecode(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	for kind := 0; random(r, kind) != nil; kind++ {
		rule := Rule{Exprs: []Expr{random(r, kind)}, Comment: "c"}
		f.Add(rule.Encode(nil))
	}
	f.Fuzz(func(t *testing.T, attrs []byte) {
		rule := DecodeRule(attrs)
		encoded := rule.Encode(nil)
		if len(encoded) >= 1<<16 {
			return // longer than an attribute
		}
		if again := DecodeRule(encoded); !reflect.DeepEqual(rule, again) {
			t.Errorf("decoded %+v, and after encoding it %+v", rule, again)
		}
		for _, family := range service.Families {
			if text, err := rule.Text(family); err != nil && text != "" {
				t.Errorf("%q with %v", text, err)
			}
		}
		rule.References(func(string) {}, func(string) {})
	})
}
