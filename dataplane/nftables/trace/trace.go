// SPDX-License-Identifier: Apache-2.0

// Package trace follows real packets of one flow through all tables of nf_tables in a network namespace
// (nftrace): the tables of the proxy, those of other programs, and those of iptables-nft. Rules of
// iptables-legacy, BPF programs and chains before the hook prerouting are invisible to it.
//
// The rules that select packets are in a temporary table that belongs to the socket that adds it. The kernel
// deletes such a table when the socket is closed, regardless of how the process ends. A trace changes nothing else.
package trace

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// Flow selects packets. Port 0 of From selects all ports.
type Flow struct {
	From, To netip.AddrPort
	Protocol service.Protocol
	// Tracked means that connection tracking is active for a reason that nf_tables does not show.
	Tracked bool
}

// Limits of one trace.
const (
	// packetsMax and messagesMax end a trace early. A packet causes a few messages for each chain.
	packetsMax  = 100
	messagesMax = 20_000
	// settleTime is how long to wait for packets in progress after the selection ended.
	settleTime = 20 * time.Millisecond
	// listTime limits the listing of chains and rules.
	listTime = 10 * time.Second
)

// groupTrace is NFNLGRP_NFTRACE.
const groupTrace = 9

// Record is the result of a trace.
type Record struct {
	Packets []Packet
	// Duration is the time for which packets were selected.
	Duration time.Duration
	// Lost is set if the kernel dropped messages because there were too many. Full is set if a limit ended the trace.
	Lost, Full bool
	// Replies is set if replies were selected, too. Selecting them needs connection tracking, which a trace does not
	// activate.
	Replies bool
}

// Run traces a flow in the network namespace of the calling thread, until the context ends, which is not an
// error. It calls ready when the selection begins. It needs CAP_NET_ADMIN and Linux 5.12.
func Run(ctx context.Context, flow Flow, ready func()) (*Record, error) {
	return run(ctx, flow, packetsPerSecond, ready)
}

// run is Run with the given limit of selected packets per second and rule.
func run(ctx context.Context, flow Flow, perSecond uint64, ready func()) (_ *Record, err error) {
	listener, err := netlink.Listen(unix.NETLINK_NETFILTER, nil, groupTrace)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, listener.Close()) }()
	socket, err := wire.Open()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, socket.Close()) }()
	listed, stop := context.WithTimeout(context.WithoutCancel(ctx), listTime)
	chains, err := listChains(listed, socket)
	stop()
	if err != nil {
		return nil, err
	}
	own, err := addTable(flow, flow.Tracked || chains.translate(), perSecond)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	ready()
	c := capture{own: own}
	err = errors.Join(c.run(ctx, listener), own.Close())
	if err != nil {
		return nil, err
	}
	return c.record(context.WithoutCancel(ctx), socket, c.ended.Sub(began))
}

// capture collects the messages of the kernel. It interprets them only at the end, so that the buffer of the
// listener does not overflow.
type capture struct {
	own        *table
	events     []event
	marked     int
	lost, full bool
	ended      time.Time
}

// run collects messages until the context ends or a limit is reached, and then for settleTime.
func (c *capture) run(ctx context.Context, listener *netlink.Listener) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	each := func(m netlink.Message) {
		if c.add(m) {
			stop()
		}
	}
	lost := func() { c.lost = true }
	if err := listener.Run(ctx, each, lost); ctx.Err() == nil {
		return err
	}
	c.ended = time.Now()
	if err := c.own.unmark(); err != nil {
		return err
	}
	time.Sleep(settleTime)
	return listener.Pending(each, lost)
}

// add keeps a message, and reports whether a limit is reached.
func (c *capture) add(m netlink.Message) (full bool) {
	e, ok := parse(m)
	if !ok {
		return false
	}
	if len(c.events) >= messagesMax {
		return true
	}
	c.events = append(c.events, e)
	if c.own.marks(&e) {
		c.marked++
	}
	full = c.marked >= packetsMax || len(c.events) >= messagesMax
	c.full = c.full || full
	return full
}

// record assembles packets from the messages, with the current rules of the kernel.
func (c *capture) record(ctx context.Context, socket *wire.Socket, lasted time.Duration) (*Record, error) {
	ctx, stop := context.WithTimeout(ctx, listTime)
	defer stop()
	chains, err := listChains(ctx, socket)
	if err != nil {
		return nil, err
	}
	a := assembly{own: c.own, chains: chains, rules: ruleLists{socket: socket, family: c.own.family}}
	for i := range c.events {
		a.add(ctx, &c.events[i])
	}
	return &Record{Packets: a.kept(), Duration: lasted, Lost: c.lost, Full: c.full, Replies: c.own.replies}, nil
}
