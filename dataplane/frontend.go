package dataplane

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/sluice-proxy/sluice/service"
)

// Frontend is where clients reach a Service: an address and port, or a node port,
// which has no address.
type Frontend struct {
	// Addr is invalid for a node port.
	Addr     netip.Addr
	Port     uint16
	Protocol service.Protocol
}

// String gives "192.0.2.1:80/tcp", "[2001:db8::1]:80/tcp" or "node port
// 30080/tcp".
func (f Frontend) String() string {
	if !f.Addr.IsValid() {
		return "node port " + strconv.Itoa(int(f.Port)) + "/" + f.Protocol.String()
	}
	return netip.AddrPortFrom(f.Addr, f.Port).String() + "/" + f.Protocol.String()
}

// Compare orders frontends by address, port and protocol; node ports come first.
func (f Frontend) Compare(other Frontend) int {
	if by := f.Addr.Compare(other.Addr); by != 0 {
		return by
	}
	if by := int(f.Port) - int(other.Port); by != 0 {
		return by
	}
	return int(f.Protocol) - int(other.Protocol)
}

// Frontends are several of one Service.
type Frontends []Frontend

// String gives them with commas between.
func (fs Frontends) String() string {
	var text []byte
	for i, f := range fs {
		if i > 0 {
			text = append(text, ", "...)
		}
		text = append(text, f.String()...)
	}
	return string(text)
}

// frontendKey says how the names of a container's elements spell a frontend.
type frontendKey struct {
	// lane is the length of what stands before the frontend.
	lane int
	// protocolWidth and portWidth are their room, in bytes: what they do not
	// need is zero. The port is in network order.
	protocolWidth, portWidth int
	// nodePort keys have no address.
	nodePort bool
}

// The keys of package iptables/dispatch (lane, address, protocol, port), and those
// of sets in the kernel, whose fields fill whole registers of 4 bytes.
var (
	dispatchAddress  = frontendKey{lane: 1, protocolWidth: 1, portWidth: 2}
	dispatchNodePort = frontendKey{lane: 1, protocolWidth: 1, portWidth: 2, nodePort: true}
	setAddress       = frontendKey{protocolWidth: 4, portWidth: 4}
	setNodePort      = frontendKey{protocolWidth: 4, portWidth: 4, nodePort: true}
)

// frontendContainers hold one element for each frontend that is served or refused.
// What else there is about a frontend (slots of its endpoints, source ranges)
// comes with one of these, and what is not here is shared on purpose.
var frontendContainers = map[string]frontendKey{
	"nat/KUBE-SERVICES":             dispatchAddress,
	"nat/KUBE-NODEPORTS":            dispatchNodePort,
	"filter/KUBE-SERVICES":          dispatchAddress,
	"filter/KUBE-EXTERNAL-SERVICES": dispatchAddress,
	"filter/KUBE-EXT-NODEPORTS":     dispatchNodePort,

	"@frontends":                   setAddress,
	"@nodeports":                   setNodePort,
	"@no-endpoints":                setAddress,
	"@no-local-endpoints":          setAddress,
	"@nodeport-no-endpoints":       setNodePort,
	"@nodeport-no-local-endpoints": setNodePort,
}

// serverContainer holds virtual servers of the ipvs backend, by names in text.
const serverContainer = "server"

// Frontend gives the frontend that an element of a backend is for; false when it is
// for none, as hairpins, which Services share. It allocates nothing.
func (id ID) Frontend() (Frontend, bool) {
	if id.Container == serverContainer {
		return parseServer(id.Name)
	}
	key, known := frontendContainers[id.Container]
	transport := key.protocolWidth + key.portWidth
	if !known || len(id.Name) < key.lane+transport {
		return Frontend{}, false
	}
	name := id.Name[key.lane:]
	at := len(name) - transport
	var f Frontend
	ok := at == 0
	if !key.nodePort {
		f.Addr, ok = netip.AddrFromSlice([]byte(name[:at]))
	}
	if !ok {
		return Frontend{}, false
	}
	port := name[at+key.protocolWidth:]
	f.Port = uint16(port[0])<<8 | uint16(port[1])
	f.Protocol, ok = protocolOf(name[at])
	return f, ok
}

// protocolOf gives the protocol of an IANA number.
func protocolOf(number byte) (service.Protocol, bool) {
	for _, p := range [...]service.Protocol{service.TCP, service.UDP, service.SCTP} {
		if p.Number() == number {
			return p, true
		}
	}
	return 0, false
}

// parseServer reads the name of a virtual server: "tcp 10.0.0.1:80".
func parseServer(name string) (Frontend, bool) {
	protocol, at, found := strings.Cut(name, " ")
	if !found {
		return Frontend{}, false
	}
	where, err := netip.ParseAddrPort(at)
	if err != nil {
		return Frontend{}, false
	}
	for _, p := range [...]service.Protocol{service.TCP, service.UDP, service.SCTP} {
		if p.String() == protocol {
			return Frontend{where.Addr(), where.Port(), p}, true
		}
	}
	return Frontend{}, false
}
