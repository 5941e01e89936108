// SPDX-License-Identifier: Apache-2.0

// Package owned adds tables that belong to a socket (NFT_TABLE_F_OWNER, Linux 5.12): the kernel deletes such a table
// when the socket is closed, regardless of how the process ends.
package owned

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables/rules"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// The attributes and the flag of a table that belongs to a socket; package unix does not name them.
const (
	tableUserData = 6 // NFTA_TABLE_USERDATA
	tableOwned    = 2 // NFT_TABLE_F_OWNER
)

// Table is a temporary table of one family. Only one goroutine at a time may use it.
type Table struct {
	*rules.Header
	Name   string
	socket *wire.Socket
}

// Add adds a table, filled by fill, in one transaction, in the network namespace of the calling thread. The port of the
// socket completes the name, so that each process has a different table.
func Add(family service.Family, prefix, comment string, fill func(*Table, *wire.Transaction)) (*Table, error) {
	socket, err := wire.Open()
	if err != nil {
		return nil, err
	}
	t := &Table{Header: &rules.Headers[family], Name: fmt.Sprint(prefix, socket.Port()), socket: socket}
	tx := wire.NewTransaction(t.Protocol)
	tx.Begin(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	tx.Text(unix.NFTA_TABLE_NAME, t.Name)
	tx.Uint32(unix.NFTA_TABLE_FLAGS, tableOwned)
	tx.Add(func(b []byte) []byte { return rules.AppendComment(b, tableUserData, comment) })
	fill(t, tx)
	err = t.Commit(tx)
	if r, ok := errors.AsType[*wire.Rejection](err); ok && r.Kind == unix.NFT_MSG_NEWTABLE {
		err = fmt.Errorf("the kernel does not delete a table with its process (requires Linux 5.12): %w", err)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("add a temporary table: %w", err), socket.Close())
	}
	return t, nil
}

// AddChain adds a chain with its rules.
func (t *Table) AddChain(tx *wire.Transaction, c rules.Chain) {
	base, list := rules.Parts(c.Encode())
	tx.Begin(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE)
	tx.Text(unix.NFTA_CHAIN_TABLE, t.Name)
	tx.Text(unix.NFTA_CHAIN_NAME, c.Name)
	tx.Raw(string(base))
	for _, r := range list {
		tx.Begin(unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_APPEND)
		tx.Text(unix.NFTA_RULE_TABLE, t.Name)
		tx.Text(unix.NFTA_RULE_CHAIN, c.Name)
		tx.Raw(string(r))
	}
}

// Equal matches packets whose value is equal. load loads it into the first register.
func Equal(load rules.Expr, value ...byte) []rules.Expr {
	return []rules.Expr{load, &rules.Compare{From: rules.Register(0), Op: unix.NFT_CMP_EQ, Value: string(value)}}
}

// Commit carries a transaction out. It returns the first rejection.
func (t *Table) Commit(tx *wire.Transaction) error {
	rejections, err := t.socket.Commit(tx)
	if err == nil && len(rejections) > 0 {
		err = rejections[0]
	}
	return err
}

// Check returns an error if the kernel does not have the table.
func (t *Table) Check(ctx context.Context) error {
	request := netlink.AppendText(nil, unix.NFTA_TABLE_NAME, t.Name)
	return t.socket.Ask(ctx, unix.NFT_MSG_GETTABLE, t.Protocol, false, request, func(wire.Message) {})
}

// Close makes the kernel delete the table.
func (t *Table) Close() error { return t.socket.Close() }
