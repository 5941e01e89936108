// SPDX-License-Identifier: Apache-2.0

package service

import (
	"fmt"
	"net/netip"
	"strconv"
)

// Frontend is where clients reach a Service: an address and port, or a node port, which
// has no address.
type Frontend struct {
	// Addr is invalid for a node port.
	Addr     netip.Addr
	Port     uint16
	Protocol Protocol
}

// IsNodePort reports whether it is a node port.
func (f Frontend) IsNodePort() bool { return !f.Addr.IsValid() }

// String returns "192.0.2.1:80/tcp", "[2001:db8::1]:80/tcp" or "node port
// 30080/tcp".
func (f Frontend) String() string {
	if f.IsNodePort() {
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

// Frontends are frontends of one Service.
type Frontends []Frontend

// frontendsMax is how many Frontends.String lists: a tenant can cause thousands.
const frontendsMax = 10

// String returns the first ten separated by commas, and the number of others.
func (fs Frontends) String() string {
	var text []byte
	for i, f := range fs {
		if i == frontendsMax {
			return string(fmt.Appendf(text, " and %d more", len(fs)-i))
		}
		if i > 0 {
			text = append(text, ", "...)
		}
		text = append(text, f.String()...)
	}
	return string(text)
}
