package genl

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
)

// Socket is a connection to IPVS in the network namespace of the thread that
// opened it; it stays there whichever thread uses it. One goroutine at a time. When
// the module ip_vs is unloaded and loaded again, a new one is needed.
//
// The kernel carries a request out within the call that sends it, and has the
// answers ready then: no method waits for anything but the kernel's locks.
type Socket struct {
	fd     int
	family uint16
	// seq is the last sequence number used. They go on from one exchange to the
	// next, so that an answer that comes late is known for what it is.
	seq uint32
	// bounds are those of one send.
	bounds bounds
	// out and in are the buffers of what is sent and received.
	out, in []byte
	written dataplane.Written
}

// What the socket's buffers should hold: mostRequests of the longest kind, and a
// refusal of each. Only a process that is privileged outside of its user namespace
// gets more than net.core.wmem_max and rmem_max. The kernel doubles both.
const (
	sendBytes    = 128 << 10
	receiveBytes = mostRequests * answerBytes / 2
	// sendReserve is what the kernel keeps of the send buffer (netlink_sendmsg).
	sendReserve = 32
	// answerBytes is what one refusal takes in the receive buffer at most: the
	// kernel counts its own bookkeeping, 768 bytes in Linux 6.
	answerBytes = 2048
	// datagramBytes holds the largest datagram that the kernel makes for a
	// listing: it grows with the buffer of the reader, up to 32 KiB.
	datagramBytes = 32 << 10
)

// Open opens a socket in the network namespace of the calling thread. The error
// matches ErrUnavailable when the kernel has no IPVS.
func Open() (*Socket, error) {
	s, err := dial()
	if err != nil {
		return nil, err
	}
	if s.family, err = s.lookUp(familyName); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// dial opens a socket to generic netlink.
func dial() (*Socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_GENERIC)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	s := &Socket{fd: fd, in: make([]byte, datagramBytes)}
	if err := s.prepare(); err != nil {
		return nil, errors.Join(fmt.Errorf("prepare a netlink socket: %w", err), s.Close())
	}
	return s, nil
}

func (s *Socket) prepare() error {
	if err := unix.Bind(s.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	// Each is optional: without them answers are longer, and say less.
	_ = unix.SetsockoptInt(s.fd, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1)
	_ = unix.SetsockoptInt(s.fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1)
	enlarge(s.fd, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, sendBytes)
	enlarge(s.fd, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, receiveBytes)
	room, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
	if err != nil {
		return err
	}
	answers, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
	s.bounds = bounds{bytes: room - sendReserve, requests: min(max(answers/answerBytes, 1), mostRequests)}
	return err
}

// enlarge sets the size of a buffer, as far as the kernel allows.
func enlarge(fd, force, modest, size int) {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, force, size) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, modest, size) // the default stays
	}
}

// Close gives the socket up; what is asked of it afterwards fails.
func (s *Socket) Close() error {
	fd := s.fd
	s.fd = -1 // its number may soon be somebody else's
	return unix.Close(fd)
}

// Written counts what was handed to the kernel since it was last asked: Lines are
// requests, Calls are sends; questions count, too.
func (s *Socket) Written() dataplane.Written {
	w := s.written
	s.written = dataplane.Written{}
	return w
}

// send hands over a buffer of messages.
func (s *Socket) send(b []byte, messages int) error {
	for {
		err := unix.Sendto(s.fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err == nil {
			s.written = s.written.Add(dataplane.Written{Lines: messages, Bytes: len(b), Calls: 1})
		}
		return err
	}
}

// receive gives the next datagram that is ready, valid until the next call; EAGAIN
// when there is none.
func (s *Socket) receive() ([]byte, error) {
	for {
		n, _, err := unix.Recvfrom(s.fd, s.in, unix.MSG_DONTWAIT)
		if !errors.Is(err, unix.EINTR) {
			return s.in[:max(n, 0)], err
		}
	}
}
