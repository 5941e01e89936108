// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/service"
)

// protocols are what first packets are of.
var protocols = [...]struct {
	name   string
	number byte
	port   uint16
}{{"tcp", unix.IPPROTO_TCP, webPort}, {"udp", unix.IPPROTO_UDP, askPort}}

const (
	etherLength = 14
	ipv4Length  = 20
	ipv6Length  = 40
)

// template is one kind of first packet, with its frame. The source and the time of sending are
// written into it before each use.
type template struct {
	family   service.Family
	protocol int
	frame    []byte
	// source and transport are where the client's address and the transport header begin.
	source, transport int
}

func newTemplate(family service.Family, protocol int, from, to net.HardwareAddr) *template {
	p := protocols[protocol]
	t := &template{family: family, protocol: protocol}
	frame := append(append([]byte{}, to...), from...)
	const length = 20 // of a SYN; a datagram has a payload of 12 bytes
	if family == service.IPv4 {
		frame = append(frame, 0x08, 0x00, 0x45, 0, 0, ipv4Length+length, 0, 0, 0x40, 0, 64, p.number, 0, 0)
		t.source, t.transport = etherLength+12, etherLength+ipv4Length
	} else {
		frame = append(frame, 0x86, 0xdd, 0x60, 0, 0, 0, 0, length, p.number, 64)
		t.source, t.transport = etherLength+8, etherLength+ipv6Length
	}
	frame = append(frame, make([]byte, t.transport+length-len(frame))...)
	copy(frame[t.transport-vip[family].BitLen()/8:], vip[family].AsSlice())
	header := frame[t.transport:]
	binary.BigEndian.PutUint16(header[2:], p.port)
	if p.number == unix.IPPROTO_TCP {
		header[12], header[13], header[14], header[15] = 5<<4, 0x02, 0xff, 0xff // SYN
	} else {
		binary.BigEndian.PutUint16(header[4:], length)
	}
	t.frame = frame
	return t
}

// fill makes the frame a packet of one client. The low bits of its address are its number.
func (t *template) fill(client uint32, port uint16, sent time.Duration) []byte {
	if t.family == service.IPv4 {
		binary.BigEndian.PutUint32(t.frame[t.source:], 0xc6120000|0x10000|client&0xffff) // 198.19.0.0/16
		t.frame[etherLength+10], t.frame[etherLength+11] = 0, 0
		sum := uint32(0)
		for at := etherLength; at < etherLength+ipv4Length; at += 2 {
			sum += uint32(binary.BigEndian.Uint16(t.frame[at:]))
		}
		sum = sum>>16 + sum&0xffff
		binary.BigEndian.PutUint16(t.frame[etherLength+10:], ^uint16(sum>>16+sum&0xffff))
	} else {
		copy(t.frame[t.source:], clients)
		binary.BigEndian.PutUint32(t.frame[t.source+12:], 0x10000+client)
	}
	header := t.frame[t.transport:]
	binary.BigEndian.PutUint16(header, port)
	at := header[4:] // the sequence number of a SYN
	if protocols[t.protocol].number == unix.IPPROTO_UDP {
		at = header[8:]
	}
	binary.BigEndian.PutUint32(at, uint32(sent/time.Microsecond))
	return t.frame
}

// clients is where IPv6 clients are: 2001:db8:1::/64.
var clients = []byte{0x20, 0x01, 0x0d, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0}

// seen is a packet that was not translated.
type seen struct {
	family   service.Family
	protocol int
	client   netip.AddrPort
	sent     time.Duration
}

// parse reads a frame. Others than ours are not ok.
func parse(frame []byte, now time.Duration) (s seen, ok bool) {
	if len(frame) < etherLength+ipv4Length+20 {
		return s, false
	}
	ip := frame[etherLength:]
	var header []byte
	var number byte
	var source, to netip.Addr
	switch binary.BigEndian.Uint16(frame[12:]) {
	case unix.ETH_P_IP:
		s.family, number, header = service.IPv4, ip[9], ip[ipv4Length:]
		source, _ = netip.AddrFromSlice(ip[12:16])
		to, _ = netip.AddrFromSlice(ip[16:20])
	case unix.ETH_P_IPV6:
		if len(ip) < ipv6Length+20 {
			return s, false
		}
		s.family, number, header = service.IPv6, ip[6], ip[ipv6Length:]
		source, _ = netip.AddrFromSlice(ip[8:24])
		to, _ = netip.AddrFromSlice(ip[24:40])
	}
	if to != vip[s.family] && to != clusterIP[s.family] {
		return s, false
	}
	at := header[4:]
	if number == unix.IPPROTO_UDP {
		s.protocol, at = 1, header[8:]
	}
	s.client = netip.AddrPortFrom(source, binary.BigEndian.Uint16(header))
	// The packet has the low 32 bits of the microseconds.
	ago := uint32(now/time.Microsecond) - binary.BigEndian.Uint32(at)
	s.sent = now - time.Duration(ago)*time.Microsecond
	return s, true
}
