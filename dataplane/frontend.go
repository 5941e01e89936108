package dataplane

import (
	"net/netip"
	"strconv"

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
