package ipset

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
)

// Entry is one entry of a set of a known type. Which fields are used depends on
// the type; the others are zero. Comparable: equal entries are the same entry.
type Entry struct {
	// Addr is the first part of every hash type, without a zone.
	Addr netip.Addr
	// Protocol and Port are the second part; a bitmap has the port only.
	Protocol Protocol
	Port     uint16
	// Second is the third part: a network in masked form, or an address as a
	// network of itself alone.
	Second netip.Prefix
}

// ParseEntry reads an entry of a set of a type from the text that String gives.
// Other spellings of the same are taken as well if they are no names and no
// ranges: addresses that are not shortened, networks with host bits.
func ParseEntry(t Type, text string) (Entry, error) {
	e, ok := Entry{}, false
	parts := strings.Split(text, ",")
	switch {
	case t == BitmapPort && len(parts) == 1:
		ok = e.parsePort(text)
	case t == HashIP && len(parts) == 1:
		ok = e.parseAddr(text)
	case t == HashIPPort && len(parts) == 2:
		ok = e.parseAddr(parts[0]) && e.parseProtocolPort(parts[1])
	case (t == HashIPPortIP || t == HashIPPortNet) && len(parts) == 3:
		ok = e.parseAddr(parts[0]) && e.parseProtocolPort(parts[1]) && e.parseSecond(t, parts[2])
	}
	if !ok {
		return Entry{}, fmt.Errorf("ipset: %q is no entry of a set of type %s", text, t)
	}
	return e, nil
}

func (e *Entry) parseAddr(text string) bool {
	a, err := netip.ParseAddr(text)
	e.Addr = a
	return err == nil && a.Zone() == ""
}

func (e *Entry) parsePort(text string) bool {
	n, ok := parseNumber(text, 16)
	e.Port = uint16(n)
	return ok
}

func (e *Entry) parseProtocolPort(text string) bool {
	protocol, port, found := strings.Cut(text, ":")
	p, ok := parseProtocol(protocol)
	e.Protocol = p
	return found && ok && e.parsePort(port)
}

// parseSecond reads the third part, which has the family of the first.
func (e *Entry) parseSecond(t Type, text string) bool {
	if strings.Contains(text, "/") {
		p, err := netip.ParsePrefix(text)
		e.Second = p.Masked()
		// A hash of networks cannot keep the network of everything.
		return err == nil && t == HashIPPortNet && p.Bits() > 0 && p.Addr().BitLen() == e.Addr.BitLen()
	}
	a, err := netip.ParseAddr(text)
	e.Second = netip.PrefixFrom(a, a.BitLen())
	return err == nil && a.Zone() == "" && a.BitLen() == e.Addr.BitLen()
}

// String gives the entry as ipset(8) prints it: a network of one address without
// its length, and no brackets around IPv6 addresses.
func (e Entry) String() string {
	if !e.Addr.IsValid() {
		return strconv.Itoa(int(e.Port))
	}
	b := e.Addr.AppendTo(make([]byte, 0, 64))
	if e.Protocol != 0 {
		b = append(b, ',')
		b = append(b, e.Protocol.String()...)
		b = append(b, ':')
		b = strconv.AppendUint(b, uint64(e.Port), 10)
	}
	if e.Second.IsValid() {
		b = append(b, ',')
		b = e.Second.Addr().AppendTo(b)
		if !e.Second.IsSingleIP() {
			b = append(b, '/')
			b = strconv.AppendInt(b, int64(e.Second.Bits()), 10)
		}
	}
	return string(b)
}

// append adds the attributes of the entry.
func (e Entry) append(b []byte) []byte {
	if !e.Addr.IsValid() {
		return appendPort(b, dataPort, e.Port)
	}
	b = appendAddress(b, dataAddress, e.Addr)
	if e.Protocol != 0 {
		b = appendPort(b, dataPort, e.Port)
		b = appendByte(b, dataProtocol, uint8(e.Protocol))
	}
	if e.Second.IsValid() {
		b = appendAddress(b, dataAddress2, e.Second.Addr())
		if !e.Second.IsSingleIP() {
			b = appendByte(b, dataPrefixBits2, uint8(e.Second.Bits()))
		}
	}
	return b
}

// readEntry reads an entry of a set of a type from its attributes; false when it
// has not the parts that the type has. What else the attributes say (counters,
// comments and so on, which other makers of sets can ask for) is left out.
func readEntry(t Type, attrs []byte) (Entry, bool) {
	e := Entry{}
	second, bits := netip.Addr{}, -1
	for a := range wire.Attrs(attrs) {
		switch a.Type {
		case dataAddress:
			e.Addr = addressOf(a)
		case dataPort:
			e.Port = portOf(a)
		case dataProtocol:
			e.Protocol = Protocol(byteOf(a))
		case dataAddress2:
			second = addressOf(a)
		case dataPrefixBits2:
			bits = int(byteOf(a))
		}
	}
	if second.IsValid() {
		if bits < 0 {
			bits = second.BitLen()
		}
		e.Second = netip.PrefixFrom(second, bits).Masked()
	}
	return e, e.is(t)
}

// is says whether the entry has the parts that a type has, and no others.
func (e Entry) is(t Type) bool {
	has := [3]bool{e.Addr.IsValid(), e.Protocol != 0, e.Second.IsValid()}
	switch t {
	case BitmapPort:
		return has == [3]bool{}
	case HashIP:
		return has == [3]bool{true, false, false} && e.Port == 0
	case HashIPPort:
		return has == [3]bool{true, true, false}
	case HashIPPortIP:
		return has == [3]bool{true, true, true} && e.Second.IsSingleIP()
	case HashIPPortNet:
		return has == [3]bool{true, true, true}
	}
	return false
}
