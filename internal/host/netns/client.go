// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"context"
	"net"
	"net/netip"
)

// NoProbes switches keepalive probes off. While the rules that translate a connection are missing, a
// probe destroys the connection: it reaches a host that does not know the connection, and that host
// answers with a reset. Crossing probes of both ends can destroy it even after the rules are back
// (TestRepair_ForeignDeletions). Without probes, a connection on which neither end writes sends no
// packets, so it survives.
const NoProbes = -1

// DialContext connects from inside the namespace. TCP connections send no keepalive probes. The signature is that of
// net.Dialer.DialContext, so it fits an http.Transport. The host in addr must be a literal address: package net
// resolves names, and tries their addresses, on separate goroutines, which are not inside the namespace.
func (n *Namespace) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	if _, err := netip.ParseAddrPort(addr); err != nil {
		return nil, n.errorf("dial %s %s: the host must be a literal address, names are not resolved here: %w", network, addr, err)
	}
	var conn net.Conn
	err := n.Do(func() error {
		var err error
		conn, err = (&net.Dialer{KeepAlive: NoProbes}).DialContext(ctx, network, addr)
		return err
	})
	if err != nil {
		return nil, n.errorf("%w", err)
	}
	return conn, nil
}

// Listen listens inside the namespace. Connections accepted later are inside it too, and send no
// keepalive probes.
func (n *Namespace) Listen(network, addr string) (net.Listener, error) {
	if err := n.checkLiteral(network, addr); err != nil {
		return nil, err
	}
	config := net.ListenConfig{KeepAlive: NoProbes}
	var listener net.Listener
	err := n.Do(func() error {
		var err error
		listener, err = config.Listen(context.Background(), network, addr)
		return err
	})
	if err != nil {
		return nil, n.errorf("%w", err)
	}
	return listener, nil
}

// ListenPacket opens a datagram socket inside the namespace.
func (n *Namespace) ListenPacket(network, addr string) (net.PacketConn, error) {
	if err := n.checkLiteral(network, addr); err != nil {
		return nil, err
	}
	var conn net.PacketConn
	err := n.Do(func() error {
		var err error
		conn, err = net.ListenPacket(network, addr)
		return err
	})
	if err != nil {
		return nil, n.errorf("%w", err)
	}
	return conn, nil
}

// checkLiteral rejects host names, for the reason given at DialContext. An empty host means every address.
func (n *Namespace) checkLiteral(network, addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return n.errorf("listen %s %s: %w", network, addr, err)
	}
	if host == "" {
		return nil
	}
	if _, err := netip.ParseAddr(host); err != nil {
		return n.errorf("listen %s %s: the host must be a literal address, names are not resolved here: %w", network, addr, err)
	}
	return nil
}
