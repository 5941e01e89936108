package iptables

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/service"
)

// tableInfo is struct ipt_getinfo and ip6t_getinfo, which are alike
// (include/uapi/linux/netfilter_ipv4/ip_tables.h and its sibling).
type tableInfo struct {
	name       [32]byte
	validHooks uint32
	hookEntry  [5]uint32
	underflow  [5]uint32
	entries    uint32
	size       uint32
}

// soGetInfo is IPT_SO_GET_INFO and IP6T_SO_GET_INFO: both families' base
// control number.
const soGetInfo = 64

// TableSize asks the kernel for the size of a legacy table, without taking the
// lock or copying a rule. One that does not exist has the size 0, and asking does not
// bring it into being. It is false in the nft variant, which has no such thing, and
// when the kernel does not answer.
func (e *Exec) TableSize(table Table) (size, bool) {
	if e.Variant() != Legacy {
		return size{}, false
	}
	if !legacyTableExists(e.family, table) {
		return size{}, true
	}
	domain, level := unix.AF_INET, unix.IPPROTO_IP
	if e.family == service.IPv6 {
		domain, level = unix.AF_INET6, unix.IPPROTO_IPV6
	}
	socket, err := unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return size{}, false
	}
	defer unix.Close(socket) //nolint:errcheck // nothing was sent, nothing can be lost
	var info tableInfo
	copy(info.name[:], table)
	length := uint32(unsafe.Sizeof(info))
	// x/sys has no getsockopt for options of unknown layout.
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(socket), uintptr(level), soGetInfo,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&length)), 0)
	if errno != 0 {
		return size{}, false
	}
	return size{entries: info.entries, bytes: info.size}, true
}
