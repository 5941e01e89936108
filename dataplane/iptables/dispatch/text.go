package dispatch

import (
	"net/netip"
	"strconv"
)

// AppendAddr appends an address as the iptables tools print it, which is what
// the C library's inet_ntop gives. That differs from netip for one kind of
// address: the "IPv4-compatible" ones of RFC 4291, section 2.5.5.1, whose last
// 32 bits are shown dotted (seen with iptables 1.8.9 and glibc 2.36).
func AppendAddr(b []byte, addr netip.Addr) []byte {
	if addr.Is6() {
		a := addr.As16()
		if [12]byte(a[:12]) == [12]byte{} && (a[12] != 0 || a[13] != 0) {
			b = append(b, "::"...)
			return netip.AddrFrom4([4]byte(a[12:])).AppendTo(b)
		}
	}
	return addr.AppendTo(b)
}

// AppendPrefix appends a prefix as the iptables tools print it: masked, and
// always with its length.
func AppendPrefix(b []byte, prefix netip.Prefix) []byte {
	b = AppendAddr(b, prefix.Masked().Addr())
	b = append(b, '/')
	return strconv.AppendInt(b, int64(prefix.Bits()), 10)
}
