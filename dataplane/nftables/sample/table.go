// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables/owned"
	"github.com/sluice-proxy/sluice/dataplane/nftables/rules"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

const (
	tablePrefix  = "sluice-flows-"
	tableComment = "temporary table of the flow log of sluice"

	// setFrontends has addresses with protocol and port, setNodePorts only protocols with ports.
	setFrontends, setNodePorts = "frontends", "node-ports"

	// priority is after connection tracking and before all translation.
	priority = -150
)

// addTable adds the table of a family.
func addTable(family service.Family, group uint16) (*owned.Table, error) {
	return owned.Add(family, tablePrefix, tableComment, func(t *owned.Table, tx *wire.Transaction) {
		addr := uint32(typeIPv4)
		if family == service.IPv6 {
			addr = typeIPv6
		}
		const port = typeProtocol<<typeBits | typePort
		addSet(t, tx, setFrontends, 1, addr<<(2*typeBits)|port, t.AddrBytes+8)
		addSet(t, tx, setNodePorts, 2, port, 8)
		for _, hook := range []uint32{unix.NF_INET_PRE_ROUTING, unix.NF_INET_LOCAL_OUT} {
			base := &rules.Base{Kind: "filter", Hook: hook, Priority: priority}
			t.AddChain(tx, rules.Chain{Name: base.HookName(), Base: base, Rules: []rules.Rule{
				{Exprs: append(toFrontend(t.Header), log(group)...)}, {Exprs: append(toNodePort(), log(group)...)},
			}})
		}
	})
}

// nft's numbers for types, with which it lists the sets; a concatenation has typeBits bits for each.
const (
	typeIPv4, typeIPv6, typeProtocol, typePort = 7, 8, 12, 13
	typeBits                                   = 6
)

func addSet(t *owned.Table, tx *wire.Transaction, name string, id, kind uint32, keyBytes int) {
	tx.Begin(unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE)
	tx.Text(unix.NFTA_SET_TABLE, t.Name)
	tx.Text(unix.NFTA_SET_NAME, name)
	tx.Uint32(unix.NFTA_SET_ID, id)
	tx.Uint32(unix.NFTA_SET_KEY_TYPE, kind)
	tx.Uint32(unix.NFTA_SET_KEY_LEN, uint32(keyBytes))
}

// begins matches packets that begin connections. Later packets of an unanswered connection also have the state new, but
// their connection is confirmed, because its first packet passed all rules.
func begins() []rules.Expr {
	const newBit = 1 << 3 // NF_CT_STATE_BIT(IP_CT_NEW)
	exprs := owned.Equal(&rules.Conn{To: rules.Register(0), Key: unix.NFT_CT_STATE}, host(newBit)...)
	return append(exprs, &rules.Conn{To: rules.Register(0), Key: unix.NFT_CT_STATUS},
		&rules.Bitwise{To: rules.Register(0), From: rules.Register(0), Mask: string(host(rules.StatusConfirmed)), Flip: string(host(0))},
		&rules.Compare{From: rules.Register(0), Op: unix.NFT_CMP_EQ, Value: string(host(0))})
}

func host(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

// protocolAndPort loads the protocol and the port, starting at a word of the registers.
func protocolAndPort(word int) []rules.Expr {
	return []rules.Expr{
		&rules.Meta{To: rules.Register(word), Key: unix.NFT_META_L4PROTO},
		&rules.Load{To: rules.Register(word + 1), Base: unix.NFT_PAYLOAD_TRANSPORT_HEADER, Offset: 2, Size: 2},
	}
}

func toFrontend(h *rules.Header) []rules.Expr {
	exprs := append(begins(), &rules.Load{To: rules.Register(0), Base: unix.NFT_PAYLOAD_NETWORK_HEADER, Offset: uint32(h.Daddr), Size: uint32(h.AddrBytes)})
	exprs = append(exprs, protocolAndPort(h.AddrBytes/4)...)
	return append(exprs, &rules.Member{Set: setFrontends, From: rules.Register(0)})
}

func toNodePort() []rules.Expr {
	exprs := append(append(begins(), protocolAndPort(0)...), &rules.Member{Set: setNodePorts, From: rules.Register(0)})
	return append(exprs, owned.Equal(&rules.Fib{To: rules.Register(0), Result: unix.NFT_FIB_RESULT_ADDRTYPE, Flags: unix.NFTA_FIB_F_DADDR}, host(unix.RTN_LOCAL)...)...)
}

// log sends the packet to the group, within the limit. No rule of the proxy has these expressions, so package rules
// does not describe them.
func log(group uint16) []rules.Expr {
	limit := netlink.AppendUint64(nil, unix.NFTA_LIMIT_RATE, PerSecond)
	limit = netlink.AppendUint64(limit, unix.NFTA_LIMIT_UNIT, 1)
	limit = netlink.AppendUint32(limit, unix.NFTA_LIMIT_BURST, burst)
	to := netlink.AppendUint16(nil, unix.NFTA_LOG_GROUP, group)
	to = netlink.AppendUint32(to, unix.NFTA_LOG_SNAPLEN, headerBytes)
	return []rules.Expr{&rules.Unknown{Name: "limit", Attrs: string(limit)}, &rules.Unknown{Name: "log", Attrs: string(to)}}
}

// Set adds frontends of a family to the sampled ones, and removes others. Frontends without an address are node ports.
// After an error, nothing has changed.
func (s *Sampler) Set(family service.Family, add, remove []service.Frontend) error {
	t := s.tables[family]
	tx := wire.NewTransaction(t.Protocol)
	for _, f := range remove {
		element(t, tx, unix.NFT_MSG_DELSETELEM, 0, f)
	}
	for _, f := range add {
		element(t, tx, unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, f)
	}
	return t.Commit(tx)
}

func element(t *owned.Table, tx *wire.Transaction, kind, flags uint16, f service.Frontend) {
	set, key := setNodePorts, []byte(nil)
	if f.Addr.IsValid() {
		set, key = setFrontends, f.Addr.AsSlice()
	}
	key = append(key, f.Protocol.Number(), 0, 0, 0)
	key = append(binary.BigEndian.AppendUint16(key, f.Port), 0, 0)
	tx.Begin(kind, flags)
	tx.Text(unix.NFTA_SET_ELEM_LIST_TABLE, t.Name)
	tx.Text(unix.NFTA_SET_ELEM_LIST_SET, set)
	list := tx.Nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	one := tx.Nest(unix.NFTA_LIST_ELEM)
	tx.Add(func(b []byte) []byte {
		b, mark := netlink.Nest(b, unix.NFTA_SET_ELEM_KEY)
		return netlink.End(netlink.AppendBytes(b, unix.NFTA_DATA_VALUE, key), mark)
	})
	tx.Unnest(one)
	tx.Unnest(list)
}
