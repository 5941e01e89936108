// SPDX-License-Identifier: Apache-2.0

package netlink

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Config says what kind of socket to open.
type Config struct {
	// Protocol is NETLINK_NETFILTER or another one.
	Protocol int
	// SendBytes and ReceiveBytes are the requested sizes of the kernel's buffers. The kernel doubles both. 0 keeps the
	// default. A process that is not privileged outside of its user namespace gets at most net.core.wmem_max and rmem_max.
	SendBytes, ReceiveBytes int
}

// Socket is a connection to the kernel in the network namespace of the thread that opened it. It stays in that
// namespace, regardless of which thread uses it. Use it from one goroutine at a time.
//
// The kernel executes a request within the call that sends it, so its answers are ready when the call returns. Methods
// wait for the kernel's locks only.
type Socket struct {
	fd     int
	port   uint32
	kernel unix.SockaddrNetlink
	// room is the size of the largest buffer that can be sent.
	room int
	// seq is the last sequence number used. The numbers go on from one exchange to the
	// next, so that a late answer is not taken for one to a later request.
	seq uint32
	buf []byte
	// unread is set while an unread reply may be left.
	unread bool
}

const (
	// sendReserve is what the kernel keeps of the send buffer (netlink_sendmsg).
	sendReserve = 32
	// answerBytes is more than one answer takes in the receive buffer. The kernel
	// counts its own bookkeeping, 768 bytes in Linux 6.
	answerBytes = 2048
	// datagramBytes holds the largest datagram of a dump. It grows with the buffer of
	// the reader, up to 32 KiB.
	datagramBytes = 64 << 10
)

// Inside runs a function on a thread in a network namespace; nil means the namespace of the process.
type Inside func(func() error) error

// Do runs a function in the namespace.
func (in Inside) Do(f func() error) error {
	if in == nil {
		return f()
	}
	return in(f)
}

// Open opens a socket in the network namespace of the calling thread.
func Open(config Config) (*Socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, config.Protocol)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	s := &Socket{
		fd: fd, kernel: unix.SockaddrNetlink{Family: unix.AF_NETLINK}, buf: make([]byte, datagramBytes),
	}
	if err := s.prepare(config); err != nil {
		return nil, errors.Join(fmt.Errorf("prepare a netlink socket: %w", err), unix.Close(fd))
	}
	return s, nil
}

func (s *Socket) prepare(config Config) error {
	if err := unix.Bind(s.fd, &s.kernel); err != nil {
		return err
	}
	name, err := unix.Getsockname(s.fd)
	if err != nil {
		return err
	}
	if at, ok := name.(*unix.SockaddrNetlink); ok {
		s.port = at.Pid
	}
	// Both are optional. Without them, answers are longer and say less.
	_ = unix.SetsockoptInt(s.fd, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1)
	_ = unix.SetsockoptInt(s.fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1)
	enlarge(s.fd, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, config.SendBytes)
	enlarge(s.fd, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, config.ReceiveBytes)
	got, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
	s.room = got - sendReserve
	return err
}

// enlarge sets the size of a buffer as far as the kernel allows.
func enlarge(fd, force, modest, size int) {
	if size > 0 && unix.SetsockoptInt(fd, unix.SOL_SOCKET, force, size) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, modest, size) // the default stays
	}
}

// Port identifies the socket among those of the namespace. The kernel announces the
// changes that the socket makes with this number.
func (s *Socket) Port() uint32 { return s.port }

// Room returns the number of bytes that one send can have.
func (s *Socket) Room() int { return s.room }

// Answers returns how many answers are sure to fit into the receive buffer.
func (s *Socket) Answers() (int, error) {
	size, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
	return max(size/answerBytes, 1), err
}

// Close closes the socket. Later calls fail.
func (s *Socket) Close() error {
	fd := s.fd
	s.fd = -1 // another file may soon have this number
	return unix.Close(fd)
}

// Exchange sends the messages in a buffer, which it numbers, and calls each with the
// kernel's answers. The kernel answers the messages that it rejects and those with
// NLM_F_ACK; at is the place of the message in the buffer, counted from 0.
//
// A *NotSentError means that the kernel has taken none of the messages. An error that
// matches ErrUnanswered means that answers may be missing: the buffer for them was
// too small, or the last message with NLM_F_ACK got none.
func (s *Socket) Exchange(b []byte, each func(at int, a Answer)) error {
	return s.ExchangeEcho(b, each, func(Message) {})
}

// ExchangeEcho is Exchange for buffers in which messages have NLM_F_ECHO: the kernel sends the changes that it made for
// these back, and ExchangeEcho passes them to echo. Echoes take room in the receive buffer, before the answers; see
// Answers. A message is valid during the call.
func (s *Socket) ExchangeEcho(b []byte, each func(at int, a Answer), echo func(Message)) error {
	first, count, expected := s.number(b)
	if err := s.send(b); err != nil {
		return &NotSentError{Err: err}
	}
	answered := expected < 0
	var lost error
	for {
		datagram, err := s.receive()
		switch {
		case errors.Is(err, unix.EAGAIN):
			if lost != nil || !answered {
				return unanswered(lost)
			}
			return nil
		case errors.Is(err, unix.ENOBUFS):
			lost = err // the answers that arrived count
			continue
		case err != nil:
			return unanswered(err)
		}
		for m := range Messages(datagram) {
			at := m.Seq - first
			a, isAnswer := ParseAnswer(m)
			switch {
			case isAnswer && at < uint32(count):
				answered = answered || int(at) == expected
				each(int(at), a)
			case !isAnswer && (at < uint32(count) || m.Seq == 0): // Linux 6.18 does not number the echoes of nf_tables
				echo(m)
			}
		}
	}
}

// unanswered wraps the reason, if there is one.
func unanswered(reason error) error {
	if reason == nil {
		return ErrUnanswered
	}
	return fmt.Errorf("%w: %w", ErrUnanswered, reason)
}

// number numbers the messages in a buffer. It returns the first number, how many
// there are, and the place of the last one that asks for an answer, or -1.
func (s *Socket) number(b []byte) (first uint32, count, expected int) {
	first, expected = s.seq+1, -1
	for len(b) >= HeaderBytes {
		size := int(binary.NativeEndian.Uint32(b))
		if size < HeaderBytes || size > len(b) {
			break
		}
		s.seq++
		SetSeq(b, s.seq)
		if binary.NativeEndian.Uint16(b[flagsAt:])&unix.NLM_F_ACK != 0 {
			expected = count
		}
		count++
		b = b[min(aligned(size), len(b)):]
	}
	return first, count, expected
}

// Ask sends a request with NLM_F_DUMP or NLM_F_ACK and calls each with the messages
// of the reply, which are valid during the call. An error of each, or the end of the
// context, ends the reading. The rest is discarded before the next request.
//
// The error is a *Rejection if the kernel rejects the request. It matches ErrInterrupted
// if the list was changed meanwhile, and ErrUnanswered if part of the reply was lost.
func (s *Socket) Ask(ctx context.Context, request []byte, each func(Message) error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	seq, _, _ := s.number(request)
	if err := s.send(request); err != nil {
		return &NotSentError{Err: err}
	}
	s.unread = true
	interrupted := false
	for {
		datagram, err := s.receive()
		if err != nil {
			return unanswered(err)
		}
		for m := range Messages(datagram) {
			if m.Seq != seq {
				continue
			}
			interrupted = interrupted || m.Flags&unix.NLM_F_DUMP_INTR != 0
			if m.Kind == unix.NLMSG_ERROR || m.Kind == unix.NLMSG_DONE {
				s.unread = false
				return ending(m, interrupted)
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err := each(m); err != nil {
				return err
			}
		}
	}
}

// ending returns how a reply ended.
func ending(m Message, interrupted bool) error {
	a, ok := ParseAnswer(m)
	if !ok {
		a.Errno = errnoAt(m.Payload)
	}
	if interrupted && a.Errno == 0 || a.Errno == unix.EINTR {
		return ErrInterrupted
	}
	return a.Err()
}

// send sends a buffer. It first discards the rest of an earlier reply, because the kernel does not begin a dump during
// another one (EBUSY).
func (s *Socket) send(b []byte) error {
	for s.unread {
		_, err := s.receive()
		s.unread = err == nil || errors.Is(err, unix.ENOBUFS)
	}
	for {
		err := unix.Sendto(s.fd, b, 0, &s.kernel)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// receive returns the next datagram that is ready, valid until the next call, or
// EAGAIN. It returns ENOBUFS if some were lost, or a part of this one.
func (s *Socket) receive() ([]byte, error) {
	for {
		n, _, err := unix.Recvfrom(s.fd, s.buf, unix.MSG_DONTWAIT|unix.MSG_TRUNC)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err == nil && n > len(s.buf):
			err = unix.ENOBUFS
		}
		return s.buf[:min(max(n, 0), len(s.buf))], err
	}
}
