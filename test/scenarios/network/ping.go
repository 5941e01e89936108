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
	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
)

// Types of ICMP messages.
const (
	echoReply4, echoRequest4 = 0, 8
	echoRequest6, echoReply6 = 128, 129
)

// Ping sends one echo request and waits until the context ends for what comes of
// it. What is neither a reply nor a refusal nor silence is an error.
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
	switch {
	case err == nil:
		return fixture.Answered, nil
	case errors.Is(err, syscall.ECONNREFUSED):
		return fixture.Refused, nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fixture.Silent, nil
	default:
		return 0, fmt.Errorf("ping from %s to %s: %w", client, to, err)
	}
}

// dialICMP opens a connected socket, since no other is told of refusals.
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
	deadline, ok := ctx.Deadline()
	if !ok {
		return errors.New("nobody said how long to wait")
	}
	if err := conn.SetDeadline(deadline); err != nil {
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
		// Unlike Read, this leaves the header of IPv4 out.
		size, _, err := conn.ReadFrom(message)
		if err != nil {
			return err
		}
		if size >= 8 && message[0] == reply && binary.BigEndian.Uint16(message[4:]) == id {
			return nil
		}
	}
}

// echo makes an echo request. The kernel overwrites the checksum of ICMPv6, which
// covers addresses, too.
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
