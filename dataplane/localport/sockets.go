package localport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// sockets opens sockets in the network namespace of the writer. A socket stays
// in the namespace that it was opened in, whoever uses it, and those accepted
// from it are in it, too.
type sockets struct {
	inside      func(func() error) error
	dialTimeout time.Duration
}

// keepAlive finds peers that are gone without a word, after about two minutes.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: time.Minute, Interval: 15 * time.Second, Count: 4}

// network gives the name of a protocol in one family. With IPv6 in the name,
// package net sets IPV6_V6ONLY.
func network(protocol service.Protocol, addr netip.Addr) string {
	if addr.Is4() {
		return protocol.String() + "4"
	}
	return protocol.String() + "6"
}

// listenTCP opens a listener. Plain TCP: what Multipath TCP would add ends at
// the loopback interface.
func (s *sockets) listenTCP(at netip.AddrPort) (*net.TCPListener, error) {
	config := net.ListenConfig{KeepAliveConfig: keepAlive}
	config.SetMultipathTCP(false)
	return open(s, func() (*net.TCPListener, error) {
		l, err := config.Listen(context.Background(), network(service.TCP, at.Addr()), at.String())
		if err != nil {
			return nil, err
		}
		return l.(*net.TCPListener), nil // a listener of a tcp network always is one
	})
}

// listenUDP opens a socket that takes datagrams from anybody.
func (s *sockets) listenUDP(at netip.AddrPort) (*net.UDPConn, error) {
	return open(s, func() (*net.UDPConn, error) {
		return net.ListenUDP(network(service.UDP, at.Addr()), net.UDPAddrFromAddrPort(at))
	})
}

// dialTCP connects; it blocks for dialTimeout at most.
func (s *sockets) dialTCP(ctx context.Context, target netip.AddrPort) (*net.TCPConn, error) {
	dialer := net.Dialer{Timeout: s.dialTimeout, KeepAliveConfig: keepAlive}
	dialer.SetMultipathTCP(false)
	return open(s, func() (*net.TCPConn, error) {
		c, err := dialer.DialContext(ctx, network(service.TCP, target.Addr()), target.String())
		if err != nil {
			return nil, err
		}
		return c.(*net.TCPConn), nil // a connection of a tcp network always is one
	})
}

// dialUDP opens a socket that talks to the target alone. Nothing is sent.
func (s *sockets) dialUDP(target netip.AddrPort) (*net.UDPConn, error) {
	return open(s, func() (*net.UDPConn, error) {
		return net.DialUDP(network(service.UDP, target.Addr()), nil, net.UDPAddrFromAddrPort(target))
	})
}

// open calls f in the namespace.
func open[T any](s *sockets, f func() (T, error)) (socket T, err error) {
	err = s.inside(func() error {
		var err error
		socket, err = f()
		return err
	})
	return socket, err
}

// Probe tells whether a family's loopback address can be listened on; a host
// without IPv6 has no ::1. The function inside is that of Config; nil for the
// process's own namespace.
func Probe(family service.Family, inside func(func() error) error) error {
	if inside == nil {
		inside = here
	}
	s := &sockets{inside: inside}
	at := netip.AddrPortFrom(loopback[family], 0)
	tcp, err := s.listenTCP(at)
	if err == nil {
		var udp *net.UDPConn
		if udp, err = s.listenUDP(at); err == nil {
			err = udp.Close()
		}
		err = errors.Join(err, tcp.Close())
	}
	if err != nil {
		return fmt.Errorf("node ports on %s: %w", loopback[family], err)
	}
	return nil
}
