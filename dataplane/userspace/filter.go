// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// Offsets of a packet's source address (linux/filter.h: SKF_NET_OFF counts from its IP header).
const (
	networkHeader = 0xfff00000
	source4       = networkHeader + 12
	source6       = networkHeader + 8
)

// Results of a filter.
const (
	pass = 0xffffffff
	drop = 0
)

// filterMax limits the length of a filter, which the kernel runs for each packet of a connection. The
// kernel accepts 4096 instructions (BPF_MAXINSNS).
const filterMax = 1024

// filter returns a socket filter that drops the packets of clients that the table does not serve; nil if
// it serves all. It also returns nil for a table with too many ranges: the relay then resets the
// connections of such clients once they are established, and drops their datagrams.
func (t *Table) filter() []unix.SockFilter {
	var f []unix.SockFilter
	switch {
	case len(t.To) == 0 && len(t.NearTo) == 0:
		return []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: drop}}
	case t.Allowed == nil && t.Denied == nil && len(t.To) > 0:
		return nil
	}
	f = appendLoad(f, slices.Concat(t.Allowed, t.Denied, t.Near))
	for _, r := range t.Denied {
		f = append(appendMatch(f, r), unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: drop})
	}
	if t.Allowed != nil {
		f = appendStage(f, t.Allowed)
	}
	if len(t.To) == 0 {
		f = appendStage(f, t.Near)
	}
	f = append(f, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: pass})
	if len(f) > filterMax {
		return nil
	}
	return f
}

// appendLoad puts the source address into the filter's memory, word by word. Ranges compare it there,
// because the kernel makes one instruction of a load from memory, and eight of one from the packet.
func appendLoad(f []unix.SockFilter, ranges []netip.Prefix) []unix.SockFilter {
	if len(ranges) == 0 {
		return f
	}
	first, words := uint32(source6), uint32(4)
	if ranges[0].Addr().Is4() {
		first, words = source4, 1
	}
	for word := range words {
		f = append(f, unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: first + 4*word},
			unix.SockFilter{Code: unix.BPF_ST, K: word})
	}
	return f
}

// appendStage drops packets whose source is in none of the ranges. For others, the filter continues behind it.
func appendStage(f []unix.SockFilter, ranges []netip.Prefix) []unix.SockFilter {
	var matches []int // jumps to the end
	for _, r := range ranges {
		f = appendMatch(f, r)
		matches = append(matches, len(f))
		f = append(f, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JA})
	}
	f = append(f, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: drop})
	for _, at := range matches {
		f[at].K = uint32(len(f) - at - 1)
	}
	return f
}

// appendMatch continues with the next instruction behind it if the source is in a range, and skips
// that instruction otherwise.
func appendMatch(f []unix.SockFilter, r netip.Prefix) []unix.SockFilter {
	address, word := r.Masked().Addr().AsSlice(), uint32(0)
	var compared []int
	for bits := r.Bits(); bits > 0; bits -= 32 {
		f = append(f, unix.SockFilter{Code: unix.BPF_LD | unix.BPF_MEM, K: word})
		if bits < 32 {
			f = append(f, unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: ^uint32(0) << (32 - bits)})
		}
		compared = append(compared, len(f))
		f = append(f, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: binary.BigEndian.Uint32(address)})
		address, word = address[4:], word+1
	}
	for _, at := range compared {
		f[at].Jf = uint8(len(f) - at) // over the rest of the match, and the instruction behind it
	}
	return f
}

// attach replaces the filter of a socket; nil removes it. The kernel limits the memory of a socket's filters
// (net.core.optmem_max, 20 KiB before Linux 6.7), and counts both while one replaces the other. If both do not
// fit, attach removes the old one first. If the new one does not fit alone, the socket has no filter, and the
// balancer resets the clients that it would drop. ENOMEM is therefore not an error here.
func attach(fd uintptr, f []unix.SockFilter) error {
	if f == nil {
		return detach(fd)
	}
	program := unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}
	set := func() error {
		return unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program)
	}
	err := set()
	if errors.Is(err, unix.ENOMEM) {
		if err := detach(fd); err != nil {
			return err
		}
		err = set()
	}
	if errors.Is(err, unix.ENOMEM) {
		return nil
	}
	return os.NewSyscallError("setsockopt SO_ATTACH_FILTER", err)
}

func detach(fd uintptr) error {
	err := unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil // it has none
	}
	return os.NewSyscallError("setsockopt SO_DETACH_FILTER", err)
}

// freebind lets a socket listen at an address that the host does not have yet.
func freebind(fd uintptr, addr netip.Addr) error {
	level, option := unix.SOL_IP, unix.IP_FREEBIND
	if addr.Is6() {
		level, option = unix.SOL_IPV6, unix.IPV6_FREEBIND
	}
	return os.NewSyscallError("setsockopt FREEBIND", unix.SetsockoptInt(int(fd), level, option, 1))
}
