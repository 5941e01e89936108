// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"encoding/binary"
	"math"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables/owned"
	"github.com/sluice-proxy/sluice/dataplane/nftables/rules"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// tablePrefix begins the names of the temporary tables. The port of the socket follows, so that several
// traces can run at the same time.
const tablePrefix = "sluice-trace-"

// At each hook, this table has a chain before and a chain after those of all other tables. At prerouting and output,
// the first chain selects packets of the flow, and two more chains select replies and recognize new connections. The
// other chains only show how far a packet got, and with which addresses.
const (
	first   = "-first"
	replies = "-replies"
	begun   = "-new"
	last    = "-last"

	// repliesPriority is directly after connection tracking.
	repliesPriority = -199
	begunPriority   = repliesPriority + 1
	// lastPriority is directly before the confirmation of connections.
	lastPriority = math.MaxInt32 - 1
)

// packetsPerSecond and packetsBurst are the limits of each selecting rule.
const packetsPerSecond, packetsBurst = 10, 5

// table is the temporary table.
type table struct {
	*owned.Table
	family  service.Family
	replies bool
	// perSecond is the limit of each selecting rule.
	perSecond uint64
	// bases are the chains by name.
	bases map[string]rules.Base
}

// addTable adds the table in one transaction.
func addTable(flow Flow, withReplies bool, perSecond uint64) (_ *table, err error) {
	t := &table{family: service.FamilyOf(flow.To.Addr()), replies: withReplies, perSecond: perSecond, bases: map[string]rules.Base{}}
	t.Table, err = owned.Add(t.family, tablePrefix, "temporary table of sluice trace", func(added *owned.Table, tx *wire.Transaction) {
		for _, c := range t.chains(flow) {
			t.bases[c.Name] = *c.Base
			added.AddChain(tx, c)
		}
	})
	return t, err
}

func (t *table) header() *rules.Header { return &rules.Headers[t.family] }

// chains returns all chains. Those of prerouting and output select packets.
func (t *table) chains(flow Flow) []rules.Chain {
	var all []rules.Chain
	add := func(hook uint32, suffix string, priority int32, selected []rules.Rule) {
		base := &rules.Base{Kind: "filter", Hook: hook, Priority: priority}
		all = append(all, rules.Chain{Name: base.HookName() + suffix, Base: base, Rules: selected})
	}
	for hook := range uint32(unix.NF_INET_NUMHOOKS) {
		var selected []rules.Rule
		begins := hook == unix.NF_INET_PRE_ROUTING || hook == unix.NF_INET_LOCAL_OUT
		if begins {
			selected = []rules.Rule{{Exprs: append(t.original(flow), t.mark()...)}}
		}
		add(hook, first, math.MinInt32, selected)
		if begins && t.replies {
			add(hook, replies, repliesPriority, []rules.Rule{{Exprs: append(t.reply(flow), t.mark()...)}})
			add(hook, begun, begunPriority, []rules.Rule{{Exprs: append(t.original(flow), newConnection()...)}})
		}
		add(hook, last, lastPriority, nil)
	}
	return all
}

// original matches packets from the client.
func (t *table) original(flow Flow) []rules.Expr {
	h := t.header()
	load := func(base uint32, offset, size int) rules.Expr {
		return &rules.Load{To: unix.NFT_REG_1, Base: base, Offset: uint32(offset), Size: uint32(size)}
	}
	exprs := owned.Equal(&rules.Meta{To: unix.NFT_REG_1, Key: unix.NFT_META_L4PROTO}, flow.Protocol.Number())
	exprs = append(exprs, owned.Equal(load(unix.NFT_PAYLOAD_NETWORK_HEADER, h.Saddr, h.AddrBytes), flow.From.Addr().AsSlice()...)...)
	exprs = append(exprs, owned.Equal(load(unix.NFT_PAYLOAD_NETWORK_HEADER, h.Daddr, h.AddrBytes), flow.To.Addr().AsSlice()...)...)
	if flow.From.Port() != 0 {
		exprs = append(exprs, owned.Equal(load(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 0, 2), port(flow.From)...)...)
	}
	return append(exprs, owned.Equal(load(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2), port(flow.To)...)...)
}

// reply matches packets from the server to the client, in connections that the client began. They include ICMP
// errors.
func (t *table) reply(flow Flow) []rules.Expr {
	daddr := t.header().OriginalDaddr
	original := func(key uint32) rules.Expr { return &rules.ConnOriginal{To: unix.NFT_REG_1, Key: key} }
	exprs := owned.Equal(&rules.Conn{To: unix.NFT_REG_1, Key: unix.NFT_CT_DIRECTION}, 1) // IP_CT_DIR_REPLY
	exprs = append(exprs, owned.Equal(&rules.Conn{To: unix.NFT_REG_1, Key: unix.NFT_CT_PROTOCOL}, flow.Protocol.Number())...)
	exprs = append(exprs, owned.Equal(original(daddr-1), flow.From.Addr().AsSlice()...)...) // NFT_CT_SRC_IP, NFT_CT_SRC_IP6
	exprs = append(exprs, owned.Equal(original(daddr), flow.To.Addr().AsSlice()...)...)
	if flow.From.Port() != 0 {
		exprs = append(exprs, owned.Equal(original(unix.NFT_CT_PROTO_SRC), port(flow.From)...)...)
	}
	return append(exprs, owned.Equal(original(unix.NFT_CT_PROTO_DST), port(flow.To)...)...)
}

// newConnection matches packets that begin a connection.
func newConnection() []rules.Expr {
	const state = 1 << 3 // NF_CT_STATE_BIT(IP_CT_NEW)
	return owned.Equal(&rules.Conn{To: unix.NFT_REG_1, Key: unix.NFT_CT_STATE}, binary.NativeEndian.AppendUint32(nil, state)...)
}

func port(of netip.AddrPort) []byte { return []byte{byte(of.Port() >> 8), byte(of.Port())} }

// mark makes the kernel trace a packet, within the limit. No rule of the proxy has these expressions, so
// package rules does not describe them.
func (t *table) mark() []rules.Expr {
	limit := netlink.AppendUint64(nil, unix.NFTA_LIMIT_RATE, t.perSecond)
	limit = netlink.AppendUint64(limit, unix.NFTA_LIMIT_UNIT, 1)
	limit = netlink.AppendUint32(limit, unix.NFTA_LIMIT_BURST, packetsBurst)
	one := netlink.AppendUint32(nil, unix.NFTA_IMMEDIATE_DREG, unix.NFT_REG_1)
	one, data := netlink.Nest(one, unix.NFTA_IMMEDIATE_DATA)
	one = netlink.End(netlink.AppendBytes(one, unix.NFTA_DATA_VALUE, []byte{1}), data)
	return []rules.Expr{
		&rules.Unknown{Name: "limit", Attrs: string(limit)}, &rules.Unknown{Name: "immediate", Attrs: string(one)},
		&rules.SetMeta{From: unix.NFT_REG_1, Key: unix.NFT_META_NFTRACE},
	}
}

// unmark deletes the rules that select packets.
func (t *table) unmark() error {
	tx := wire.NewTransaction(t.header().Protocol)
	tx.Begin(unix.NFT_MSG_DELRULE, 0)
	tx.Text(unix.NFTA_RULE_TABLE, t.Name)
	return t.Commit(tx)
}

// has reports whether a chain is in the table.
func (t *table) has(at place) bool { return at.family == t.header().Protocol && at.table == t.Name }

// marks reports whether the message is about a rule of this table that selected a packet.
func (t *table) marks(e *event) bool {
	return t.has(e.at) && e.kind == kindRule && !strings.HasSuffix(e.at.chain, begun)
}
