// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/rules"
	"github.com/sluice-proxy/sluice/service"
)

// Shape defines what the keys of a container's tree elements contain, and therefore what its jumps match.
type Shape uint8

const (
	// ByDestination keys hold destination address, protocol and port.
	ByDestination Shape = iota
	// ByPort keys hold protocol and destination port.
	ByPort
	// BySource keys hold a source address.
	BySource
)

// Container is one dispatch chain and the tree of chains below it.
type Container struct {
	// Table is the iptables table, for example "nat".
	Table string
	// Chain is the name of the root chain, for example "KUBE-SERVICES".
	Chain string
	// Letter distinguishes the container's chains from those of other containers in their names.
	Letter byte
	Shape  Shape
	// Guarded puts one jump before the tree, which matches the prefix that all elements share. It is for
	// containers with elements that few packets match.
	Guarded bool
}

// Name returns the Container part of the identity of this container's elements, for example
// "nat/KUBE-SERVICES".
func (c Container) Name() string { return c.Table + "/" + c.Chain }

// ID returns the identity of the container's root chain.
func (c Container) ID() dataplane.ID { return c.chainID(c.Chain) }

func (c Container) chainID(name string) dataplane.ID {
	return dataplane.ID{Container: c.Table, Name: name}
}

// addressBits is the number of address bits in a key.
func (c Container) addressBits(family service.Family) int {
	if c.Shape == ByPort {
		return 0
	}
	return family.Bits()
}

// keyBytes is the length of a tree key without its lane.
func (c Container) keyBytes(family service.Family) int {
	n := c.addressBits(family) / 8
	if c.Shape != BySource {
		n += transportBytes
	}
	return n
}

// Lane is the first byte of an element's name: the part of the container that the element
// belongs to.
type Lane byte

// The lanes, in the order in which packets pass them.
const (
	// Tree elements are found by their key.
	Tree Lane = iota + 1
	// Tail rules follow the tree in the root chain.
	Tail
)

// transportBytes is the length of protocol and port at the end of a key.
const transportBytes = 3

// TailKey names a tail rule. Tail rules are ordered by name.
func TailKey(name string) string { return string(byte(Tail)) + name }

// DestinationKey names an element of a ByDestination container. Byte order is tree order: lane,
// address, protocol number, port (big endian).
func DestinationKey(addr netip.Addr, protocol service.Protocol, port uint16) string {
	var b [1 + 16 + transportBytes]byte
	return string(appendTransport(appendAddrKey(b[:0], addr), protocol, port))
}

// PortKey names an element of a ByPort container.
func PortKey(protocol service.Protocol, port uint16) string {
	var b [1 + transportBytes]byte
	return string(appendTransport(append(b[:0], byte(Tree)), protocol, port))
}

// SourceKey names an element of a BySource container.
func SourceKey(addr netip.Addr) string {
	var b [1 + 16]byte
	return string(appendAddrKey(b[:0], addr))
}

func appendAddrKey(b []byte, addr netip.Addr) []byte {
	b = append(b, byte(Tree))
	if addr.Is4() {
		a := addr.As4()
		return append(b, a[:]...)
	}
	a := addr.As16()
	return append(b, a[:]...)
}

func appendTransport(b []byte, protocol service.Protocol, port uint16) []byte {
	return binary.BigEndian.AppendUint16(append(b, protocol.Number()), port)
}

// Key is the decoded name of an element.
type Key struct {
	Lane Lane
	// Text is the name of a tail rule, empty in the tree.
	Text string
	// Addr is invalid for tail rules and in ByPort containers.
	Addr netip.Addr
	// HasPort reports whether Protocol and Port are set.
	HasPort  bool
	Protocol service.Protocol
	Port     uint16
}

// DecodeKey is the reverse of TailKey, DestinationKey, PortKey and SourceKey. It fails for any other
// name.
func DecodeKey(name string) (Key, error) {
	if !hasLane(name) {
		return Key{}, fmt.Errorf("dispatch key %x: no lane", name)
	}
	key := Key{Lane: Lane(name[0])}
	rest := name[1:]
	if key.Lane == Tail {
		key.Text = rest
		return key, nil
	}
	switch len(rest) {
	case 4, 16:
	case transportBytes, 4 + transportBytes, 16 + transportBytes:
		at := len(rest) - transportBytes
		protocol, ok := service.ProtocolOf(rest[at])
		if !ok {
			return Key{}, fmt.Errorf("dispatch key %x: no Service uses protocol %d", name, rest[at])
		}
		key.HasPort, key.Protocol = true, protocol
		key.Port = uint16(rest[at+1])<<8 | uint16(rest[at+2])
		rest = rest[:at]
	default:
		return Key{}, fmt.Errorf("dispatch key %x: invalid length %d", name, len(name))
	}
	if rest != "" {
		key.Addr, _ = netip.AddrFromSlice([]byte(rest))
	}
	return key, nil
}

func hasLane(name string) bool {
	return name != "" && (Lane(name[0]) == Tree || Lane(name[0]) == Tail)
}

// protocols are the protocols of Services, in the order of their IANA numbers.
var protocols = [...]service.Protocol{service.TCP, service.UDP, service.SCTP}

// prefix is the set of all keys that start with the first bits of a key.
type prefix struct {
	key string
	// bits is the number of these bits.
	bits int
}

// plainBits is the longest prefix that a chain's name shows in hexadecimal. Longer ones are hashed.
const plainBits = 32

const hexDigits = "0123456789ABCDEF"

// appendChain appends the name of the chain that serves a prefix, at most 28 bytes
// (XT_EXTENSION_MAXNAMELEN without its zero byte). Because of the prefix KUBE-SVC-, kube-proxy removes
// them as stale chains if it is started again. A hyphen where kube-proxy's chains have none
// distinguishes the names.
//
//	KUBE-SVC-TS-AC1E0000-20         172.30.0.0/20 in the container of letter S
//	KUBE-SVC-TS-K4JXW6ZQ7L2MPO5A    a longer prefix
func (c Container) appendChain(b []byte, p prefix) []byte {
	b = append(append(b, chainPrefix...), c.Letter, '-')
	if p.bits > plainBits {
		return appendDigest(b, p)
	}
	var masked [plainBits / 8]byte
	n := p.masked(masked[:])
	for _, octet := range masked[:n] {
		b = append(b, hexDigits[octet>>4], hexDigits[octet&15])
	}
	b = append(b, '-')
	return strconv.AppendInt(b, int64(p.bits), 10)
}

// chainPrefix begins the names of all chains below a root; the container's letter follows.
const chainPrefix = "KUBE-SVC-T"

// appendDigest appends 16 characters that identify a prefix.
func appendDigest(b []byte, p prefix) []byte {
	var input [1 + 16 + transportBytes]byte
	input[0] = byte(p.bits)
	n := p.masked(input[1:])
	sum := sha256.Sum256(input[:1+n])
	return base32.StdEncoding.AppendEncode(b, sum[:10])
}

// masked copies the key to b, clears the bits beyond the prefix, and returns the number of bytes.
func (p prefix) masked(b []byte) int {
	n := copy(b, p.key)
	for i := range n {
		switch keep := p.bits - i*8; {
		case keep <= 0:
			b[i] = 0
		case keep < 8:
			b[i] &= ^byte(0) << (8 - keep)
		}
	}
	return n
}

// appendMatches appends the matches of the rules that together cover a prefix, one text per rule.
func (c Container) appendMatches(matches []string, family service.Family, p prefix) []string {
	var b [128]byte
	text := b[:0]
	addressBits := c.addressBits(family)
	if addressBits > 0 {
		text = c.appendAddress(text, p, addressBits)
	}
	if p.bits <= addressBits {
		return append(matches, string(text))
	}
	return appendTransportMatches(matches, text, p, addressBits)
}

func (c Container) appendAddress(text []byte, p prefix, addressBits int) []byte {
	var raw [16]byte
	copy(raw[:], p.key[:addressBits/8])
	addr := netip.AddrFrom16(raw)
	if addressBits == 32 {
		addr = netip.AddrFrom4([4]byte(raw[:4]))
	}
	flag := "-d "
	if c.Shape == BySource {
		flag = "-s "
	}
	return rules.AppendPrefix(append(text, flag...), netip.PrefixFrom(addr, min(p.bits, addressBits)))
}

// appendTransportMatches covers a prefix that ends within the protocol or the port, which begin at bit
// from: with one rule for each protocol of Services that the prefix allows. There is more than one only
// if the prefix ends within the protocol.
func appendTransportMatches(matches []string, address []byte, p prefix, from int) []string {
	number := p.key[from/8]
	ports := max(p.bits-from-8, 0)
	low := uint16(p.key[from/8+1])<<8 | uint16(p.key[from/8+2])
	low &= ^uint16(0) << (16 - ports)
	high := low | ^uint16(0)>>ports
	for _, protocol := range protocols {
		if (protocol.Number()^number)>>max(8-(p.bits-from), 0) != 0 {
			continue
		}
		text := append([]byte(nil), address...)
		if len(text) > 0 {
			text = append(text, ' ')
		}
		text = append(append(text, "-p "...), protocol.String()...)
		if ports > 0 {
			text = append(append(text, " -m "...), protocol.String()...)
			text = append(text, " --dport "...)
			text = strconv.AppendUint(text, uint64(low), 10)
			if low != high {
				text = append(text, ':')
				text = strconv.AppendUint(text, uint64(high), 10)
			}
		}
		matches = append(matches, string(text))
	}
	return matches
}
