package rival

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// listener is one TCP socket of this network namespace that takes connections.
type listener struct {
	at    netip.AddrPort
	inode uint32
}

// diagRequest is struct inet_diag_req_v2 of the kernel's sock_diag
// (include/uapi/linux/inet_diag.h).
type diagRequest [56]byte

// Len implements nl.NetlinkRequestData.
func (r *diagRequest) Len() int { return len(r) }

// Serialize implements nl.NetlinkRequestData.
func (r *diagRequest) Serialize() []byte { return r[:] }

const (
	diagAnswer = 72 // struct inet_diag_msg
	tcpListen  = 10 // TCP_LISTEN
)

// listeners lists the TCP sockets that listen on one of the ports. It asks the kernel for
// listening sockets only: a node may have a hundred thousand others, which /proc/net/tcp
// and netlink.SocketDiagTCP would list.
func listeners(ports ...uint16) (all []listener, err error) {
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		body := &diagRequest{family, unix.IPPROTO_TCP}
		binary.NativeEndian.PutUint32(body[4:], 1<<tcpListen)
		request := nl.NewNetlinkRequest(unix.SOCK_DIAG_BY_FAMILY, unix.NLM_F_DUMP)
		request.AddData(body)
		messages, err := request.Execute(unix.NETLINK_SOCK_DIAG, 0)
		if err != nil {
			return nil, fmt.Errorf("list listening sockets: %w", err)
		}
		for _, m := range messages {
			if len(m) < diagAnswer {
				continue
			}
			if l := parseListener(m); slices.Contains(ports, l.at.Port()) {
				all = append(all, l)
			}
		}
	}
	return all, nil
}

// parseListener parses struct inet_diag_msg.
func parseListener(body []byte) listener {
	addr, _ := netip.AddrFromSlice(body[8:24])
	if body[0] == unix.AF_INET {
		addr, _ = netip.AddrFromSlice(body[8:12])
	}
	return listener{
		at:    netip.AddrPortFrom(addr, binary.BigEndian.Uint16(body[4:])),
		inode: binary.NativeEndian.Uint32(body[68:]),
	}
}

// conflicts reports whether the socket prevents others from listening at an address.
func (l listener) conflicts(with netip.AddrPort) bool {
	switch {
	case l.at.Port() != with.Port():
		return false
	case l.at.Addr().IsUnspecified(), with.Addr().IsUnspecified():
		return true // whatever the family: [::] usually takes IPv4 too
	default:
		return l.at.Addr().Unmap() == with.Addr().Unmap()
	}
}

// owner returns the visible process that has the socket, or the zero Process. It searches
// the descriptors of all processes, which is slow: use it only if something is wrong.
func (l listener) owner() Process {
	for _, pid := range processes() {
		if has(strconv.Itoa(pid), l.inode) {
			return processOf(pid)
		}
	}
	return Process{}
}

// has reports whether a process has a socket open.
func has(pid string, inode uint32) bool {
	dir := filepath.Join("/proc", pid, "fd")
	names, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	wanted := fmt.Sprintf("socket:[%d]", inode)
	for _, name := range names {
		if link, err := os.Readlink(filepath.Join(dir, name.Name())); err == nil && link == wanted {
			return true
		}
	}
	return false
}

// HolderOf returns the holder of a TCP address on which this process could not listen, and
// false if it is free now, or the holder is unknown.
func HolderOf(address netip.AddrPort) (Process, bool) {
	all, err := listeners(address.Port())
	if err != nil {
		return Process{}, false
	}
	for _, l := range all {
		if l.conflicts(address) && !has("self", l.inode) {
			return l.owner(), true
		}
	}
	return Process{}, false
}
