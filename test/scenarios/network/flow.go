package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
)

// Flow is a UDP client that keeps its socket.
type Flow struct{ conn net.Conn }

// OpenFlow opens one without sending anything. The zero source is for the kernel to
// choose.
func (n *Network) OpenFlow(ctx context.Context, client string, source, to netip.AddrPort) (*Flow, error) {
	host, err := n.Host(client)
	if err != nil {
		return nil, err
	}
	conn, err := host.DialFrom(ctx, "udp", source, to.String())
	return &Flow{conn}, err
}

// Local is the client's address and port.
func (f *Flow) Local() netip.AddrPort {
	return f.conn.LocalAddr().(*net.UDPAddr).AddrPort()
}

// Close ends the flow.
func (f *Flow) Close() error { return f.conn.Close() }

// AskFlow sends one datagram and tells how it ends. Answers to earlier datagrams do
// not count, and neither do refusals of them.
func (n *Network) AskFlow(ctx context.Context, f *Flow, q fixture.Question) (fixture.Answer, error) {
	if err := f.drain(); err != nil {
		return fixture.Answer{}, err
	}
	deadline := time.Now().Add(q.Patience)
	if sooner, ok := ctx.Deadline(); ok && sooner.Before(deadline) {
		deadline = sooner
	}
	if err := f.conn.SetDeadline(deadline); err != nil {
		return fixture.Answer{}, err
	}
	_, err := f.conn.Write([]byte("?"))
	reply := make([]byte, 256)
	size := 0
	// A process of the node whose datagram is dropped on its way out is told so,
	// and may be refused besides.
	if err == nil || errors.Is(err, syscall.EPERM) {
		size, err = f.conn.Read(reply)
	}
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fixture.Answer{Fate: fixture.Refused}, nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fixture.Answer{Fate: fixture.Silent}, nil
	case err != nil:
		return fixture.Answer{}, fmt.Errorf("%v: %w", q, err)
	}
	name, seen, _ := strings.Cut(string(reply[:size]), " ")
	at, err := netip.ParseAddrPort(seen)
	if err != nil {
		return fixture.Answer{}, fmt.Errorf("%v: %q: %w", q, reply[:size], err)
	}
	return n.Answer(q, netns.Answer{Backend: name, Client: at}), nil
}

// drain reads what has come since the last answer.
func (f *Flow) drain() error {
	buffer := make([]byte, 256)
	for {
		// What has come is read in any case; a deadline that is over already
		// would forbid even that.
		if err := f.conn.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
			return err
		}
		switch _, err := f.conn.Read(buffer); {
		case err == nil || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EHOSTUNREACH):
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil
		default:
			return err
		}
	}
}

// EntryOf gives what the node tracks of a client's packets to a destination, or an
// empty entry if it tracks none.
func (w *World) EntryOf(protocol service.Protocol, source, destination netip.AddrPort) (Entry, error) {
	all, err := w.Entries(service.FamilyOf(destination.Addr()))
	if err != nil {
		return Entry{}, err
	}
	for _, e := range all {
		if e.Protocol == protocolNumbers[protocol] && e.Source == source && e.Destination == destination {
			return e, nil
		}
	}
	return Entry{}, nil
}

var protocolNumbers = map[service.Protocol]uint8{
	service.TCP: syscall.IPPROTO_TCP, service.UDP: syscall.IPPROTO_UDP, service.SCTP: 132,
}
