package genl

import (
	"encoding/binary"
	"math/bits"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/service"
)

// Flags of a Service. The second and third flag of schedulers mean something to
// some of them only.
const (
	// Persistent: a client stays with its real server for the timeout.
	Persistent = 0x1
	// OnePacket: each UDP datagram is scheduled by itself.
	OnePacket = 0x4
	// SchedulerFlag1 is "sh-fallback" and "mh-fallback": if the choice has
	// weight 0, another is chosen.
	SchedulerFlag1 = 0x8
	// SchedulerFlag2 is "sh-port" and "mh-port": the client's port counts, too.
	SchedulerFlag2 = 0x10
	// SchedulerFlag3 has no meaning yet.
	SchedulerFlag3 = 0x20

	// hashed is the kernel's own mark of what it has in its table; it is there
	// always, and so left out.
	hashed = 0x2
)

// Service is a virtual server without its real servers. Two that are equal do
// the same.
type Service struct {
	// Frontend has an address; it identifies the virtual server.
	dataplane.Frontend
	// Scheduler is the kernel's name of one, such as "rr"; at most 15 bytes.
	Scheduler string
	Flags     uint32
	// Timeout of persistence in seconds; 0 without persistence.
	Timeout uint32
	// FreeBits is the number of low bits of the address in which clients may
	// differ and share their persistence; 0 when each address is by itself.
	FreeBits uint8
}

// Attributes of a virtual server (IPVS_SVC_ATTR_…).
const (
	serviceFamily    = 1
	serviceProtocol  = 2
	serviceAddress   = 3
	servicePort      = 4
	serviceScheduler = 6
	serviceFlags     = 7
	serviceTimeout   = 8
	serviceNetmask   = 9
	serviceStats     = 10
	serviceStats64   = 12
)

// allFlags says in a request that all flags are meant.
const allFlags = ^uint32(0)

// appendFrontend adds what identifies a virtual server, as an attribute of its
// own or, when full is given, with the rest of it.
func appendFrontend(b []byte, f dataplane.Frontend, full *Service) []byte {
	b, mark := wire.Nest(b, commandService)
	b = appendUint16(b, serviceFamily, family(f.Addr))
	b = appendUint16(b, serviceProtocol, uint16(f.Protocol.Number()))
	b = wire.AppendBytes(b, serviceAddress, f.Addr.AsSlice())
	b = appendPort(b, servicePort, f.Port)
	if full != nil {
		b = wire.AppendText(b, serviceScheduler, full.Scheduler)
		flags := binary.NativeEndian.AppendUint32(make([]byte, 0, 8), full.Flags)
		b = wire.AppendBytes(b, serviceFlags, binary.NativeEndian.AppendUint32(flags, allFlags))
		b = appendUint32(b, serviceTimeout, full.Timeout)
		b = appendNetmask(b, f.Addr, full.FreeBits)
	}
	return wire.End(b, mark)
}

// appendNetmask adds the part of client addresses that counts: a mask in network
// byte order for IPv4, the length of a prefix in host byte order for IPv6.
func appendNetmask(b []byte, addr netip.Addr, freeBits uint8) []byte {
	if addr.Is4() {
		return wire.AppendUint32(b, serviceNetmask, ^uint32(0)<<min(freeBits, 32))
	}
	return appendUint32(b, serviceNetmask, uint32(128-min(freeBits, 128)))
}

// parseService reads the attributes of a virtual server; false when it is not one
// that a Service can stand for, such as one for packets with a mark.
func parseService(attrs []byte) (Service, bool) {
	var s Service
	var family uint16
	var address, netmask []byte
	known := false
	for a := range wire.Attrs(attrs) {
		switch a.Type {
		case serviceFamily:
			family = uint16At(a.Data)
		case serviceProtocol:
			s.Protocol, known = protocol(uint16At(a.Data))
		case serviceAddress:
			address = a.Data
		case servicePort:
			s.Port = portAt(a.Data)
		case serviceScheduler:
			s.Scheduler = a.Text()
		case serviceFlags:
			s.Flags = uint32At(a.Data) &^ hashed
		case serviceTimeout:
			s.Timeout = uint32At(a.Data)
		case serviceNetmask:
			netmask = a.Data
		}
	}
	s.Addr = addressAt(family, address)
	s.FreeBits = freeBits(s.Addr, netmask)
	return s, known && s.Addr.IsValid()
}

// freeBits is the reverse of appendNetmask. An IPv4 mask with gaps, which only
// others make, counts to its first gap.
func freeBits(addr netip.Addr, netmask []byte) uint8 {
	switch {
	case len(netmask) != 4:
		return 0
	case addr.Is4():
		return uint8(32 - bits.LeadingZeros32(^binary.BigEndian.Uint32(netmask)))
	default:
		return uint8(128 - min(uint32At(netmask), 128))
	}
}

// protocol is the reverse of service.Protocol.Number.
func protocol(number uint16) (service.Protocol, bool) {
	for _, p := range []service.Protocol{service.TCP, service.UDP, service.SCTP} {
		if uint16(p.Number()) == number {
			return p, true
		}
	}
	return 0, false
}

// family gives AF_INET or AF_INET6, and AF_UNSPEC, which the kernel refuses, for
// an address that is none.
func family(addr netip.Addr) uint16 {
	switch {
	case addr.Is4():
		return unix.AF_INET
	case addr.Is6():
		return unix.AF_INET6
	default:
		return unix.AF_UNSPEC
	}
}
