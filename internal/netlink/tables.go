// SPDX-License-Identifier: Apache-2.0

package netlink

import (
	"context"
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"
)

// groupTables is NFNLGRP_NFTABLES.
const groupTables = 7

// TableListener receives the kernel's announcements about nf_tables.
type TableListener struct{ listener *Listener }

// ListenTables listens to changes in the tables of one family, except for those that the
// socket with the given port makes. A filter in the kernel drops these, so that they
// cannot crowd out the others.
func ListenTables(family uint8, ownPort uint32) (*TableListener, error) {
	return listenTables(func(fd int) error { return attach(fd, family, ownPort) })
}

// ListenAllTables listens to all changes of all tables. It is meant for a short time and
// has no filter: the one of ListenTables takes more memory than Linux 6.1 grants a
// socket by default (net.core.optmem_max).
func ListenAllTables() (*TableListener, error) { return listenTables(nil) }

func listenTables(filter func(fd int) error) (*TableListener, error) {
	listener, err := Listen(unix.NETLINK_NETFILTER, filter, groupTables)
	if err != nil {
		return nil, err
	}
	return &TableListener{listener}, nil
}

// Run works like Listener.Run.
func (l *TableListener) Run(ctx context.Context, each func(Netfilter), lost func()) error {
	return l.listener.Run(ctx, tableMessages(each), lost)
}

// Pending works like Listener.Pending.
func (l *TableListener) Pending(each func(Netfilter), lost func()) error {
	return l.listener.Pending(tableMessages(each), lost)
}

// Close ends listening.
func (l *TableListener) Close() error { return l.listener.Close() }

func tableMessages(each func(Netfilter)) func(Message) {
	return func(m Message) {
		if t, ok := m.Netfilter(unix.NFNL_SUBSYS_NFTABLES); ok {
			each(t)
		}
	}
}

// Generation returns the process behind the transaction that an announcement ends: its
// number in the initial PID namespace, and its name. It returns
// false for other announcements. The kernel sends it after all announcements of the
// transaction, in a separate datagram.
func Generation(m Netfilter) (pid int, command string, ok bool) {
	if m.Kind != unix.NFT_MSG_NEWGEN {
		return 0, "", false
	}
	pid = int(Find(m.Attrs, unix.NFTA_GEN_PROC_PID).Uint32())
	return pid, Find(m.Attrs, unix.NFTA_GEN_PROC_NAME).Text(), true
}

// attach gives the socket its filter. If the kernel grants too little memory for the whole filter
// (net.core.optmem_max), the socket receives the changes of all families and the reader sorts them. The socket must not
// receive Sluice's own changes: they could crowd out the announcement that another program removed an object, which
// would be missing until the next audit.
func attach(fd int, family uint8, ownPort uint32) error {
	err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, foreign(family, ownPort, messagesMax))
	if errors.Is(err, unix.ENOMEM) {
		err = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, foreign(family, ownPort, 0))
	}
	return err
}

// messagesMax is how many messages of a datagram the filter examines; it accepts a
// longer datagram. The kernel fills a datagram up to NLMSG_GOODSIZE, which is 67 of the
// shortest messages on a machine with pages of 4 KiB.
//
// The kernel charges the filter to net.core.optmem_max when it translates it, with nine
// instructions of 8 bytes for each load from the datagram. Linux before 6.7 grants 20
// KiB, of which this takes 17.
const messagesMax = 70

// foreign returns a filter that accepts a datagram that was not caused by the port and has a message about the family
// or ends a transaction (see Generation). All messages of a datagram have the same cause. But one transaction may
// change the tables of several families, and the kernel puts its announcements into the same datagrams
// (nft_commit_notify).
func foreign(family uint8, ownPort uint32, messages int) *unix.SockFprog {
	const accept = 0xffffffff
	// The filter loads words in network byte order. The port and the kind are in the host's byte order.
	port := binary.BigEndian.Uint32(binary.NativeEndian.AppendUint32(nil, ownPort))
	generation := binary.BigEndian.Uint16(
		binary.NativeEndian.AppendUint16(nil, unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWGEN))
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: portAt},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: port},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: kindAt},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: uint32(generation)},
		{Code: unix.BPF_RET | unix.BPF_K, K: accept},
	}
	for range messages {
		program = append(program, examineMessage(family, accept)...)
	}
	program = append(program, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: accept})
	return &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
}

// examineMessage returns instructions that accept a datagram whose message at offset X is about the family, and
// otherwise move X to the next message. After the last message, the first instruction loads from outside the datagram,
// which drops the datagram.
func examineMessage(family uint8, accept uint32) []unix.SockFilter {
	const familyAt = HeaderBytes
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_IND, K: familyAt},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: uint32(family)},
		{Code: unix.BPF_RET | unix.BPF_K, K: accept},
	}
	// The length is a word in the host's byte order. Two bytes of it matter.
	if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 {
		return append(program, []unix.SockFilter{
			{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_IND, K: 2},
			{Code: unix.BPF_ALU | unix.BPF_ADD | unix.BPF_K, K: alignment - 1},
			{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: ^uint32(alignment - 1)},
			{Code: unix.BPF_ALU | unix.BPF_ADD | unix.BPF_X},
			{Code: unix.BPF_MISC | unix.BPF_TAX},
		}...)
	}
	// Loads are most of the program's size, so one load serves both bytes, low byte
	// first. X moves on by that byte, aligned, and then by the high byte.
	return append(program, []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_IND},
		{Code: unix.BPF_ST},
		{Code: unix.BPF_ALU | unix.BPF_RSH | unix.BPF_K, K: 8},
		{Code: unix.BPF_ALU | unix.BPF_ADD | unix.BPF_K, K: alignment - 1},
		{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: ^uint32(alignment - 1)},
		{Code: unix.BPF_ALU | unix.BPF_ADD | unix.BPF_X},
		{Code: unix.BPF_MISC | unix.BPF_TAX},
		{Code: unix.BPF_LD | unix.BPF_MEM},
		{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: 0xff},
		{Code: unix.BPF_ALU | unix.BPF_LSH | unix.BPF_K, K: 8},
		{Code: unix.BPF_ALU | unix.BPF_ADD | unix.BPF_X},
		{Code: unix.BPF_MISC | unix.BPF_TAX},
	}...)
}
