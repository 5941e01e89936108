// SPDX-License-Identifier: Apache-2.0

// Package sample receives the packets that begin connections to given frontends before any rule decides about them. The
// kernel sends their headers to this process (nfnetlink_log). The rules are in a temporary table; see package owned.
package sample

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables/owned"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// PerSecond is the limit of sampled packets per second, for each family and hook; burst is the limit of packets at the
// same time. The kernel omits further packets and does not count them.
const (
	PerSecond = 1000
	burst     = 1000
)

// Packet is a packet that begins a connection.
type Packet struct {
	// Protocol is the IP protocol number.
	Protocol uint8
	From, To netip.AddrPort
}

// Sampler samples packets to the frontends of its sets. Set and Run may run concurrently.
type Sampler struct {
	tables   service.PerFamily[*owned.Table]
	listener *netlink.Listener
}

// Open returns a sampler without frontends, in the network namespace of the calling thread. It needs CAP_NET_ADMIN and
// Linux 5.12 with nf_tables and nfnetlink_log.
func Open() (s *Sampler, err error) {
	s = &Sampler{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.listener, err = netlink.Listen(unix.NETLINK_NETFILTER, nil); err != nil {
		return s, err
	}
	group, err := s.bind()
	if err != nil {
		return s, fmt.Errorf("receive packets from the kernel: %w", err)
	}
	for _, family := range service.Families {
		if s.tables[family], err = addTable(family, group); err != nil {
			return s, err
		}
	}
	return s, nil
}

// Close removes all rules.
func (s *Sampler) Close() (err error) {
	for _, t := range s.tables {
		if t != nil {
			err = errors.Join(err, t.Close())
		}
	}
	if s.listener != nil {
		err = errors.Join(err, s.listener.Close())
	}
	return err
}

// Messages and attributes of nfnetlink_log; package unix does not name them.
const (
	messagePacket = 0 // NFULNL_MSG_PACKET
	messageConfig = 1 // NFULNL_MSG_CONFIG

	attrCommand = 1 // NFULA_CFG_CMD
	attrMode    = 2 // NFULA_CFG_MODE
	attrQueue   = 5 // NFULA_CFG_QTHRESH
	commandBind = 1 // NFULNL_CFG_CMD_BIND
	copyPacket  = 2 // NFULNL_COPY_PACKET

	attrPayload = 9 // NFULA_PAYLOAD

	// headerBytes of each packet are copied, which is enough for the header of IPv6 and the ports.
	headerBytes = 64
)

// bindTries limits the search for a group that no other program uses.
const bindTries = 16

// bind makes the kernel send the packets of a group to the listener.
func (s *Sampler) bind() (group uint16, err error) {
	for range bindTries {
		group = uint16(1<<15 + rand.IntN(1<<15))
		if err = s.configure(group, attrCommand, commandBind); !errors.Is(err, unix.EBUSY) {
			break
		}
	}
	if err == nil {
		mode := binary.BigEndian.AppendUint32(nil, headerBytes)
		err = s.configure(group, attrMode, append(mode, copyPacket, 0)...)
	}
	if err == nil {
		err = s.configure(group, attrQueue, 0, 0, 0, 1) // each packet immediately
	}
	return group, err
}

// configure sets one attribute of a group.
func (s *Sampler) configure(group uint16, attr uint16, value ...byte) error {
	request, mark := netlink.Begin(nil, unix.NFNL_SUBSYS_ULOG<<8|messageConfig, unix.NLM_F_ACK)
	request = append(request, unix.AF_UNSPEC, unix.NFNETLINK_V0, byte(group>>8), byte(group))
	request = netlink.Finish(netlink.AppendBytes(request, attr, value), mark)
	if err := s.listener.Send(request); err != nil {
		return err
	}
	var failed error
	err := s.listener.Pending(func(m netlink.Message) {
		if a, ok := netlink.ParseAnswer(m); ok {
			failed = a.Err()
		}
	}, func() {})
	return errors.Join(err, failed)
}

// Run calls each for every packet, and lost if packets were lost because there were too many, until the context ends.
// It returns the context's cause.
func (s *Sampler) Run(ctx context.Context, each func(Packet), lost func()) error {
	return s.listener.Run(ctx, func(m netlink.Message) {
		got, ok := m.Netfilter(unix.NFNL_SUBSYS_ULOG)
		if !ok || got.Kind != messagePacket {
			return
		}
		if p, ok := parse(netlink.Find(got.Attrs, attrPayload).Data); ok {
			each(p)
		}
	}, lost)
}

// parse reads the headers of a packet. It returns false for a fragment, for protocols without ports and for IPv6 with
// extension headers.
func parse(b []byte) (p Packet, ok bool) {
	var from, to []byte
	switch {
	case len(b) >= 20 && b[0]>>4 == 4:
		const offset = 0x1fff // bits of the fragment's offset
		if binary.BigEndian.Uint16(b[6:])&offset != 0 {
			return p, false
		}
		from, to, p.Protocol, b = b[12:16], b[16:20], b[9], b[min(len(b), int(b[0]&15)*4):]
	case len(b) >= 40 && b[0]>>4 == 6:
		from, to, p.Protocol, b = b[8:24], b[24:40], b[6], b[40:]
	default:
		return p, false
	}
	switch p.Protocol {
	case unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP:
	default:
		return p, false
	}
	if len(b) < 4 {
		return p, false
	}
	source, _ := netip.AddrFromSlice(from)
	destination, _ := netip.AddrFromSlice(to)
	p.From = netip.AddrPortFrom(source, binary.BigEndian.Uint16(b))
	p.To = netip.AddrPortFrom(destination, binary.BigEndian.Uint16(b[2:]))
	return p, true
}
