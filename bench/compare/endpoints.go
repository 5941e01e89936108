package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/host/netns"
)

// endpointPort is where every endpoint answers, over TCP and UDP.
const endpointPort = 8080

// endpoints answers at every address of its namespace, at one port, in the form of a [netns.Backend]: the
// address that the client reached, the client's address, and then the client's own lines.
type endpoints struct {
	v6  bool
	tcp net.Listener
	udp *net.UDPConn

	running sync.WaitGroup
	mu      sync.Mutex
	conns   map[net.Conn]struct{}
}

func startEndpoints(host *netns.Namespace, family string, port int) (*endpoints, error) {
	at := fmt.Sprintf("0.0.0.0:%d", port)
	if family == "6" {
		at = fmt.Sprintf("[::]:%d", port)
	}
	tcp, err := host.Listen("tcp"+family, at)
	if err != nil {
		return nil, err
	}
	udp, err := host.ListenPacket("udp"+family, at)
	if err != nil {
		return nil, errors.Join(err, tcp.Close())
	}
	e := &endpoints{v6: family == "6", tcp: tcp, udp: udp.(*net.UDPConn), conns: map[net.Conn]struct{}{}}
	if err := wantDestination(e.udp, e.v6); err != nil {
		return nil, errors.Join(err, tcp.Close(), udp.Close())
	}
	e.running.Go(e.serveTCP)
	e.running.Go(e.serveUDP)
	return e, nil
}

// wantDestination makes the kernel say which address each datagram was sent to.
func wantDestination(udp *net.UDPConn, v6 bool) error {
	level, option := unix.IPPROTO_IP, unix.IP_PKTINFO
	if v6 {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO
	}
	raw, err := udp.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	err = raw.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), level, option, 1) })
	return errors.Join(err, set)
}

func (e *endpoints) close() error {
	err := errors.Join(e.tcp.Close(), e.udp.Close())
	e.mu.Lock()
	for conn := range e.conns {
		_ = conn.Close() // the client may have been faster
	}
	e.mu.Unlock()
	e.running.Wait()
	return err
}

func (e *endpoints) serveTCP() {
	for {
		conn, err := e.tcp.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			e.running.Go(func() { e.talk(conn) })
		}
	}
}

// talk serves one connection. Errors end it, and the client sees that.
func (e *endpoints) talk(conn net.Conn) {
	e.mu.Lock()
	e.conns[conn] = struct{}{}
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		delete(e.conns, conn)
		e.mu.Unlock()
		_ = conn.Close()
	}()
	reached := conn.LocalAddr().(*net.TCPAddr).AddrPort().Addr()
	if _, err := fmt.Fprintf(conn, "%s %s\n", reached, conn.RemoteAddr()); err != nil {
		return
	}
	lines := bufio.NewReaderSize(conn, 128)
	for {
		line, err := lines.ReadString('\n')
		if err == nil {
			_, err = io.WriteString(conn, line)
		}
		if err != nil {
			return
		}
	}
}

func (e *endpoints) serveUDP() {
	question, control := make([]byte, 64), make([]byte, 256)
	for {
		_, size, _, client, err := e.udp.ReadMsgUDPAddrPort(question, control)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		reached, ok := destination(control[:size])
		if err != nil || !ok {
			continue // an earlier answer was refused
		}
		var from []byte
		if e.v6 {
			from = unix.PktInfo6(&unix.Inet6Pktinfo{Addr: reached.As16()})
		} else {
			from = unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: reached.As4()})
		}
		// A client that has left is no reason to stop.
		_, _, _ = e.udp.WriteMsgUDPAddrPort(fmt.Appendf(nil, "%s %s", reached, client), from, client)
	}
}

// destination returns where a datagram was sent to.
func destination(control []byte) (netip.Addr, bool) {
	messages, err := syscall.ParseSocketControlMessage(control)
	if err != nil {
		return netip.Addr{}, false
	}
	for _, m := range messages {
		// struct in_pktinfo: the interface, the local address, the destination; four bytes each.
		if m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_PKTINFO && len(m.Data) >= 12 {
			return netip.AddrFrom4([4]byte(m.Data[8:12])), true
		}
		// struct in6_pktinfo: the destination, the interface.
		if m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_PKTINFO && len(m.Data) >= 16 {
			return netip.AddrFrom16([16]byte(m.Data[:16])), true
		}
	}
	return netip.Addr{}, false
}
