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
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	enlarge(fd, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, receiveBytes)
	if err = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, foreign(family, ownPort)); err == nil {
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

// foreign accepts a datagram whose first message is about the family and was not
// caused by the port. All messages of a datagram have the same cause.
func foreign(family uint8, ownPort uint32) *unix.SockFprog {
	const (
		portAt, familyAt = 12, 16
		accept           = 0xffffffff
	)
	// The filter loads words in network byte order; the port is in the host's.
	swapped := binary.BigEndian.Uint32(binary.NativeEndian.AppendUint32(nil, ownPort))
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: familyAt},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 3, K: uint32(family)},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: portAt},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 1, K: swapped},
		{Code: unix.BPF_RET | unix.BPF_K, K: accept},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
	}
	return &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
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

// Close ends listening.
func (l *Listener) Close() error { return l.file.Close() }
