// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// Slot returns the slot of a client in a table of a size, as the kernel finds it: by the client's address, and by its
// port unless that is 0.
func Slot(client netip.AddrPort, size int, seed uint32) int {
	key := client.Addr().Unmap().AsSlice()
	if port := client.Port(); port != 0 {
		key = append(binary.BigEndian.AppendUint16(key, port), 0, 0)
	}
	return int(Scale(Jenkins(key, seed), uint32(size)))
}

// Scale maps a hash to 0 … n-1 (reciprocal_scale in Linux).
func Scale(hash, n uint32) uint32 { return uint32(uint64(hash) * uint64(n) >> 32) }

// Jenkins is jhash of Linux (include/linux/jhash.h), for a key of whole words of 4 bytes.
func Jenkins(key []byte, seed uint32) uint32 {
	a := 0xdeadbeef + uint32(len(key)) + seed
	b, c := a, a
	for ; len(key) > 12; key = key[12:] {
		a, b, c = a+word(key), b+word(key[4:]), c+word(key[8:])
		a, c = (a-c)^bits.RotateLeft32(c, 4), c+b
		b, a = (b-a)^bits.RotateLeft32(a, 6), a+c
		c, b = (c-b)^bits.RotateLeft32(b, 8), b+a
		a, c = (a-c)^bits.RotateLeft32(c, 16), c+b
		b, a = (b-a)^bits.RotateLeft32(a, 19), a+c
		c, b = (c-b)^bits.RotateLeft32(b, 4), b+a
	}
	if len(key) == 0 {
		return c
	}
	for i, to := range []*uint32{&a, &b, &c} {
		if 4*i < len(key) {
			*to += word(key[4*i:])
		}
	}
	c = (c ^ b) - bits.RotateLeft32(b, 14)
	a = (a ^ c) - bits.RotateLeft32(c, 11)
	b = (b ^ a) - bits.RotateLeft32(a, 25)
	c = (c ^ b) - bits.RotateLeft32(b, 16)
	a = (a ^ c) - bits.RotateLeft32(c, 4)
	b = (b ^ a) - bits.RotateLeft32(a, 14)
	return (c ^ b) - bits.RotateLeft32(b, 24)
}

func word(b []byte) uint32 { return binary.NativeEndian.Uint32(b) }
