// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
)

// Ask makes one connection, or sends one datagram, from a separate socket. It returns an error
// for what is neither an answer nor a refusal nor silence.
func (n *Network) Ask(ctx context.Context, q fixture.Question) (fixture.Answer, error) {
	host, err := n.Host(q.From)
	if err != nil {
		return fixture.Answer{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, q.Patience)
	defer cancel()
	ask := func(ctx context.Context, network string, source, target netip.AddrPort) (netnstest.Answer, error) {
		return netnstest.AskFrom(ctx, host, network, source, target)
	}
	if q.Protocol == service.SCTP {
		ask = func(ctx context.Context, _ string, source, target netip.AddrPort) (netnstest.Answer, error) {
			return n.askSCTP(ctx, host, source, target)
		}
	}
	got, err := ask(ctx, q.Protocol.String(), q.Source, q.To)
	return n.Outcome(q, got, err)
}

// AskFlow sends one datagram on a flow and returns how it ends.
func (n *Network) AskFlow(ctx context.Context, f *netnstest.Flow, q fixture.Question) (fixture.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, q.Patience)
	defer cancel()
	got, err := f.Ask(ctx)
	return n.Outcome(q, got, err)
}

// Outcome returns how a question has ended, in the words of scenarios.
func (n *Network) Outcome(q fixture.Question, got netnstest.Answer, err error) (fixture.Answer, error) {
	if err == nil {
		return n.Answer(q, got), nil
	}
	fate, err := fateOf(err)
	if err != nil {
		return fixture.Answer{}, fmt.Errorf("%v: %w", q, err)
	}
	return fixture.Answer{Fate: fate}, nil
}

// fateOf returns the error itself when it is neither a refusal nor silence.
func fateOf(err error) (fixture.Fate, error) {
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fixture.Refused, nil
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.EACCES): // ICMP and ICMPv6, administratively prohibited
		return fixture.Prohibited, nil
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return fixture.Silent, nil
	default:
		return 0, err
	}
}

// Answer returns what a server has said to a client, in the words of scenarios.
func (n *Network) Answer(q fixture.Question, got netnstest.Answer) fixture.Answer {
	return fixture.Answer{Name: got.Backend, Source: n.source(q, got.Client.Addr())}
}

// source says whose address a server saw.
func (n *Network) source(q fixture.Question, seen netip.Addr) fixture.Source {
	switch {
	case q.Source.IsValid() && seen == q.Source.Addr(), q.From != "node" && seen == fixture.MustAddress(service.FamilyOf(seen), q.From):
		return fixture.AsClient
	case n.atNode[seen]:
		return fixture.AsNode
	default:
		return fixture.AsOther
	}
}

// EntryOf returns what the node tracks of a client's packets to a destination, or an empty entry if
// it tracks none. Two entries of the same connection are equal.
func (n *Network) EntryOf(protocol service.Protocol, source, destination netip.AddrPort) (netnstest.Entry, error) {
	all, err := netnstest.Conntrack(n.Node())
	if err != nil {
		return netnstest.Entry{}, err
	}
	number := map[service.Protocol]uint8{
		service.TCP: syscall.IPPROTO_TCP, service.UDP: syscall.IPPROTO_UDP, service.SCTP: sctpProtocol,
	}[protocol]
	for _, e := range all {
		if e.Protocol == number && e.Source == source && e.Destination == destination {
			e.Packets = 0
			return e, nil
		}
	}
	return netnstest.Entry{}, nil
}

// Types of ICMP messages.
const (
	echoReply4, echoRequest4 = 0, 8
	echoRequest6, echoReply6 = 128, 129
)

// Ping sends one echo request and waits for an answer until the context ends. It returns an error
// for what is neither a reply nor a refusal nor silence.
func (n *Network) Ping(ctx context.Context, client string, to netip.Addr) (fixture.Fate, error) {
	host, err := n.Host(client)
	if err != nil {
		return 0, err
	}
	conn, err := dialICMP(ctx, host, to)
	if err != nil {
		return 0, err
	}
	err = errors.Join(awaitEcho(ctx, conn, to), conn.Close())
	if err == nil {
		return fixture.Answered, nil
	}
	fate, err := fateOf(err)
	if err != nil {
		return 0, fmt.Errorf("ping from %s to %s: %w", client, to, err)
	}
	return fate, nil
}

// dialICMP opens a connected socket: the kernel reports refusals to no other.
func dialICMP(ctx context.Context, host *netns.Namespace, to netip.Addr) (*net.IPConn, error) {
	protocol := "ip4:icmp"
	if to.Is6() {
		protocol = "ip6:ipv6-icmp"
	}
	var conn net.Conn
	err := host.Do(func() (err error) {
		conn, err = new(net.Dialer).DialContext(ctx, protocol, to.String())
		return err
	})
	if err != nil {
		return nil, err
	}
	return conn.(*net.IPConn), nil // what package net makes of these protocols
}

func awaitEcho(ctx context.Context, conn *net.IPConn, to netip.Addr) error {
	if err := untilEnd(ctx, conn); err != nil {
		return err
	}
	request, reply := byte(echoRequest4), byte(echoReply4)
	if to.Is6() {
		request, reply = echoRequest6, echoReply6
	}
	const id = 0x51
	if _, err := conn.Write(echo(request, id)); err != nil {
		return err
	}
	message := make([]byte, 128)
	for {
		// Unlike Read, this omits the IPv4 header.
		size, _, err := conn.ReadFrom(message)
		if err != nil {
			return err
		}
		if size >= 8 && message[0] == reply && binary.BigEndian.Uint16(message[4:]) == id {
			return nil
		}
	}
}

// echo makes an echo request. The kernel overwrites the checksum of ICMPv6, which covers addresses,
// too.
func echo(kind byte, id uint16) []byte {
	message := []byte{kind, 0, 0, 0, 0, 0, 0, 1}
	binary.BigEndian.PutUint16(message[4:], id)
	sum := uint32(0)
	for i := 0; i < len(message); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(message[i:]))
	}
	binary.BigEndian.PutUint16(message[2:], ^uint16(sum+sum>>16))
	return message
}

// untilEnd applies the deadline of a context to a connection.
func untilEnd(ctx context.Context, conn net.Conn) error {
	deadline, ok := ctx.Deadline()
	if !ok {
		return errors.New("the context has no deadline")
	}
	return conn.SetDeadline(deadline)
}
