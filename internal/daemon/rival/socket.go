package rival

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// listener is one TCP socket of this network namespace that takes connections.
type listener struct {
	at    netip.AddrPort
	inode uint32
}

// Layout of the kernel's sock_diag (include/uapi/linux/inet_diag.h).
const (
	diagRequest = unix.SizeofNlMsghdr + 56 // struct inet_diag_req_v2
	diagAnswer  = 72                       // struct inet_diag_msg
	tcpListen   = 10                       // TCP_LISTEN
)

// listeners lists the TCP sockets that listen on one of the ports. The kernel is asked
// for listening sockets alone, since a node may have a hundred thousand others, which
// /proc/net/tcp would list.
func listeners(ports ...uint16) (all []listener, err error) {
	socket, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, fmt.Errorf("list listening sockets: %w", err)
	}
	defer unix.Close(socket) //nolint:errcheck // nothing is left to be said over it
	patience := unix.NsecToTimeval((2 * time.Second).Nanoseconds())
	if err := unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience); err != nil {
		return nil, fmt.Errorf("list listening sockets: %w", err)
	}
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		request := make([]byte, diagRequest)
		binary.NativeEndian.PutUint32(request[0:], diagRequest)
		binary.NativeEndian.PutUint16(request[4:], unix.SOCK_DIAG_BY_FAMILY)
		binary.NativeEndian.PutUint16(request[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
		request[16], request[17] = family, unix.IPPROTO_TCP
		binary.NativeEndian.PutUint32(request[20:], 1<<tcpListen)
		if err := unix.Sendto(socket, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			return nil, fmt.Errorf("list listening sockets: %w", err)
		}
		if err := receive(socket, func(l listener) {
			for _, port := range ports {
				if l.at.Port() == port {
					all = append(all, l)
				}
			}
		}); err != nil {
			return nil, fmt.Errorf("list listening sockets: %w", err)
		}
	}
	return all, nil
}

// receive reads one listing to its end.
func receive(socket int, found func(listener)) error {
	buffer := make([]byte, 32<<10)
	for {
		n, _, err := unix.Recvfrom(socket, buffer, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		for rest := buffer[:n]; len(rest) >= unix.SizeofNlMsghdr; {
			length := int(binary.NativeEndian.Uint32(rest))
			if length < unix.SizeofNlMsghdr || length > len(rest) {
				return errors.New("a message of the kernel is cut short")
			}
			body := rest[unix.SizeofNlMsghdr:length]
			switch kind := binary.NativeEndian.Uint16(rest[4:]); {
			case kind == unix.NLMSG_DONE:
				return nil
			case kind == unix.NLMSG_ERROR && len(body) >= 4:
				return unix.Errno(-int32(binary.NativeEndian.Uint32(body)))
			case kind == unix.SOCK_DIAG_BY_FAMILY && len(body) >= diagAnswer:
				found(parseListener(body))
			}
			rest = rest[min(len(rest), (length+3)&^3):]
		}
	}
}

// parseListener reads struct inet_diag_msg.
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

// conflicts reports whether a socket at one address keeps others from another.
func (l listener) conflicts(with netip.AddrPort) bool {
	switch {
	case l.at.Port() != with.Port():
		return false
	case l.at.Addr().IsUnspecified(), with.Addr().IsUnspecified():
		return true // of the other family, too: [::] takes IPv4 as a rule
	default:
		return l.at.Addr().Unmap() == with.Addr().Unmap()
	}
}

// owner finds the process that has a socket, among those that can be seen: the zero
// Process when it is none of them. It looks through the descriptors of all processes,
// which takes a moment; so it is for when something is wrong.
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

// HolderOf says who has the TCP address that this process could not listen on; false
// when nobody has it any more, or nobody can tell.
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
