package reduce

import (
	"net/netip"
	"strconv"
	"strings"
)

// parseAddr reads an IP address as leniently as API servers have accepted it: an
// octet with leading zeros is decimal, and an IPv4 address written as an IPv6
// one (::ffff:1.2.3.4) is IPv4. Addresses with a zone are refused.
func parseAddr(text string) (netip.Addr, bool) {
	addr, ok := parseUnmapped(text)
	return addr.Unmap(), ok
}

// parsePrefix reads a CIDR as leniently as parseAddr and masks it to its
// network address.
func parsePrefix(text string) (netip.Prefix, bool) {
	host, length, found := strings.Cut(text, "/")
	addr, ok := parseUnmapped(host)
	bits, err := strconv.ParseUint(length, 10, 8)
	if !found || !ok || err != nil {
		return netip.Prefix{}, false
	}
	n := int(bits)
	if addr.Is4In6() {
		// The length counts from the start of the IPv6 spelling.
		addr, n = addr.Unmap(), n-96
	}
	prefix, err := addr.Prefix(n)
	return prefix, err == nil
}

func parseUnmapped(text string) (netip.Addr, bool) {
	addr, err := netip.ParseAddr(text)
	if err != nil {
		// Only leading zeros are forgiven, and they are rare.
		addr, err = netip.ParseAddr(withoutOctetZeros(text))
	}
	return addr, err == nil && addr.Zone() == ""
}

// withoutOctetZeros drops leading zeros from the dotted part of an address.
func withoutOctetZeros(text string) string {
	start := strings.LastIndexByte(text, ':') + 1
	octets := strings.Split(text[start:], ".")
	if len(octets) != 4 {
		return text
	}
	for i, octet := range octets {
		if trimmed := strings.TrimLeft(octet, "0"); trimmed != "" || octet == "" {
			octets[i] = trimmed
		} else {
			octets[i] = "0"
		}
	}
	return text[:start] + strings.Join(octets, ".")
}
