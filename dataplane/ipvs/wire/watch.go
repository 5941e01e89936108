package wire

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/netlink"
)

// Watch calls changed when others have made or deleted the device or changed its host
// addresses, and when so much has happened on this host that announcements were lost. It
// returns the context's cause when that ends.
//
// The kernel does not say who changed an IPv6 address. So an announcement that contradicts
// what we did or saw last counts as a change by others: changed may be called without need
// when an address comes and goes quickly, but nothing that needs attention is missed.
//
// The library's subscriptions end when announcements are lost, one for links and one for
// addresses lose the order between them, and they read every link of the host in full.
func (d *Device) Watch(ctx context.Context, changed func()) error {
	var listener *netlink.Listener
	err := d.inside(func() (err error) {
		listener, err = netlink.Listen(unix.NETLINK_ROUTE, nil,
			unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR)
		return err
	})
	if err == nil {
		err = listener.Run(ctx, func(m netlink.Message) {
			if d.foreign(m) {
				changed()
			}
		}, changed)
		err = errors.Join(err, listener.Close())
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("device %s: listen to changes: %w", DeviceName, err)
}

// headBytes is the size of what precedes the attributes of an announcement.
func headBytes(kind uint16) int {
	if kind == unix.RTM_NEWADDR || kind == unix.RTM_DELADDR {
		return unix.SizeofIfAddrmsg
	}
	return unix.SizeofIfInfomsg
}

// foreign reports whether an announcement is about a change by others.
func (d *Device) foreign(m netlink.Message) bool {
	head := headBytes(m.Kind)
	if len(m.Payload) < head {
		return false
	}
	attrs := m.Payload[head:]
	// The index is at the same place in the head of either kind.
	index := int(binary.NativeEndian.Uint32(m.Payload[4:]))
	d.mu.Lock()
	defer d.mu.Unlock()
	switch m.Kind {
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		return index == d.index && d.contradicts(m, attrs)
	case unix.RTM_DELLINK:
		return index == d.index
	case unix.RTM_NEWLINK:
		ours := netlink.Find(attrs, unix.IFLA_IFNAME).Text() == DeviceName
		return ours != (index == d.index) && (!ours || !d.making)
	}
	return false
}

// contradicts reports whether an announcement of an address differs from what the device
// should have. d.mu is locked.
func (d *Device) contradicts(m netlink.Message, attrs []byte) bool {
	if d.family != unix.AF_UNSPEC && int(m.Payload[0]) != d.family {
		return false
	}
	local := netlink.Find(attrs, unix.IFA_LOCAL).Addr()
	if !local.IsValid() {
		local = netlink.Find(attrs, unix.IFA_ADDRESS).Addr() // as IPv6 has it
	}
	prefixBits := int(m.Payload[1])
	if !local.IsValid() || prefixBits != local.BitLen() || !counts(local) {
		return false
	}
	_, held := d.held[local]
	return held != (m.Kind == unix.RTM_NEWADDR)
}
