// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"encoding/binary"
	"net/netip"
)

// The header of the PROXY protocol, version 2 (www.haproxy.org/download/3.0/doc/proxy-protocol.txt,
// section 2.2).
const (
	proxySignature = "\r\n\r\n\x00\r\nQUIT\n"
	// proxyCommand is version 2 and the command PROXY.
	proxyCommand = 0x21
	proxyTCP4    = 0x11
	proxyTCP6    = 0x21
)

// proxyHeader returns the header for a client that connected to the address at. Both are of one family.
func proxyHeader(client, at netip.AddrPort) []byte {
	kind := byte(proxyTCP4)
	if client.Addr().Is6() {
		kind = proxyTCP6
	}
	h := append([]byte(proxySignature), proxyCommand, kind)
	h = binary.BigEndian.AppendUint16(h, uint16(2*(client.Addr().BitLen()/8+2)))
	h = append(h, client.Addr().AsSlice()...)
	h = append(h, at.Addr().AsSlice()...)
	h = binary.BigEndian.AppendUint16(h, client.Port())
	return binary.BigEndian.AppendUint16(h, at.Port())
}
