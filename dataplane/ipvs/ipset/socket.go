package ipset

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// Socket is a connection to the sets of the network namespace of the thread that
// opened it; it stays there whichever thread uses it. One goroutine at a time.
type Socket struct {
	fd       int
	seq      uint32
	protocol uint8
	buf      []byte
	// revisions are those of the types that were asked about.
	revisions map[kindKey]uint8
}

// kindKey is what the kernel knows a type by.
type kindKey struct {
	kind   Type
	family Family
}

// The versions of the protocol that are spoken here. 7 has nothing that 6 lacks
// and that is needed here.
const (
	protocolOldest = 6
	protocolNewest = 7
)

const (
	// bufferBytes are asked of the kernel for either direction; what it gives
	// without privilege, 208 KiB by default, is enough too.
	bufferBytes = 1 << 20
	// datagramBytes holds the largest datagram of a dump (32 KiB) and the answer
	// to the largest message, which repeats it.
	datagramBytes = 64 << 10
	// sendBytesMax bounds a send, such that the kernel's answers fit into the
	// buffer of the reader even if each repeats its message. It holds 4 lists of
	// entries, each of which passes listBytesMax by less than one entry.
	sendBytesMax = 4 * (listBytesMax + 256)
	// sendMessagesMax bounds a send for the same reason, where messages are short:
	// an answer takes about 1 KiB of the buffer.
	sendMessagesMax = 64
)

// Open opens a socket in the network namespace of the calling thread, and agrees
// with the kernel on a version of the protocol; the kernel may load a module for
// that. The error matches ErrUnsupported when it has no sets.
func Open() (*Socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("ipset: open a netlink socket: %w", err)
	}
	s := &Socket{fd: fd, buf: make([]byte, datagramBytes), revisions: map[kindKey]uint8{}}
	if err := s.prepare(); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return s, nil
}

func (s *Socket) prepare() error {
	if err := unix.Bind(s.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("ipset: bind a netlink socket: %w", err)
	}
	// Each is optional.
	_ = unix.SetsockoptInt(s.fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1)
	enlarge(s.fd, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF)
	enlarge(s.fd, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF)
	return s.agree()
}

// enlarge sets the size of a buffer, as far as the kernel allows.
func enlarge(fd, force, modest int) {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, force, bufferBytes) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, modest, bufferBytes) // the default stays
	}
}

// Protocol is the version of the protocol that was agreed on.
func (s *Socket) Protocol() uint8 { return s.protocol }

// Close gives the socket up.
func (s *Socket) Close() error { return unix.Close(s.fd) }

// exchange sends sealed messages, several at once, and tells the answer to each,
// in order. The kernel has carried out a message when the send returns, which
// cannot be interrupted; the context is looked at between sends.
func (s *Socket) exchange(ctx context.Context, messages [][]byte) []answer {
	answers := make([]answer, len(messages))
	for start := 0; start < len(messages); {
		end, size := start+1, len(messages[start])
		for end < len(messages) && end-start < sendMessagesMax && size+len(messages[end]) <= sendBytesMax {
			size += len(messages[end])
			end++
		}
		if err := ctx.Err(); err != nil {
			fail(answers[start:], err)
			return answers
		}
		s.send(messages[start:end], size, answers[start:end])
		start = end
	}
	return answers
}

func fail(answers []answer, err error) {
	for i := range answers {
		answers[i].err = err
	}
}

// send sends messages at once and fills in the answers.
func (s *Socket) send(messages [][]byte, size int, answers []answer) {
	first := s.seq + 1
	b := make([]byte, 0, size)
	for _, m := range messages {
		s.seq++
		number(m, s.seq)
		b = append(b, m...)
	}
	if err := s.write(b); err != nil {
		fail(answers, fmt.Errorf("hand over to the kernel: %w", err))
		return
	}
	fail(answers, ErrUnanswered)
	for {
		n, err := s.receive(unix.MSG_DONTWAIT)
		if errors.Is(err, unix.ENOBUFS) {
			continue // some answers were lost; those that are here must be heard
		}
		if err != nil {
			return // all is heard, and what is not answered is unknown
		}
		for _, m := range parse(s.buf[:n]) {
			at := int(m.Header.Seq - first)
			if m.Header.Type != unix.NLMSG_ERROR || at < 0 || at >= len(answers) {
				continue
			}
			if a, ok := readAnswer(m); ok {
				answers[at] = a
			}
		}
	}
}

// ask sends one message and gives each message of the reply, the attributes of
// which are valid during the call. The reply ends with a yes, a no or, for a
// dump, its end. A reply that cannot be used is still received to its end, so
// that the next exchange starts with an empty socket.
func (s *Socket) ask(request []byte, each func(attrs []byte)) error {
	s.seq++
	number(request, s.seq)
	if err := s.write(request); err != nil {
		return fmt.Errorf("ask the kernel: %w", err)
	}
	for {
		n, err := s.receive(0)
		if err != nil {
			s.drain()
			return fmt.Errorf("receive the kernel's answer: %w", err)
		}
		for _, m := range parse(s.buf[:n]) {
			switch {
			case m.Header.Seq != s.seq:
			case m.Header.Type == unix.NLMSG_ERROR || m.Header.Type == unix.NLMSG_DONE:
				return ending(m)
			case m.Header.Type>>8 == unix.NFNL_SUBSYS_IPSET && len(m.Data) >= genericBytes:
				each(m.Data[genericBytes:])
			}
		}
	}
}

// ending gives the error number at the end of a reply.
func ending(m syscall.NetlinkMessage) error {
	if len(m.Data) >= 4 {
		if errno := -int32(binary.NativeEndian.Uint32(m.Data)); errno > 0 {
			return syscall.Errno(errno)
		}
	}
	return nil
}

// parse splits a datagram; what is malformed ends it.
func parse(b []byte) []syscall.NetlinkMessage {
	messages, err := syscall.ParseNetlinkMessage(b)
	if err != nil {
		return nil
	}
	return messages
}

// drain throws away what is left of the answer to a question that failed.
func (s *Socket) drain() {
	for {
		if _, err := s.receive(unix.MSG_DONTWAIT); err != nil && !errors.Is(err, unix.ENOBUFS) {
			return
		}
	}
}

func (s *Socket) write(b []byte) error {
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
