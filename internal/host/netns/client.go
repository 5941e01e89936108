package netns

import (
	"context"
	"net"
	"net/netip"
)

// DialContext connects from inside the namespace. The signature is that of net.Dialer.DialContext,
// so it fits an http.Transport. The host in addr must be a literal address: package net resolves
// names, and tries their addresses, on separate goroutines, which are not inside the namespace.
func (n *Namespace) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	if _, err := netip.ParseAddrPort(addr); err != nil {
		return nil, n.errorf("dial %s %s: the host must be a literal address, names are not resolved here: %w", network, addr, err)
	}
	var conn net.Conn
	err := n.Do(func() error {
		var err error
		conn, err = (&net.Dialer{}).DialContext(ctx, network, addr)
		return err
	})
	if err != nil {
		return nil, n.errorf("%w", err)
	}
	return conn, nil
}

// Listen listens inside the namespace; connections accepted later are inside it too.
func (n *Namespace) Listen(network, addr string) (net.Listener, error) {
	if err := n.checkLiteral(network, addr); err != nil {
		return nil, err
	}
	var listener net.Listener
	err := n.Do(func() error {
		var err error
		listener, err = net.Listen(network, addr)
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

// checkLiteral refuses host names, for the reason given at DialContext. An empty host means every
// address.
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
