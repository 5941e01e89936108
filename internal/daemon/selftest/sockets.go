// SPDX-License-Identifier: Apache-2.0

package selftest

import (
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/service"
)

// sockets are those of one family.
type sockets struct {
	// held keeps other processes from the frontend's port. It does not listen: without rules, the kernel refuses the
	// connection.
	held int
	// listener answers at the endpoint.
	listener net.Listener
}

// movesMax bounds the ports that are attempted.
const movesMax = 10

// open opens the sockets of each family that the node has. If another process or a Service has a port, it moves to other
// ports in all families, and reports true.
func (t *Test) open() (moved bool) {
	for range movesMax {
		if t.openAll() {
			break
		}
		t.close()
		t.ports, moved = otherPorts(), true
	}
	if moved {
		t.config.Moved(t.ports)
	}
	return moved
}

// openAll opens what is not open. It reports false if another process or a Service has a port.
func (t *Test) openAll() bool {
	if t.config.NodePort(t.ports.Frontend) || t.config.NodePort(t.ports.Endpoint) {
		return false
	}
	for _, family := range t.config.Families {
		if t.sockets[family] != nil {
			continue
		}
		opened, err := open(service.Loopback[family], t.ports)
		switch {
		case err == nil:
			t.sockets[family] = opened
			go t.answer(opened.listener)
		case errors.Is(err, unix.EADDRINUSE):
			return false
		}
		// Otherwise the node does not have the address, or not yet.
	}
	return true
}

// open opens the sockets at a loopback address.
func open(addr netip.Addr, ports service.SelfTest) (*sockets, error) {
	held, err := hold(netip.AddrPortFrom(addr, ports.Frontend))
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", netip.AddrPortFrom(addr, ports.Endpoint).String())
	if err != nil {
		_ = unix.Close(held)
		return nil, err
	}
	return &sockets{held, listener}, nil
}

// hold binds a socket.
func hold(at netip.AddrPort) (fd int, err error) {
	var to unix.Sockaddr
	domain := unix.AF_INET
	if at.Addr().Is4() {
		to = &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}
	} else {
		domain, to = unix.AF_INET6, &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()}
	}
	fd, err = unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.Bind(fd, to); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// otherPorts returns two ports of the range for dynamic use (RFC 6335). They may be in use.
func otherPorts() service.SelfTest {
	port := 49152 + 2*rand.N[uint16](8192)
	return service.SelfTest{Frontend: port, Endpoint: port + 1}
}

// serves reports whether this node has the family: the kernel cannot masquerade packets to 127.0.0.1 on a node without
// another IPv4 address (nf_nat_masquerade_ipv4), and drops them.
func serves(family service.Family) bool {
	own, err := net.InterfaceAddrs()
	return err == nil && (family == service.IPv6 || slices.ContainsFunc(own, func(a net.Addr) bool {
		prefix, ok := a.(*net.IPNet)
		return ok && prefix.IP.To4() != nil && prefix.IP.IsGlobalUnicast()
	}))
}

// answer sends the word to every client on this node. It reads nothing, so no client delays another one.
func (t *Test) answer(l net.Listener) {
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // for example, no descriptor is left
			time.Sleep(pause)
			continue
		}
		if onThisNode(conn.RemoteAddr()) {
			_, _ = conn.Write([]byte(t.word)) // it fits into an empty buffer
		}
		_ = conn.Close()
	}
}

// onThisNode reports whether a client is on this node. The rules may give it any address of the node.
func onThisNode(client net.Addr) bool {
	at, ok := client.(*net.TCPAddr)
	if !ok || at.IP.IsLoopback() {
		return ok
	}
	own, err := net.InterfaceAddrs()
	return err == nil && slices.ContainsFunc(own, func(a net.Addr) bool {
		prefix, ok := a.(*net.IPNet)
		return ok && prefix.IP.Equal(at.IP)
	})
}

// close closes all sockets.
func (t *Test) close() {
	for family, s := range t.sockets {
		if s != nil {
			_ = unix.Close(s.held)
			_ = s.listener.Close()
			t.sockets[family] = nil
		}
	}
}
