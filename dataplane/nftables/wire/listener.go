package wire

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Listener hears of changes that others make to the tables of one family, in the
// network namespace of the thread that opened it.
type Listener struct {
	file *os.File
	raw  interface {
		Read(func(fd uintptr) bool) error
	}
	buf []byte
}

// groupTables is NFNLGRP_NFTABLES.
const groupTables = 7

// Listen starts to listen to the tables of a family, leaving out the changes of
// the socket with the given port: a filter in the kernel drops those, so that
// they cannot crowd out the others.
func Listen(family uint8, ownPort uint32) (*Listener, error) {
	return listen(func(fd int) error { return attach(fd, family, ownPort) })
}

// listen starts to listen; filtered, if there is one, gives the socket its filter.
func listen(filtered func(fd int) error) (*Listener, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	enlarge(fd, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, receiveBytes)
	if filtered != nil {
		err = filtered(fd)
	}
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1 << (groupTables - 1)})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen to changes of nf_tables: %w", err), unix.Close(fd))
	}
	file := os.NewFile(uintptr(fd), "nf_tables notifications")
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &Listener{file: file, raw: raw, buf: make([]byte, datagramBytes)}, nil
}

// attach gives the socket its filter. Where the kernel grants less memory than the whole
// one needs (net.core.optmem_max), the socket hears all families, and who reads sorts.
// Hearing too much is the lesser evil: while nothing is heard, what others remove stays
// away until the next audit.
func attach(fd int, family uint8, ownPort uint32) error {
	err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, foreign(family, ownPort, messagesMax))
	if errors.Is(err, unix.ENOMEM) {
		err = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, foreign(family, ownPort, 0))
	}
	return err
}

// messagesMax is how many messages of a datagram the filter looks at; a longer one is
// accepted. The kernel fills a datagram up to NLMSG_GOODSIZE, which is 67 of the shortest
// messages on a machine with pages of 4 KiB.
//
// The kernel charges the filter to net.core.optmem_max as it translates it, with nine
// instructions of 8 bytes for each load from the datagram. Linux before 6.7 grants 20 KiB,
// of which this takes 17.
const messagesMax = 70

// foreign accepts a datagram that was not caused by the port and has a message
// about the family, or ends a transaction (see Generation). All messages of a datagram have the same cause, but one
// transaction may change the tables of several families, and the kernel puts what
// it has to say about it into the same datagrams (nft_commit_notify).
func foreign(family uint8, ownPort uint32, messages int) *unix.SockFprog {
	const (
		kindAt = 4
		portAt = 12
		accept = 0xffffffff
	)
	// The filter loads words in network byte order; the port and the kind are in
	// the host's.
	port := binary.BigEndian.Uint32(binary.NativeEndian.AppendUint32(nil, ownPort))
	generation := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWGEN))
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: portAt},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: port},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: kindAt},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: uint32(generation)},
		{Code: unix.BPF_RET | unix.BPF_K, K: accept},
	}
	for range messages {
		program = append(program, lookAtMessage(family, accept)...)
	}
	program = append(program, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: accept})
	return &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
}

// lookAtMessage accepts a datagram whose message at offset X is about the family,
// and otherwise moves X to the next message. Behind the last one, the first
// instruction loads from outside the datagram, which drops it.
func lookAtMessage(family uint8, accept uint32) []unix.SockFilter {
	const familyAt = headerBytes
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_IND, K: familyAt},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: uint32(family)},
		{Code: unix.BPF_RET | unix.BPF_K, K: accept},
	}
	// The length is a word in the host's byte order, of which two bytes matter.
	if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 {
		return append(program, []unix.SockFilter{
			{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_IND, K: 2},
			{Code: unix.BPF_ALU | unix.BPF_ADD | unix.BPF_K, K: alignment - 1},
			{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: ^uint32(alignment - 1)},
			{Code: unix.BPF_ALU | unix.BPF_ADD | unix.BPF_X},
			{Code: unix.BPF_MISC | unix.BPF_TAX},
		}...)
	}
	// Loads are most of the program's size, so there is one for both bytes, low byte
	// first. X moves on by that, aligned, and then by the high byte.
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

// Generation gives the process behind the transaction that a message ends, by its
// number (as the kernel counts, whatever the PID namespace) and its name; false for
// every other message. The kernel sends it behind all messages of the transaction,
// in a datagram of its own.
func Generation(m Message) (pid int, command string, ok bool) {
	if m.Kind != unix.NFT_MSG_NEWGEN {
		return 0, "", false
	}
	pid = int(Find(m.Attrs, unix.NFTA_GEN_PROC_PID).Uint32())
	return pid, Find(m.Attrs, unix.NFTA_GEN_PROC_NAME).Text(), true
}

// Run calls each for every message, and lost when messages were lost because
// too many came, until the context ends, whose cause it returns. Messages are
// valid during the call.
func (l *Listener) Run(ctx context.Context, each func(Message), lost func()) error {
	stop := context.AfterFunc(ctx, func() {
		_ = l.file.SetReadDeadline(time.Unix(1, 0)) // fails when closed, which ends Run too
	})
	defer stop()
	for {
		n := 0
		var received error
		err := l.raw.Read(func(fd uintptr) bool {
			n, _, received = unix.Recvfrom(int(fd), l.buf, 0)
			return !errors.Is(received, unix.EAGAIN)
		})
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return fmt.Errorf("listen to changes of nf_tables: %w", err)
		case errors.Is(received, unix.ENOBUFS):
			lost()
		case errors.Is(received, unix.EINTR):
		case received != nil:
			return fmt.Errorf("listen to changes of nf_tables: %w", received)
		default:
			for h := range headers(l.buf[:n]) {
				if m, ok := h.message(); ok {
					each(m)
				}
			}
		}
	}
}

// Pending calls each for every message that has come by now, and lost when messages
// were lost; it does not wait for more.
func (l *Listener) Pending(each func(Message), lost func()) error {
	for {
		n := 0
		var received error
		err := l.raw.Read(func(fd uintptr) bool {
			n, _, received = unix.Recvfrom(int(fd), l.buf, unix.MSG_DONTWAIT)
			return true
		})
		switch {
		case err != nil:
			return fmt.Errorf("hear of changes of nf_tables: %w", err)
		case errors.Is(received, unix.EAGAIN):
			return nil
		case errors.Is(received, unix.ENOBUFS):
			lost()
		case errors.Is(received, unix.EINTR):
		case received != nil:
			return fmt.Errorf("hear of changes of nf_tables: %w", received)
		default:
			for h := range headers(l.buf[:n]) {
				if m, ok := h.message(); ok {
					each(m)
				}
			}
		}
	}
}

// Close ends listening.
func (l *Listener) Close() error { return l.file.Close() }
