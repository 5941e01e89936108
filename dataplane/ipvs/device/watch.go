package device

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// announcedBytes is asked of the kernel for announcements; a burst that is
	// longer is lost, which is told.
	announcedBytes = 4 << 20
	// datagramBytes holds the largest announcement, which is that of a link.
	datagramBytes = 64 << 10
)

// Watch calls changed when somebody else has made or deleted the device, or
// changed its host addresses, and when so much has happened on this host that the
// kernel could not tell all of it. It returns the context's cause when that ends.
//
// The kernel does not say who changed an IPv6 address. What is taken for somebody
// else's change is therefore an announcement that contradicts what we did or saw
// last: changed may be called without need when an address comes and goes
// quickly, and nothing that needs attention is missed.
func (d *Device) Watch(ctx context.Context, changed func()) error {
	var file *os.File
	err := d.inside(func() error {
		var err error
		file, err = subscribe()
		return err
	})
	if err != nil {
		return fmt.Errorf("device %s: listen to changes: %w", Name, err)
	}
	defer file.Close() //nolint:errcheck // nothing can be lost
	stop := context.AfterFunc(ctx, func() {
		_ = file.SetReadDeadline(time.Unix(1, 0)) // fails when closed, which ends Watch too
	})
	defer stop()
	buf := make([]byte, datagramBytes)
	for {
		n, err := receive(file, buf)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, unix.ENOBUFS):
			changed()
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("device %s: listen to changes: %w", Name, err)
		case d.foreign(parse(buf[:n])):
			changed()
		}
	}
}

// subscribe opens a socket for the announcements of links and addresses.
func subscribe() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, announcedBytes) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, announcedBytes) // the default stays
	}
	groups := uint32(0)
	for _, g := range []int{unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR} {
		groups |= 1 << (g - 1)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "routing announcements"), nil
}

// receive waits for a datagram.
func receive(file *os.File, buf []byte) (n int, err error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return 0, err
	}
	var received error
	err = raw.Read(func(fd uintptr) bool {
		n, _, received = unix.Recvfrom(int(fd), buf, 0)
		return !errors.Is(received, unix.EAGAIN)
	})
	return n, errors.Join(err, received)
}

// headBytes is the size of what comes before the attributes of an announcement.
func headBytes(kind uint16) int {
	if kind == unix.RTM_NEWADDR || kind == unix.RTM_DELADDR {
		return unix.SizeofIfAddrmsg
	}
	return unix.SizeofIfInfomsg
}

// foreign says whether one of the announcements tells of a change by others.
func (d *Device) foreign(announced []syscall.NetlinkMessage) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range announced {
		if len(m.Data) < headBytes(m.Header.Type) { // the parser would panic
			continue
		}
		attrs, err := syscall.ParseNetlinkRouteAttr(&m)
		if err != nil {
			continue
		}
		// The index is at the same place in the head of either kind.
		index := int(binary.NativeEndian.Uint32(m.Data[4:]))
		switch m.Header.Type {
		case unix.RTM_NEWADDR, unix.RTM_DELADDR:
			if index == d.index && d.contradicts(m, attrs) {
				return true
			}
		case unix.RTM_DELLINK:
			if index == d.index {
				return true
			}
		case unix.RTM_NEWLINK:
			if ours := nameOf(attrs) == Name; ours != (index == d.index) && (!ours || !d.making) {
				return true
			}
		}
	}
	return false
}

// contradicts says whether an announcement of an address differs from what we
// hold; d.mu is locked.
func (d *Device) contradicts(m syscall.NetlinkMessage, attrs []syscall.NetlinkRouteAttr) bool {
	if d.family != unix.AF_UNSPEC && int(m.Data[0]) != d.family {
		return false
	}
	var local, address netip.Addr
	for _, a := range attrs {
		switch a.Attr.Type {
		case unix.IFA_LOCAL:
			local, _ = netip.AddrFromSlice(a.Value)
		case unix.IFA_ADDRESS:
			address, _ = netip.AddrFromSlice(a.Value)
		}
	}
	if !local.IsValid() {
		local = address // IPv6 tells it so
	}
	prefixBits := int(m.Data[1])
	if !local.IsValid() || prefixBits != local.BitLen() || !counts(local) {
		return false
	}
	_, held := d.held[local]
	return held != (m.Header.Type == unix.RTM_NEWADDR)
}

func nameOf(attrs []syscall.NetlinkRouteAttr) string {
	for _, a := range attrs {
		if a.Attr.Type == unix.IFLA_IFNAME {
			return unix.ByteSliceToString(a.Value)
		}
	}
	return ""
}
