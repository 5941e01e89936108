// SPDX-License-Identifier: Apache-2.0

package nftmodel

import (
	"encoding/binary"
	"slices"

	"golang.org/x/sys/unix"

	nftrender "github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/internal/netlink"
)

// Attributes for tests, each as bytes that can be put together.

func text(kind uint16, s string) []byte { return netlink.AppendText(nil, kind, s) }
func u32(kind uint16, n uint32) []byte  { return netlink.AppendUint32(nil, kind, n) }
func u8(kind uint16, n byte) []byte     { return netlink.AppendBytes(nil, kind, []byte{n}) }
func u64(kind uint16, n uint64) []byte  { return netlink.AppendUint64(nil, kind, n) }
func blob(kind uint16, s string) []byte { return netlink.AppendString(nil, kind, s) }
func nest(kind uint16, in ...[]byte) []byte {
	return netlink.AppendBytes(nil, kind, slices.Concat(in...))
}
func value(kind uint16, s string) []byte { return nest(kind, blob(unix.NFTA_DATA_VALUE, s)) }
func host(n uint32) string               { return string(binary.NativeEndian.AppendUint32(nil, n)) }
func ex(name string, in ...[]byte) []byte {
	return nest(unix.NFTA_LIST_ELEM, text(unix.NFTA_EXPR_NAME, name), nest(unix.NFTA_EXPR_DATA, in...))
}

// message is one message of a transaction; its number is what it is noted as.
type message struct {
	kind, flags uint16
	attrs       []byte
}

const (
	create = unix.NLM_F_CREATE
	atEnd  = unix.NLM_F_CREATE | unix.NLM_F_APPEND
)

// inTable begins with the name of the table.
func inTable(kind, flags uint16, in ...[]byte) message {
	return message{kind, flags, append(text(1, nftrender.TableName), slices.Concat(in...)...)}
}

func addTable() message { return inTable(unix.NFT_MSG_NEWTABLE, create, u32(unix.NFTA_TABLE_FLAGS, 0)) }

func addChain(name string, in ...[]byte) message {
	return inTable(unix.NFT_MSG_NEWCHAIN, create, text(unix.NFTA_CHAIN_NAME, name), slices.Concat(in...))
}

// hooked are the attributes of a base chain.
func hooked(kind string, hook uint32, priority int32) []byte {
	return slices.Concat(
		nest(unix.NFTA_CHAIN_HOOK, u32(unix.NFTA_HOOK_HOOKNUM, hook), u32(unix.NFTA_HOOK_PRIORITY, uint32(priority))),
		u32(unix.NFTA_CHAIN_POLICY, policyAccept), text(unix.NFTA_CHAIN_TYPE, kind))
}

func deleteChain(name string) message {
	return inTable(unix.NFT_MSG_DELCHAIN, 0, text(unix.NFTA_CHAIN_NAME, name))
}

func addRule(chain string, exprs ...[]byte) message {
	return inTable(unix.NFT_MSG_NEWRULE, atEnd, text(unix.NFTA_RULE_CHAIN, chain), nest(unix.NFTA_RULE_EXPRESSIONS, exprs...))
}

func flushChain(name string) message {
	return inTable(unix.NFT_MSG_DELRULE, 0, text(unix.NFTA_RULE_CHAIN, name))
}

func addSet(name string, flags, keyLen uint32, in ...[]byte) message {
	return inTable(unix.NFT_MSG_NEWSET, create, text(unix.NFTA_SET_NAME, name), u32(unix.NFTA_SET_FLAGS, flags),
		u32(unix.NFTA_SET_KEY_TYPE, 1), u32(unix.NFTA_SET_KEY_LEN, keyLen), u32(unix.NFTA_SET_ID, 1), slices.Concat(in...))
}

func deleteSet(name string) message {
	return inTable(unix.NFT_MSG_DELSET, 0, text(unix.NFTA_SET_NAME, name))
}

func entry(in ...[]byte) []byte { return nest(unix.NFTA_LIST_ELEM, in...) }
func key(s string) []byte       { return value(unix.NFTA_SET_ELEM_KEY, s) }

func elements(kind, flags uint16, set string, list ...[]byte) message {
	return inTable(kind, flags, text(unix.NFTA_SET_ELEM_LIST_SET, set), nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS, list...))
}

func addElements(set string, list ...[]byte) message {
	return elements(unix.NFT_MSG_NEWSETELEM, create, set, list...)
}

func deleteElements(set string, list ...[]byte) message {
	return elements(unix.NFT_MSG_DELSETELEM, 0, set, list...)
}

// to is a verdict as data.
func to(kind uint16, code int32, chain string) []byte {
	in := u32(unix.NFTA_VERDICT_CODE, uint32(code))
	if chain != "" {
		in = append(in, text(unix.NFTA_VERDICT_CHAIN, chain)...)
	}
	return nest(kind, nest(unix.NFTA_DATA_VERDICT, in))
}

// Expressions.

func ends(code int32, chain string) []byte {
	return ex("immediate", u32(unix.NFTA_IMMEDIATE_DREG, unix.NFT_REG_VERDICT), to(unix.NFTA_IMMEDIATE_DATA, code, chain))
}

func loads(register uint32, v string) []byte {
	return ex("immediate", u32(unix.NFTA_IMMEDIATE_DREG, register), value(unix.NFTA_IMMEDIATE_DATA, v))
}

func reads(register, base, offset, size uint32) []byte {
	return ex("payload", u32(unix.NFTA_PAYLOAD_DREG, register), u32(unix.NFTA_PAYLOAD_BASE, base),
		u32(unix.NFTA_PAYLOAD_OFFSET, offset), u32(unix.NFTA_PAYLOAD_LEN, size))
}

func properties(register, key uint32) []byte {
	return ex("meta", u32(unix.NFTA_META_DREG, register), u32(unix.NFTA_META_KEY, key))
}

func compares(register, op uint32, v string) []byte {
	return ex("cmp", u32(unix.NFTA_CMP_SREG, register), u32(unix.NFTA_CMP_OP, op), value(unix.NFTA_CMP_DATA, v))
}

func looksUp(set string, from uint32, in ...[]byte) []byte {
	return ex("lookup", text(unix.NFTA_LOOKUP_SET, set), u32(unix.NFTA_LOOKUP_SREG, from), slices.Concat(in...))
}

func draws(register, modulus, offset uint32) []byte {
	return ex("numgen", u32(unix.NFTA_NG_DREG, register), u32(unix.NFTA_NG_MODULUS, modulus),
		u32(unix.NFTA_NG_TYPE, unix.NFT_NG_RANDOM), u32(unix.NFTA_NG_OFFSET, offset))
}

func translates(family, addr, port uint32) []byte {
	return ex("nat", u32(unix.NFTA_NAT_TYPE, unix.NFT_NAT_DNAT), u32(unix.NFTA_NAT_FAMILY, family),
		u32(unix.NFTA_NAT_REG_ADDR_MIN, addr), u32(unix.NFTA_NAT_REG_PROTO_MIN, port))
}

func rejects() []byte {
	return ex("reject", u32(unix.NFTA_REJECT_TYPE, unix.NFT_REJECT_ICMP_UNREACH), blob(unix.NFTA_REJECT_ICMP_CODE, "\x03"))
}

func remembers(set string, from uint32, ms uint64) []byte {
	return ex("dynset", text(unix.NFTA_DYNSET_SET_NAME, set), u32(unix.NFTA_DYNSET_OP, unix.NFT_DYNSET_OP_UPDATE),
		u32(unix.NFTA_DYNSET_SREG_KEY, from), u64(unix.NFTA_DYNSET_TIMEOUT, ms))
}

// changesMap puts a key and data into a map, or removes the key.
func changesMap(operation uint32, name string, from, data uint32, in ...[]byte) []byte {
	return ex("dynset", text(unix.NFTA_DYNSET_SET_NAME, name), u32(unix.NFTA_DYNSET_OP, operation),
		u32(unix.NFTA_DYNSET_SREG_KEY, from), u32(unix.NFTA_DYNSET_SREG_DATA, data), slices.Concat(in...))
}

// writesDestination replaces IPv4's destination address by a register.
func writesDestination(from uint32, in ...[]byte) []byte {
	return ex("payload", u32(unix.NFTA_PAYLOAD_SREG, from), u32(unix.NFTA_PAYLOAD_BASE, unix.NFT_PAYLOAD_NETWORK_HEADER),
		u32(unix.NFTA_PAYLOAD_OFFSET, 16), u32(unix.NFTA_PAYLOAD_LEN, 4), u32(unix.NFTA_PAYLOAD_CSUM_TYPE, 1),
		u32(unix.NFTA_PAYLOAD_CSUM_OFFSET, 10), u32(unix.NFTA_PAYLOAD_CSUM_FLAGS, 1), slices.Concat(in...))
}

// transaction puts messages together, each with notes: a message is noted with its
// number, and an element in the first list of a message with that number times
// 100 and its own behind it.
func transaction(family uint8, messages ...message) *wire.Transaction {
	t := wire.NewTransaction(family)
	for i, m := range messages {
		if m.kind != unix.NFT_MSG_NEWSETELEM && m.kind != unix.NFT_MSG_DELSETELEM {
			t.Note(i)
			t.Begin(m.kind, m.flags)
			t.Raw(string(m.attrs))
			continue
		}
		t.Begin(m.kind, m.flags)
		for attr := range netlink.Attrs(m.attrs) {
			if attr.Type != unix.NFTA_SET_ELEM_LIST_ELEMENTS {
				t.Raw(string(netlink.AppendBytes(nil, attr.Type, attr.Data)))
				continue
			}
			mark := t.Nest(attr.Type)
			n := 0
			for item := range netlink.Attrs(attr.Data) {
				t.Note(i*100 + n)
				t.Raw(string(netlink.AppendBytes(nil, item.Type, item.Data)))
				n++
			}
			t.Unnest(mark)
		}
	}
	return t
}
