package wire

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// Socket is a connection to nf_tables in the network namespace of the thread
// that opened it; it stays there whichever thread uses it. One goroutine at a
// time.
type Socket struct {
	fd   int
	port uint32
	// room is the size of the largest transaction that fits.
	room int
	buf  []byte
}

// What the socket's buffers should hold. Only a process that is privileged
// outside of its user namespace gets more than net.core.wmem_max.
const (
	sendBytes    = 64 << 20
	receiveBytes = 16 << 20
	// sendReserve is what the kernel keeps of the send buffer (netlink_sendmsg).
	sendReserve = 32
	// datagramBytes holds the largest datagram that the kernel makes for a
	// dump: it grows with the buffer of the reader, up to 32 KiB.
	datagramBytes = 64 << 10
)

// Open opens a socket in the network namespace of the calling thread.
func Open() (*Socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	s := &Socket{fd: fd, buf: make([]byte, datagramBytes)}
	if err := s.prepare(); err != nil {
		return nil, errors.Join(fmt.Errorf("prepare a netlink socket: %w", err), unix.Close(fd))
	}
	return s, nil
}

func (s *Socket) prepare() error {
	if err := unix.Bind(s.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	name, err := unix.Getsockname(s.fd)
	if err != nil {
		return err
	}
	if at, ok := name.(*unix.SockaddrNetlink); ok {
		s.port = at.Pid
	}
	// Each is optional: without them answers are longer, and say less.
	_ = unix.SetsockoptInt(s.fd, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1)
	_ = unix.SetsockoptInt(s.fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1)
	enlarge(s.fd, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, sendBytes)
	enlarge(s.fd, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, receiveBytes)
	got, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
	s.room = got - sendReserve
	return err
}

// enlarge sets the size of a buffer, as far as the kernel allows.
func enlarge(fd, force, modest, size int) {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, force, size) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, modest, size) // the default stays
	}
}

// Port identifies the socket among those of the namespace: changes that it
// makes are announced with this number.
func (s *Socket) Port() uint32 { return s.port }

// Listen hears what anybody changes in any table; to be called on a thread in the
// socket's network namespace. It is meant for a short time, and has no filter, which
// takes more memory than Linux 6.1 gives a socket by default (net.core.optmem_max).
func (s *Socket) Listen() (*Listener, error) { return listen(nil) }

// Room is the size in bytes of the largest transaction that fits.
func (s *Socket) Room() int { return s.room }

// Close gives the socket up.
func (s *Socket) Close() error { return unix.Close(s.fd) }

// errUnanswered means that the kernel's answer was lost.
var errUnanswered = errors.New("netlink: the kernel's answer was lost")

// Commit hands a transaction over, which the kernel carries out before the call
// returns; it cannot be interrupted. Refusals mean that nothing has changed (where
// there are very many, some may be missing), and so does a NotTakenError; after
// any other error the outcome is unknown.
func (s *Socket) Commit(t *Transaction) ([]*Refusal, error) {
	if t.Messages() == 0 {
		return nil, nil
	}
	t.seal()
	if err := s.send(t.buf); err != nil {
		return nil, &NotTakenError{Err: err}
	}
	var refusals []*Refusal
	answered, lost := false, false
	for {
		n, err := s.receive(unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		if errors.Is(err, unix.ENOBUFS) {
			// There was no room for all answers. Those that are here must be
			// heard, or they would be taken for answers to the next question.
			lost = true
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("receive the kernel's answer: %w", err)
		}
		for h := range headers(s.buf[:n]) {
			if h.kind != unix.NLMSG_ERROR {
				continue
			}
			a, ok := parseAnswer(h)
			if !ok {
				continue
			}
			answered = answered || a.seq == t.lastSeq()
			if a.errno != 0 {
				refusals = append(refusals, t.refusal(a))
			}
		}
	}
	if len(refusals) == 0 && (lost || !answered) {
		return nil, errUnanswered
	}
	return refusals, nil
}

func (t *Transaction) refusal(a answer) *Refusal {
	r := &Refusal{Errno: a.errno, Words: a.words, About: t.blame(a.seq, a.offset)}
	if at := int(a.seq) - firstSeq; at >= 0 && at < len(t.starts) {
		r.Kind = binary.NativeEndian.Uint16(t.buf[t.starts[at]+4:]) & 0xff
	}
	return r
}

// NotTakenError says that the kernel did not take a transaction, so that
// nothing has changed.
type NotTakenError struct{ Err error }

// Error gives the reason.
func (e *NotTakenError) Error() string { return fmt.Sprintf("hand over a transaction: %v", e.Err) }

// Unwrap gives the error number.
func (e *NotTakenError) Unwrap() error { return e.Err }

// ErrInterrupted says that the tables were changed during a dump, whose result
// may therefore be none of their states.
var ErrInterrupted = errors.New("netlink: the tables were changed while they were read")

// Ask sends a request of a kind (NFT_MSG_GET…) with attributes, and gives each
// message of the answer. With all, everything that fits is asked for, otherwise
// one object. What is not there is an error that matches unix.ENOENT. Messages
// are valid during the call of each.
func (s *Socket) Ask(ctx context.Context, kind uint16, family uint8, all bool, attrs []byte, each func(Message)) error {
	flags := uint16(unix.NLM_F_ACK)
	if all {
		flags = unix.NLM_F_DUMP
	}
	request, mark := open(nil, unix.NFNL_SUBSYS_NFTABLES<<8|kind, flags, firstSeq, family, 0)
	request = shut(append(request, attrs...), mark)
	if err := s.send(request); err != nil {
		return fmt.Errorf("ask the kernel: %w", err)
	}
	interrupted := false
	for {
		n, err := s.receive(0)
		if err != nil {
			s.drain()
			return fmt.Errorf("receive the kernel's answer: %w", err)
		}
		for h := range headers(s.buf[:n]) {
			interrupted = interrupted || h.flags&unix.NLM_F_DUMP_INTR != 0
			switch h.kind {
			case unix.NLMSG_ERROR:
				a, ok := parseAnswer(h)
				if ok && a.errno != 0 {
					return a.errno
				}
				return nil
			case unix.NLMSG_DONE:
				return doneError(h, interrupted)
			}
			if m, ok := h.message(); ok && ctx.Err() == nil {
				each(m)
			}
		}
		// What was asked for is received to its end, so that the next exchange
		// starts with an empty socket; only the work on it is left out.
	}
}

// doneError tells how a dump ended.
func doneError(h header, interrupted bool) error {
	if len(h.payload) >= 4 {
		if errno := -int32(binary.NativeEndian.Uint32(h.payload)); errno > 0 {
			if syscall.Errno(errno) == unix.EINTR {
				return ErrInterrupted
			}
			return syscall.Errno(errno)
		}
	}
	if interrupted {
		return ErrInterrupted
	}
	return nil
}

// drain throws away what is left of the answer to a question that failed, so that
// the next exchange starts with an empty socket.
func (s *Socket) drain() {
	for {
		if _, err := s.receive(unix.MSG_DONTWAIT); err != nil && !errors.Is(err, unix.ENOBUFS) {
			return
		}
	}
}

func (s *Socket) send(b []byte) error {
	for {
		err := unix.Sendto(s.fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func (s *Socket) receive(flags int) (int, error) {
	for {
		n, _, err := unix.Recvfrom(s.fd, s.buf, flags)
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
