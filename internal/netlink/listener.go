// SPDX-License-Identifier: Apache-2.0

package netlink

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Listener receives what the kernel announces to multicast groups in the network
// namespace of the thread that opened it.
type Listener struct {
	file *os.File
	raw  syscall.RawConn
	buf  []byte
}

// listenBytes is the requested size of the receive buffer. Messages beyond it are lost, which Run and Pending report.
const listenBytes = 16 << 20

// Listen begins to listen to groups (RTNLGRP_…, NFNLGRP_…, up to 32) of a protocol. filter, if
// not nil, attaches a filter to the socket before the first announcement can arrive.
func Listen(protocol int, filter func(fd int) error, groups ...int) (*Listener, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	enlarge(fd, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, listenBytes)
	if filter != nil {
		err = filter(fd)
	}
	address := &unix.SockaddrNetlink{Family: unix.AF_NETLINK}
	for _, g := range groups {
		address.Groups |= 1 << (g - 1)
	}
	if err == nil {
		err = unix.Bind(fd, address)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen to the kernel's announcements: %w", err), unix.Close(fd))
	}
	file := os.NewFile(uintptr(fd), "netlink announcements")
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &Listener{file: file, raw: raw, buf: make([]byte, datagramBytes)}, nil
}

// Run calls each for every message, and lost when messages were lost because too many
// came, until the context ends. It returns the context's cause. Messages are valid
// during the call. After Run, the listener can be read again.
func (l *Listener) Run(ctx context.Context, each func(Message), lost func()) error {
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = l.file.SetReadDeadline(time.Unix(1, 0)) // fails when closed, which ends Run too
		close(woken)
	})
	defer func() {
		if !stop() {
			<-woken
			_ = l.file.SetReadDeadline(time.Time{}) // for a later call
		}
	}()
	for {
		err := l.receive(true, each, lost)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// Pending calls each for every message that has come by now, and lost if messages were
// lost. It does not wait for more.
func (l *Listener) Pending(each func(Message), lost func()) error {
	for {
		err := l.receive(false, each, lost)
		if errors.Is(err, unix.EAGAIN) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// receive handles one datagram. It waits for it, or returns EAGAIN if none is ready.
func (l *Listener) receive(wait bool, each func(Message), lost func()) error {
	n := 0
	var received error
	err := l.raw.Read(func(fd uintptr) bool {
		n, _, received = unix.Recvfrom(int(fd), l.buf, unix.MSG_DONTWAIT)
		return !wait || !errors.Is(received, unix.EAGAIN)
	})
	switch {
	case err == nil && errors.Is(received, unix.ENOBUFS):
		lost()
	case err == nil && errors.Is(received, unix.EINTR):
	case err != nil || received != nil:
		return fmt.Errorf("listen to the kernel's announcements: %w", errors.Join(err, received))
	default:
		for m := range Messages(l.buf[:n]) {
			each(m)
		}
	}
	return nil
}

// Send sends a request. Its answer is among the messages of Run and Pending.
func (l *Listener) Send(request []byte) (err error) {
	failed := l.raw.Control(func(fd uintptr) {
		err = unix.Sendto(int(fd), request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	})
	return errors.Join(failed, err)
}

// Close ends listening.
func (l *Listener) Close() error { return l.file.Close() }
