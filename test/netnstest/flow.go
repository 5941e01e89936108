// SPDX-License-Identifier: Apache-2.0

package netnstest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/host/netns"
)

// askMax bounds a question whose caller did not.
const askMax = 5 * time.Second

// Flow is a UDP client that keeps its socket, and so its source port: the kernel takes all it sends
// for one flow, and goes on to translate as it did the first datagram. One goroutine uses it.
type Flow struct {
	target netip.AddrPort
	conn   net.Conn
}

// OpenFlow opens a flow from inside a namespace. It sends nothing yet. The kernel chooses the
// zero source and port 0.
func OpenFlow(ctx context.Context, n *netns.Namespace, source, target netip.AddrPort) (*Flow, error) {
	conn, err := DialFrom(ctx, n, "udp", source, target.String())
	if err != nil {
		return nil, err
	}
	return &Flow{target, conn}, nil
}

// Local returns the client's address and port.
func (f *Flow) Local() netip.AddrPort {
	return f.conn.LocalAddr().(*net.UDPAddr).AddrPort() // DialFrom over udp returns this type
}

// String names both ends.
func (f *Flow) String() string { return fmt.Sprintf("flow from %s to %s", f.Local(), f.target) }

// Ask sends one datagram and returns what the [Backend] says. Answers to earlier datagrams do not
// count, and neither do refusals of them. A context without a deadline gets five seconds.
func (f *Flow) Ask(ctx context.Context) (Answer, error) {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(askMax)
	}
	if err := errors.Join(f.Drain(), f.conn.SetDeadline(deadline)); err != nil {
		return Answer{}, err
	}
	// A rule that drops the datagram on its way out of this host makes Send fail with EPERM. A refusal
	// may follow.
	sent := f.Send()
	if sent != nil && !errors.Is(sent, unix.EPERM) {
		return Answer{}, fmt.Errorf("%s: %w", f, sent)
	}
	reply := make([]byte, 256)
	size, err := f.conn.Read(reply)
	if err != nil {
		return Answer{}, fmt.Errorf("%s: %w", f, errors.Join(err, sent))
	}
	return ParseAnswer(string(reply[:size]))
}

// Send sends one datagram and waits for nothing.
func (f *Flow) Send() error {
	_, err := f.conn.Write([]byte("?"))
	return err
}

// Drain reads what has come since the last answer. Each refusal is reported once, so it reads
// those, too.
func (f *Flow) Drain() error {
	buffer := make([]byte, 256)
	for {
		// The kernel hands over what has come in any case, but not after the deadline.
		if err := f.conn.SetDeadline(time.Now().Add(time.Millisecond)); err != nil {
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
