// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
)

// sctp are the servers that answer SCTP. Many kernels have no sockets for it, but every kernel that
// translates it follows its associations, and the first two packets suffice for that. They are sent
// from raw sockets.
type sctp struct {
	open    sync.Once
	openErr error
	conns   []*net.IPConn
	running sync.WaitGroup
	// asked counts questions. Each gets a separate port.
	asked atomic.Uint32
}

const sctpProtocol = 132

// sctpNetworks are the raw sockets of package net, by family.
var sctpNetworks = [...]string{service.IPv4: "ip4:132", service.IPv6: "ip6:132"}

// askSCTP sends an INIT and waits for the INIT ACK, which names the server.
func (n *Network) askSCTP(ctx context.Context, host *netns.Namespace, source, target netip.AddrPort) (netnstest.Answer, error) {
	if n.sctp.open.Do(func() { n.sctp.openErr = n.serveSCTP() }); n.sctp.openErr != nil {
		return netnstest.Answer{}, n.sctp.openErr
	}
	dialer := net.Dialer{}
	if source.IsValid() {
		dialer.LocalAddr = &net.IPAddr{IP: source.Addr().AsSlice()}
	}
	var conn net.Conn
	err := host.Do(func() (err error) {
		conn, err = dialer.DialContext(ctx, sctpNetworks[service.FamilyOf(target.Addr())], target.Addr().String())
		return err
	})
	if err != nil {
		return netnstest.Answer{}, err
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

func exchangeSCTP(ctx context.Context, conn *net.IPConn, request sctpPacket) (netnstest.Answer, error) {
	if err := untilEnd(ctx, conn); err != nil {
		return netnstest.Answer{}, err
	}
	if _, err := conn.Write(request.bytes()); err != nil {
		return netnstest.Answer{}, err
	}
	buffer := make([]byte, 512)
	for {
		// Unlike Read, this omits the IPv4 header.
		size, _, err := conn.ReadFrom(buffer)
		if err != nil {
			return netnstest.Answer{}, err
		}
		got, ok := parseSCTP(buffer[:size])
		if !ok || got.source != request.target || got.target != request.source || got.tag != request.initiate {
			continue
		}
		name, client, _ := strings.Cut(got.cookie, " ")
		at, err := netip.ParseAddrPort(client)
		if err != nil {
			return netnstest.Answer{}, fmt.Errorf("the cookie %q: %w", got.cookie, err)
		}
		return netnstest.Answer{Backend: name, Client: at}, nil
	}
}

// serveSCTP makes every server of the fixture answer SCTP, too.
func (n *Network) serveSCTP() error {
	at := map[netip.Addr]string{}
	for _, s := range servers() {
		at[s.At.Addr()] = s.Host
	}
	for a, host := range at {
		var conn *net.IPConn
		err := n.Hosts[host].Do(func() (err error) {
			conn, err = net.ListenIP(sctpNetworks[service.FamilyOf(a)], &net.IPAddr{IP: a.AsSlice()})
			return err
		})
		if err != nil {
			return err
		}
		n.sctp.conns = append(n.sctp.conns, conn)
		n.sctp.running.Go(func() { answerSCTP(conn, a) })
	}
	return nil
}

// answerSCTP answers at one address until the socket is closed. At a port without a server, it
// stays silent.
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

// The first two packets of an SCTP association (RFC 9260, sections 3.1 to 3.3.3): INIT, and INIT
// ACK, whose state cookie holds the answer.
const (
	sctpHeader = 12 // ports, verification tag, checksum
	sctpInit   = 20 // chunk header, initiate tag, window, streams, initial TSN
	initChunk  = 1
	ackChunk   = 2
	cookieType = 7
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sctpPacket is an INIT, or an INIT ACK if it has a cookie.
type sctpPacket struct {
	source, target uint16
	// tag is the verification tag, 0 for INIT. initiate is the tag that the other side has to use.
	tag, initiate uint32
	cookie        string
}

func (p sctpPacket) bytes() []byte {
	b := make([]byte, sctpHeader+sctpInit)
	binary.BigEndian.PutUint16(b[0:], p.source)
	binary.BigEndian.PutUint16(b[2:], p.target)
	binary.BigEndian.PutUint32(b[4:], p.tag)
	chunk := b[sctpHeader:]
	chunk[0] = initChunk
	if p.cookie != "" {
		chunk[0] = ackChunk
		b = append(b, 0, cookieType)
		b = binary.BigEndian.AppendUint16(b, uint16(4+len(p.cookie)))
		b = append(b, p.cookie...)
		chunk = b[sctpHeader:]
	}
	binary.BigEndian.PutUint16(chunk[2:], uint16(len(chunk)))
	binary.BigEndian.PutUint32(chunk[4:], p.initiate)
	const window = 65536
	binary.BigEndian.PutUint32(chunk[8:], window)
	binary.BigEndian.PutUint16(chunk[12:], 1) // streams each way
	binary.BigEndian.PutUint16(chunk[14:], 1)
	binary.BigEndian.PutUint32(chunk[16:], 1)
	for len(b)%4 != 0 {
		b = append(b, 0) // counts in no length
	}
	binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b, castagnoli))
	return b
}

// parseSCTP reads what bytes has written. It returns false for any other packet, and for a wrong
// checksum.
func parseSCTP(b []byte) (sctpPacket, bool) {
	if len(b) < sctpHeader+sctpInit {
		return sctpPacket{}, false
	}
	p := sctpPacket{
		source: binary.BigEndian.Uint16(b[0:]), target: binary.BigEndian.Uint16(b[2:]),
		tag: binary.BigEndian.Uint32(b[4:]), initiate: binary.BigEndian.Uint32(b[sctpHeader+4:]),
	}
	whole := append([]byte(nil), b...)
	binary.LittleEndian.PutUint32(whole[8:], 0)
	if crc32.Checksum(whole, castagnoli) != binary.LittleEndian.Uint32(b[8:]) {
		return sctpPacket{}, false
	}
	switch b[sctpHeader] {
	case initChunk:
		return p, true
	case ackChunk:
		rest := b[sctpHeader+sctpInit:]
		if len(rest) < 4 || rest[1] != cookieType {
			return sctpPacket{}, false
		}
		size := int(binary.BigEndian.Uint16(rest[2:]))
		if size < 4 || size > len(rest) {
			return sctpPacket{}, false
		}
		p.cookie = string(rest[4:size])
		return p, true
	default:
		return sctpPacket{}, false
	}
}
