package conntrack

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// socket is a connection to netfilter in the network namespace of the thread that
// opened it; it stays there whichever thread uses it. One goroutine at a time.
type socket struct {
	fd       int
	sequence uint32
	buffer   []byte
}

const (
	// datagramBytes holds the largest datagram that the kernel makes for a
	// listing: it grows with the buffer of the reader, up to 32 KiB.
	datagramBytes = 64 << 10
	// answerSeconds bounds the wait for an answer. The kernel has it ready when
	// it is asked for, so that the bound is met only when something is wrong.
	answerSeconds = 10
)

func openSocket() (*socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: answerSeconds})
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("prepare a netlink socket: %w", err), unix.Close(fd))
	}
	// Without it, refusals repeat what was refused.
	_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1)
	return &socket{fd: fd, buffer: make([]byte, datagramBytes)}, nil
}

func (s *socket) close() error { return os.NewSyscallError("close", unix.Close(s.fd)) }

func (s *socket) send(b []byte) error {
	for {
		err := unix.Sendto(s.fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		if !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("sendto", err)
		}
	}
}

// receive waits for a datagram, which is valid until the next call.
func (s *socket) receive() ([]byte, error) {
	for {
		n, _, err := unix.Recvfrom(s.fd, s.buffer, 0)
		if !errors.Is(err, unix.EINTR) {
			return s.buffer[:max(n, 0)], os.NewSyscallError("recvfrom", err)
		}
	}
}
