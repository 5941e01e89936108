// SPDX-License-Identifier: Apache-2.0

// Package hooks keeps open connections translated while all rules are missing. The kernel unregisters its hooks for NAT
// and for connection tracking with the last rule that needs them. After an "nft flush ruleset" by another process, the
// packets of all open connections would therefore pass untranslated, and both ends would reset them. Such a flush does
// not include a table that belongs to this process (package owned), so that table keeps the hooks.
package hooks

import (
	"context"
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables/owned"
	"github.com/sluice-proxy/sluice/dataplane/nftables/rules"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/service"
)

const (
	tablePrefix  = "sluice-hooks-"
	tableComment = "keeps open connections of sluice while rules are flushed; decides nothing"

	// priority puts the chain behind those of other programs.
	priority = 1000
)

// Holder has a table in each family whose hooks it keeps. The zero value keeps none. Only one goroutine may use it.
type Holder struct {
	tables service.PerFamily[*owned.Table]
}

// Keep adds the tables of families that are missing, in the network namespace of the calling thread. It needs
// CAP_NET_ADMIN and Linux 5.12 with nf_tables.
func (h *Holder) Keep(ctx context.Context, families []service.Family) (err error) {
	for _, family := range families {
		t := h.tables[family]
		if t != nil && t.Check(ctx) == nil {
			continue
		}
		if t != nil {
			_ = t.Close() // a new table replaces it
		}
		added, failed := owned.Add(family, tablePrefix, tableComment, fill)
		h.tables[family], err = added, errors.Join(err, failed)
	}
	return err
}

// fill adds the minimum that keeps the hooks, so that a packet pays next to nothing. A single chain of type nat keeps
// all hooks for NAT; the kernel calls it for packets that begin a connection to the node itself. A rule that reads the
// state of a connection keeps the hooks for tracking, even in a chain that no packet reaches.
func fill(t *owned.Table, tx *wire.Transaction) {
	t.AddChain(tx, rules.Chain{Name: "nat", Base: &rules.Base{Kind: "nat", Hook: unix.NF_INET_LOCAL_IN, Priority: priority}})
	host := func(n uint32) string { return string(binary.NativeEndian.AppendUint32(nil, n)) }
	state := rules.Rule{Exprs: []rules.Expr{
		&rules.Conn{To: unix.NFT_REG_1, Key: unix.NFT_CT_STATUS},
		&rules.Bitwise{To: unix.NFT_REG_1, From: unix.NFT_REG_1, Mask: host(rules.StatusDNAT), Flip: host(0)},
		&rules.Compare{From: unix.NFT_REG_1, Op: unix.NFT_CMP_NEQ, Value: host(0)},
	}}
	t.AddChain(tx, rules.Chain{Name: "tracking", Rules: []rules.Rule{state}})
}

// Close removes the tables. The kernel removes its hooks if no other rule needs them.
func (h *Holder) Close() (err error) {
	for family, t := range h.tables {
		if t != nil {
			err = errors.Join(err, t.Close())
			h.tables[family] = nil
		}
	}
	return err
}
