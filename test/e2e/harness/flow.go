package harness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Flow is a UDP client that keeps its socket, and so its source port: the kernel takes all it sends for one
// flow, and goes on to translate as it did the first datagram.
type Flow struct {
	from   *Host
	target Target
	conn   net.Conn
}

// OpenFlow prepares a flow to a target, which must be one for UDP. Nothing is sent yet.
func (h *Host) OpenFlow(ctx context.Context, target Target) (*Flow, error) {
	if target.Network != "udp" {
		return nil, fmt.Errorf("flow to %s: want a target for udp", target)
	}
	conn, err := h.DialContext(ctx, target.Network, target.Addr.String())
	if err != nil {
		return nil, err
	}
	return &Flow{h, target, conn}, nil
}

func (f *Flow) String() string {
	return fmt.Sprintf("%s from %s to %s", f.from.Name(), f.conn.LocalAddr(), f.target)
}

// Ask sends one datagram and returns the name of the pod that answers. Answers to earlier datagrams do not
// count, and neither do refusals of them.
func (f *Flow) Ask() (string, error) {
	if err := f.drain(); err != nil {
		return "", err
	}
	if _, err := f.conn.Write([]byte("?")); err != nil {
		return "", fmt.Errorf("%s: %w", f, err)
	}
	if err := f.conn.SetReadDeadline(time.Now().Add(quickMax)); err != nil {
		return "", fmt.Errorf("%s: %w", f, err)
	}
	reply := make([]byte, 256)
	size, err := f.conn.Read(reply)
	if err != nil {
		return "", fmt.Errorf("%s: %w", f, err)
	}
	name, _, _ := strings.Cut(string(reply[:size]), " ")
	return name, nil
}

// drain reads what has come since the last answer. Refusals, of which each is told once, are read, too.
func (f *Flow) drain() error {
	buffer := make([]byte, 256)
	for {
		// What has come is read in any case; a deadline that is over already would forbid even that.
		if err := f.conn.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
			return fmt.Errorf("%s: %w", f, err)
		}
		switch _, err := f.conn.Read(buffer); {
		case err == nil || errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.EHOSTUNREACH):
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil
		default:
			return fmt.Errorf("%s: %w", f, err)
		}
	}
}

// Close ends the flow.
func (f *Flow) Close() error { return f.conn.Close() }
