package dispatch

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/sluice-proxy/sluice/service"
)

// Lane is the first byte of an element's name: the part of the container that
// the element belongs to.
type Lane byte

// The lanes, in the order in which packets pass them.
const (
	// Head rules stand before the tree in the root chain.
	Head Lane = iota
	// Tree elements are found by their key.
	Tree
	// Tail rules stand behind the tree in the root chain.
	Tail
)

// transportBytes is the length of protocol and port at the end of a key.
const transportBytes = 3

// HeadKey names a head rule. Head rules are ordered by name.
func HeadKey(name string) string { return string(byte(Head)) + name }

// TailKey names a tail rule. Tail rules are ordered by name.
func TailKey(name string) string { return string(byte(Tail)) + name }

// DestinationKey names an element of a ByDestination container. Byte order is
// tree order: lane, address, protocol number, port (big endian).
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
	// Text is the name of a head or tail rule; empty in the tree.
	Text string
	// Addr is invalid for head and tail rules and in ByPort containers.
	Addr netip.Addr
	// HasPort tells whether Protocol and Port mean anything.
	HasPort  bool
	Protocol service.Protocol
	Port     uint16
}

// DecodeKey is the inverse of HeadKey, TailKey, DestinationKey, PortKey and
// SourceKey. The error says that the name is none of theirs.
func DecodeKey(name string) (Key, error) {
	if name == "" || Lane(name[0]) > Tail {
		return Key{}, fmt.Errorf("dispatch key %x: no lane", name)
	}
	key := Key{Lane: Lane(name[0])}
	rest := name[1:]
	if key.Lane != Tree {
		key.Text = rest
		return key, nil
	}
	switch len(rest) {
	case 4, 16:
	case transportBytes, 4 + transportBytes, 16 + transportBytes:
		at := len(rest) - transportBytes
		protocol, ok := protocolOf(rest[at])
		if !ok {
			return Key{}, fmt.Errorf("dispatch key %x: protocol %d is not one of a Service", name, rest[at])
		}
		key.HasPort, key.Protocol = true, protocol
		key.Port = uint16(rest[at+1])<<8 | uint16(rest[at+2])
		rest = rest[:at]
	default:
		return Key{}, fmt.Errorf("dispatch key %x: no key has %d bytes", name, len(name))
	}
	if rest != "" {
		key.Addr, _ = netip.AddrFromSlice([]byte(rest))
	}
	return key, nil
}

// String gives the key for people, for example "172.30.0.41 tcp 80".
func (k Key) String() string {
	switch {
	case k.Lane == Head:
		return "head " + k.Text
	case k.Lane == Tail:
		return "tail " + k.Text
	case !k.HasPort:
		return k.Addr.String()
	case !k.Addr.IsValid():
		return fmt.Sprintf("%s %d", k.Protocol, k.Port)
	default:
		return fmt.Sprintf("%s %s %d", k.Addr, k.Protocol, k.Port)
	}
}

// protocols are those a Service may name, in the order of their IANA numbers.
var protocols = [...]service.Protocol{service.TCP, service.UDP, service.SCTP}

func protocolOf(number byte) (service.Protocol, bool) {
	for _, p := range protocols {
		if p.Number() == number {
			return p, true
		}
	}
	return 0, false
}
