// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Arg returns an argument without quotes, or "" if there are fewer arguments.
func (o *Option) Arg(at int) string {
	if at >= len(o.Args) {
		return ""
	}
	return Unquote(o.Args[at])
}

// Prefix reads the argument of -s or -d.
func (o *Option) Prefix() (netip.Prefix, error) { return netip.ParsePrefix(o.Arg(0)) }

// Ports reads a port or a range of ports, "80" or "80:90".
func (o *Option) Ports() (low, high uint16, err error) {
	first, second, isRange := strings.Cut(o.Arg(0), ":")
	from, err := strconv.ParseUint(first, 10, 16)
	to := from
	if err == nil && isRange {
		to, err = strconv.ParseUint(second, 10, 16)
	}
	return uint16(from), uint16(to), err
}

// Mark reads a mark, "0x4000/0x4000". Without a mask, all bits count.
func (o *Option) Mark() (value, mask uint32, err error) {
	first, second, hasMask := strings.Cut(o.Arg(0), "/")
	bits, err := strconv.ParseUint(first, 0, 32)
	all := uint64(1<<32 - 1)
	if err == nil && hasMask {
		all, err = strconv.ParseUint(second, 0, 32)
	}
	return uint32(bits), uint32(all), err
}

// Option returns the option of a match with a name, nil if there is none.
func (m *Match) Option(name string) *Option { return find(m.Options, name) }

// Option returns the option of a target with a name, nil if there is none.
func (t *Target) Option(name string) *Option { return find(t.Options, name) }

func find(options []Option, name string) *Option {
	for i := range options {
		if options[i].Name == name {
			return &options[i]
		}
	}
	return nil
}

// DNAT reads the address and port of a target DNAT.
func (t *Target) DNAT() (netip.AddrPort, error) {
	o := t.Option("--to-destination")
	if o == nil {
		return netip.AddrPort{}, fmt.Errorf("target %s without a destination", t.Name)
	}
	return netip.ParseAddrPort(o.Arg(0))
}

// AppendAddr appends an address as the iptables tools print it, which is the output of the C
// library's inet_ntop. It differs from netip for the "IPv4-compatible" addresses of RFC 4291,
// section 2.5.5.1, whose last 32 bits are shown dotted (seen with iptables 1.8.9 and glibc 2.36).
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

// AppendPrefix appends a prefix as the iptables tools print it: masked, and always with its length.
func AppendPrefix(b []byte, prefix netip.Prefix) []byte {
	b = AppendAddr(b, prefix.Masked().Addr())
	b = append(b, '/')
	return strconv.AppendInt(b, int64(prefix.Bits()), 10)
}
