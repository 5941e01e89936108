package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
)

// sctp is everybody who answers SCTP. Many kernels have no sockets for it, but all
// that can translate it follow its associations, and for that the first two packets
// do: they are sent from raw sockets.
type sctp struct {
	open    sync.Once
	openErr error
	conns   []*net.IPConn
	running sync.WaitGroup
	// asked counts questions: each has a port of its own.
	asked atomic.Uint32
}

// sctpProtocols are the raw sockets of package net, by family.
var sctpProtocols = [...]string{service.IPv4: "ip4:132", service.IPv6: "ip6:132"}

// askSCTP sends an INIT and waits for the INIT ACK, which says who has answered.
func (n *Network) askSCTP(ctx context.Context, host *netns.Namespace, source, target netip.AddrPort) (netns.Answer, error) {
	if n.sctp.open.Do(func() { n.sctp.openErr = n.serveSCTP() }); n.sctp.openErr != nil {
		return netns.Answer{}, n.sctp.openErr
	}
	dialer := net.Dialer{}
	if source.IsValid() {
		dialer.LocalAddr = &net.IPAddr{IP: source.Addr().AsSlice()}
	}
	var conn net.Conn
	err := host.Do(func() (err error) {
		conn, err = dialer.DialContext(ctx, sctpProtocols[service.FamilyOf(target.Addr())], target.Addr().String())
		return err
	})
	if err != nil {
		return netns.Answer{}, err
	}
	const firstPort, ports = 20000, 40000
	number := n.sctp.asked.Add(1)
	request := sctpPacket{source: uint16(firstPort + number%ports), target: target.Port(), initiate: number}
	if source.Port() != 0 {
		request.source = source.Port()
	}
	answer, err := exchangeSCTP(ctx, conn.(*net.IPConn), request)
	return answer, errors.Join(err, conn.Close())
}

func exchangeSCTP(ctx context.Context, conn *net.IPConn, request sctpPacket) (netns.Answer, error) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return netns.Answer{}, errors.New("nobody said how long to wait")
	}
	if err := conn.SetDeadline(deadline); err != nil {
		return netns.Answer{}, err
	}
	if _, err := conn.Write(request.bytes()); err != nil {
		return netns.Answer{}, err
	}
	buffer := make([]byte, 512)
	for {
		// Unlike Read, this leaves the header of IPv4 out.
		size, _, err := conn.ReadFrom(buffer)
		if err != nil {
			return netns.Answer{}, err
		}
		got, ok := parseSCTP(buffer[:size])
		if !ok || got.source != request.target || got.target != request.source || got.tag != request.initiate {
			continue
		}
		name, client, _ := strings.Cut(got.cookie, " ")
		at, err := netip.ParseAddrPort(client)
		if err != nil {
			return netns.Answer{}, fmt.Errorf("the cookie %q: %w", got.cookie, err)
		}
		return netns.Answer{Backend: name, Client: at}, nil
	}
}

// serveSCTP lets all who answer TCP from the beginning answer SCTP, too.
func (n *Network) serveSCTP() error {
	for _, family := range service.Families {
		at := make(map[netip.Addr]string)
		for _, name := range fixture.Endpoints {
			at[fixture.MustAddress(family, name)] = hostOf(name)
		}
		for _, a := range fixture.BeyondAddresses(family) {
			at[a] = beyond
		}
		for a, host := range at {
			var conn *net.IPConn
			err := n.hosts[host].Do(func() (err error) {
				conn, err = net.ListenIP(sctpProtocols[family], &net.IPAddr{IP: a.AsSlice()})
				return err
			})
			if err != nil {
				return err
			}
			n.sctp.conns = append(n.sctp.conns, conn)
			n.sctp.running.Go(func() { answerSCTP(conn, a) })
		}
	}
	return nil
}

// answerSCTP answers at one address until the socket is closed. Who sends to a port
// at which nobody listens hears nothing.
func answerSCTP(conn *net.IPConn, at netip.Addr) {
	buffer := make([]byte, 512)
	for {
		size, from, err := conn.ReadFromIP(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		got, ok := parseSCTP(buffer[:max(size, 0)])
		if err != nil || !ok || got.cookie != "" {
			continue // a refusal of an earlier answer, or nothing for us
		}
		name := fixture.WhoIs(netip.AddrPortFrom(at, got.target))
		client, valid := netip.AddrFromSlice(from.IP)
		if name == "" || !valid {
			continue
		}
		seen := netip.AddrPortFrom(client.Unmap(), got.source)
		reply := sctpPacket{source: got.target, target: got.source, tag: got.initiate, initiate: 1, cookie: fmt.Sprintf("%s %s", name, seen)}
		_, _ = conn.WriteToIP(reply.bytes(), from) // a client that has gone needs none
	}
}

func (s *sctp) close() error {
	var errs []error
	for _, conn := range s.conns {
		errs = append(errs, conn.Close())
	}
	s.running.Wait()
	return errors.Join(errs...)
}
