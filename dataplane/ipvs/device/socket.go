package device

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// ErrUnanswered says that the kernel's answer was lost, and that what happened is
// unknown.
var ErrUnanswered = errors.New("the kernel's answer was lost")

// Unknown says whether an error leaves open what happened.
func Unknown(err error) bool { return errors.Is(err, ErrUnanswered) }

// requestsMax is how many requests go in a send, such that the answers, which
// take about 1 KiB each, fit into a buffer of the default size (208 KiB).
const requestsMax = 128

// answerBytes is more than a datagram with an answer has: it repeats its request.
const answerBytes = 4 << 10

// socket is a routing socket of the namespace of the thread that opened it, for
// several requests per send.
type socket struct {
	fd  int
	buf []byte
}

func openSocket() (*socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return &socket{fd: fd, buf: make([]byte, answerBytes)}, nil
}

func (s *socket) close() error { return unix.Close(s.fd) }

// exchange sends requests at once, which the kernel carries out before the send
// returns, and fills in the answer to each.
func (s *socket) exchange(requests []*nl.NetlinkRequest, results []error) {
	var b []byte
	place := make(map[uint32]int, len(requests))
	for i, r := range requests {
		b = append(b, r.Serialize()...)
		place[r.Seq] = i
	}
	if err := s.send(b); err != nil {
		fill(results, fmt.Errorf("hand over to the kernel: %w", err))
		return
	}
	fill(results, ErrUnanswered)
	for {
		n, _, err := unix.Recvfrom(s.fd, s.buf, unix.MSG_DONTWAIT)
		if errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.EINTR) {
			continue // if some answers were lost, the others must still be heard
		}
		if err != nil {
			return // all is heard, and what is not answered is unknown
		}
		for _, m := range parse(s.buf[:n]) {
			if i, ok := place[m.Header.Seq]; ok && m.Header.Type == unix.NLMSG_ERROR && len(m.Data) >= 4 {
				results[i] = answerOf(m)
			}
		}
	}
}

func (s *socket) send(b []byte) error {
	for {
		err := unix.Sendto(s.fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func fill(results []error, err error) {
	for i := range results {
		results[i] = err
	}
}

// answerOf gives the error number of an NLMSG_ERROR message, nil for 0.
func answerOf(m syscall.NetlinkMessage) error {
	if errno := -int32(binary.NativeEndian.Uint32(m.Data)); errno != 0 {
		return syscall.Errno(errno)
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
