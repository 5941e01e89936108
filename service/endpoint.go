package service

import (
	"bytes"
	"net/netip"
)

// Endpoint is one address and port behind a service port.
type Endpoint struct {
	AddrPort netip.AddrPort
	// Local tells that it runs on this node.
	Local bool
}

// String gives the identity of the endpoint as rule comments show it:
// "10.0.0.1:80" or "[fd00::1]:80".
func (e Endpoint) String() string { return e.AddrPort.String() }

// endpointTextMax is the length of the longest text form,
// "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535".
const endpointTextMax = 47

// Compare orders endpoints by the bytes of their text form, the order in which
// they are rendered: "10.0.0.10:80" comes before "10.0.0.9:80".
func (e Endpoint) Compare(other Endpoint) int {
	var a, b [endpointTextMax]byte
	return bytes.Compare(e.AddrPort.AppendTo(a[:0]), other.AddrPort.AppendTo(b[:0]))
}
