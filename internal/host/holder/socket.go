// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// socket is one socket of this network namespace that receives on a port.
type socket struct {
	At    netip.AddrPort
	Inode uint32
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

// listeningTCP lists the TCP sockets that listen. It asks the kernel for listening sockets
// only: a node may have a hundred thousand others, which /proc/net/tcp and
// netlink.SocketDiagTCP would list.
func listeningTCP() (all []socket, err error) {
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
			if len(m) >= diagAnswer {
				all = append(all, parseDiag(m))
			}
		}
	}
	return all, nil
}

// parseDiag parses struct inet_diag_msg.
func parseDiag(body []byte) socket {
	addr, _ := netip.AddrFromSlice(body[8:24])
	if body[0] == unix.AF_INET {
		addr, _ = netip.AddrFromSlice(body[8:12])
	}
	return socket{
		At:    netip.AddrPortFrom(addr, binary.BigEndian.Uint16(body[4:])),
		Inode: binary.NativeEndian.Uint32(body[68:]),
	}
}

// conflicts reports whether the socket prevents others from listening at an address.
func (s socket) conflicts(with netip.AddrPort) bool {
	switch {
	case s.At.Port() != with.Port():
		return false
	case s.At.Addr().IsUnspecified(), with.Addr().IsUnspecified():
		return true // in either family: [::] usually takes IPv4 too
	default:
		return s.At.Addr().Unmap() == with.Addr().Unmap()
	}
}

// openIn reports whether a process has the socket open.
func (s socket) openIn(pid int) bool {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	names, err := os.ReadDir(dir)
	if err != nil {
		return false // it has ended, or access is denied
	}
	wanted := fmt.Sprintf("socket:[%d]", s.Inode)
	for _, name := range names {
		if link, err := os.Readlink(filepath.Join(dir, name.Name())); err == nil && link == wanted {
			return true
		}
	}
	return false
}

// owner returns the visible process that has the socket, or the zero Process. It searches the
// descriptors of this process, and then of all others until a deadline, which is slow: use it
// only if something is wrong.
func (s socket) owner(deadline time.Time) Process {
	if s.openIn(os.Getpid()) {
		return Self()
	}
	for _, pid := range Visible() {
		if time.Now().After(deadline) {
			break
		}
		if s.openIn(pid) {
			return ProcessOf(pid)
		}
	}
	return Process{}
}

// searchTime bounds the search for one holder: a host may have thousands of processes, and
// the caller has other work.
const searchTime = 200 * time.Millisecond

// Of returns the holder of an address on which a process could not listen; the network is "tcp"
// or "udp", or one of them with the family. It returns false if the address is free now, or if
// that cannot be found out.
func Of(network string, at netip.AddrPort) (Process, bool) {
	list := listeningTCP
	if strings.HasPrefix(network, "udp") {
		list = boundUDP
	}
	all, err := list()
	if err != nil {
		return Process{}, false
	}
	for _, s := range all {
		if s.conflicts(at) {
			return s.owner(time.Now().Add(searchTime)), true
		}
	}
	return Process{}, false
}
