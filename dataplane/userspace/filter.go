package userspace

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// Where the source address of a packet is (linux/filter.h: SKF_NET_OFF counts from its IP header).
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

// filterMax bounds the length of a filter. The kernel accepts 4096 instructions (BPF_MAXINSNS) if they
// fit into net.core.optmem_max, which was 20 KiB before Linux 6.7.
const filterMax = 1024

// filter returns a socket filter that drops what the table drops, nil if that is nothing. Of a
// table with too many ranges for one it returns nil, too: then clients that may not come are
// reset when they have connected.
func (t *Table) filter() []unix.SockFilter {
	var f []unix.SockFilter
	switch {
	case len(t.To) == 0 && len(t.NearTo) == 0:
		return []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: drop}}
	case t.Allowed == nil && len(t.To) > 0:
		return nil
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

// appendStage drops packets whose source is in none of the ranges. Others go on behind it.
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

// appendMatch goes on with the next instruction if the source is in a range, and with the one after
// it otherwise.
func appendMatch(f []unix.SockFilter, r netip.Prefix) []unix.SockFilter {
	address, offset := r.Masked().Addr().AsSlice(), uint32(source6)
	if r.Addr().Is4() {
		offset = source4
	}
	var compared []int
	for bits := r.Bits(); bits > 0; bits -= 32 {
		f = append(f, unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset})
		if bits < 32 {
			f = append(f, unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: ^uint32(0) << (32 - bits)})
		}
		compared = append(compared, len(f))
		f = append(f, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: binary.BigEndian.Uint32(address)})
		address, offset = address[4:], offset+4
	}
	for _, at := range compared {
		f[at].Jf = uint8(len(f) - at) // over what is left, and the instruction behind
	}
	return f
}

// attach replaces the filter of a socket; nil removes it.
func attach(fd uintptr, f []unix.SockFilter) error {
	if f == nil {
		err := unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0)
		if errors.Is(err, unix.ENOENT) {
			return nil // it has none
		}
		return os.NewSyscallError("setsockopt SO_DETACH_FILTER", err)
	}
	program := unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}
	err := unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program)
	return os.NewSyscallError("setsockopt SO_ATTACH_FILTER", err)
}

// freebind lets a socket listen at an address that the host does not have yet.
func freebind(fd uintptr, addr netip.Addr) error {
	level, option := unix.SOL_IP, unix.IP_FREEBIND
	if addr.Is6() {
		level, option = unix.SOL_IPV6, unix.IPV6_FREEBIND
	}
	return os.NewSyscallError("setsockopt FREEBIND", unix.SetsockoptInt(int(fd), level, option, 1))
}
