// SPDX-License-Identifier: Apache-2.0

// Package netlink is the transport under everything that Sluice encodes itself:
// nf_tables, conntrack, IPVS and ipset. It owns sockets, buffers, message headers,
// attributes, sequence numbers and answers. What a message means is its caller's
// business; netfilter's header and the announcements of nf_tables are here because
// several callers share them.
//
// Messages and attributes are appended to a byte slice, so that a caller with one
// buffer allocates nothing. A [Socket] has two kinds of conversation:
//
//   - [Socket.Exchange] sends any number of requests in one buffer. The kernel
//     answers those that it rejects, and those that ask for an answer. Usually only
//     the last one does: its answer shows that none was lost.
//   - [Socket.Ask] sends one question and reads the reply, which may be a dump. [Dump] repeats a dump that is
//     incomplete.
//
// A [Listener] receives what the kernel announces to a multicast group.
//
// docs/adr/0020-one-netlink-transport.md explains, with measurements, why Sluice does not
// use a library for this.
package netlink

import (
	"encoding/binary"
	"iter"

	"golang.org/x/sys/unix"
)

// HeaderBytes is the size of a message's header. The header of the protocol and the
// attributes follow it.
const HeaderBytes = unix.SizeofNlMsghdr

// The offsets of fields in the header.
const (
	kindAt  = 4
	flagsAt = 6
	seqAt   = 8
	portAt  = 12
)

// Message is a message that was received or is to be sent.
type Message struct {
	Kind, Flags uint16
	Seq         uint32
	// Port is the port ID of the socket whose request the message answers, or whose
	// change it announces.
	Port    uint32
	Payload []byte
}

// Messages iterates over the messages in a buffer. It stops at a malformed one.
func Messages(b []byte) iter.Seq[Message] {
	return func(yield func(Message) bool) {
		for len(b) >= HeaderBytes {
			size := int(binary.NativeEndian.Uint32(b))
			if size < HeaderBytes || size > len(b) {
				return
			}
			m := Message{
				Kind:    binary.NativeEndian.Uint16(b[kindAt:]),
				Flags:   binary.NativeEndian.Uint16(b[flagsAt:]),
				Seq:     binary.NativeEndian.Uint32(b[seqAt:]),
				Port:    binary.NativeEndian.Uint32(b[portAt:]),
				Payload: b[HeaderBytes:size],
			}
			if !yield(m) {
				return
			}
			b = b[min(aligned(size), len(b)):]
		}
	}
}

// Begin adds the header of a request; the caller adds the protocol's header and the
// attributes, and calls Finish with the mark. Flags are NLM_F_…. The socket numbers
// what it sends; see SetSeq.
func Begin(b []byte, kind, flags uint16) (begun []byte, mark int) {
	mark = len(b)
	b = append(b, 0, 0, 0, 0)
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = binary.NativeEndian.AppendUint16(b, flags|unix.NLM_F_REQUEST)
	return append(b, 0, 0, 0, 0, 0, 0, 0, 0), mark
}

// Finish writes the length of the message that Begin began.
func Finish(b []byte, mark int) []byte {
	binary.NativeEndian.PutUint32(b[mark:], uint32(len(b)-mark))
	return b
}

// AddFlags adds flags to the message at the beginning of a buffer.
func AddFlags(message []byte, flags uint16) {
	at := message[flagsAt:]
	binary.NativeEndian.PutUint16(at, binary.NativeEndian.Uint16(at)|flags)
}

// SetSeq numbers the message at the beginning of a buffer.
func SetSeq(message []byte, seq uint32) { binary.NativeEndian.PutUint32(message[seqAt:], seq) }

// netfilterBytes is the size of netfilter's header: family, version, resource.
const netfilterBytes = 4

// BeginNetfilter begins a request to a subsystem of netfilter (NFNL_SUBSYS_…) about
// a family (NFPROTO_…).
func BeginNetfilter(b []byte, subsystem, kind, flags uint16, family uint8) (begun []byte, mark int) {
	b, mark = Begin(b, subsystem<<8|kind, flags)
	return append(b, family, unix.NFNETLINK_V0, 0, 0), mark
}

// Netfilter is a message of a subsystem of netfilter.
type Netfilter struct {
	// Kind is the type of the message within the subsystem.
	Kind uint16
	// Family is NFPROTO_IPV4, NFPROTO_IPV6 or another one.
	Family uint8
	// Generation is the low 16 bits of the number of the ruleset generation that the kernel listed (nf_tables).
	Generation uint16
	// Port is as in Message.
	Port  uint32
	Attrs []byte
}

// Netfilter interprets a message. It returns false if the message belongs to another
// subsystem.
func (m Message) Netfilter(subsystem uint16) (Netfilter, bool) {
	if m.Kind>>8 != subsystem || len(m.Payload) < netfilterBytes {
		return Netfilter{}, false
	}
	return Netfilter{Kind: m.Kind & 0xff, Family: m.Payload[0], Generation: binary.BigEndian.Uint16(m.Payload[2:]), Port: m.Port, Attrs: m.Payload[netfilterBytes:]}, true
}
