package netns

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// Answer is what a [Backend] says to a client.
type Answer struct {
	// Backend is the name of the one that answered.
	Backend string
	// Client is who the question came from, as the backend saw it; after address translation this is
	// not the client's own address.
	Client netip.AddrPort
}

func parseAnswer(line string) (Answer, error) {
	name, client, found := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
	addr, err := netip.ParseAddrPort(client)
	if !found || err != nil {
		return Answer{}, fmt.Errorf("netns: %q is not the answer of a Backend (want \"name clientIP:port\")", line)
	}
	return Answer{Backend: name, Client: addr}, nil
}

// Ask reaches the target once from inside the namespace, over "tcp" or "udp", on a connection of its
// own, and returns what the [Backend] there says. Nothing is sent twice: a lost datagram is an error
// when the context ends, so a caller sees every loss. A context without a deadline gets five seconds.
func (n *Namespace) Ask(ctx context.Context, network string, target netip.AddrPort) (Answer, error) {
	return n.AskFrom(ctx, network, netip.AddrPort{}, target)
}

// AskFrom is [Namespace.Ask] from an address and a port of the caller's choice. The
// zero address and port 0 are for the kernel to choose.
func (n *Namespace) AskFrom(ctx context.Context, network string, source, target netip.AddrPort) (Answer, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if strings.HasPrefix(network, "tcp") {
		session, err := n.ConnectFrom(ctx, source, target)
		if err != nil {
			return Answer{}, err
		}
		return session.Answer(), session.Close()
	}
	answer, err := n.askDatagram(ctx, network, source, target)
	if err != nil {
		return Answer{}, n.errorf("ask %s %s: %w", network, target, err)
	}
	return answer, nil
}

func (n *Namespace) askDatagram(ctx context.Context, network string, source, target netip.AddrPort) (Answer, error) {
	conn, err := n.DialFrom(ctx, network, source, target.String())
	if err != nil {
		return Answer{}, err
	}
	defer conn.Close() //nolint:errcheck // a datagram socket has nothing left to lose
	if err := until(ctx, conn); err != nil {
		return Answer{}, err
	}
	if _, err := conn.Write([]byte("?")); err != nil {
		return Answer{}, err
	}
	reply := make([]byte, 256)
	size, err := conn.Read(reply)
	if err != nil {
		return Answer{}, err
	}
	return parseAnswer(string(reply[:size]))
}

// askMax bounds a question whose caller did not.
const askMax = 5 * time.Second

func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, askMax)
}

// until applies the deadline of a bounded context to a connection.
func until(ctx context.Context, conn interface{ SetDeadline(time.Time) error }) error {
	deadline, _ := ctx.Deadline()
	return conn.SetDeadline(deadline)
}
