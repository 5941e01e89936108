// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/netlink"
)

// Watch calls changed when another program created or deleted the device or changed its host
// addresses, and when announcements were lost because there were too many. It returns the
// context's cause when the context ends.
//
// The kernel does not report who changed an IPv6 address. An announcement that contradicts the last
// change or list therefore counts as a change by another program: Watch may call changed needlessly
// when an address is added and removed quickly, but it misses no relevant change.
//
// It does not use the library's subscriptions: they end when announcements are lost, separate ones
// for links and addresses lose the order between them, and they parse every link of the host in full.
func (d *Device) Watch(ctx context.Context, changed func()) error {
	var listener *netlink.Listener
	err := d.inside.Do(func() (err error) {
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

// headBytes returns the size of the header that precedes the attributes of an announcement.
func headBytes(kind uint16) int {
	if kind == unix.RTM_NEWADDR || kind == unix.RTM_DELADDR {
		return unix.SizeofIfAddrmsg
	}
	return unix.SizeofIfInfomsg
}

// foreign reports whether an announcement is about a change by another program.
func (d *Device) foreign(m netlink.Message) bool {
	head := headBytes(m.Kind)
	if len(m.Payload) < head {
		return false
	}
	attrs := m.Payload[head:]
	// The index is at the same offset in the header of both kinds.
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

// contradicts reports whether an announcement of an address contradicts the addresses that the
// device should have. d.mu is locked.
func (d *Device) contradicts(m netlink.Message, attrs []byte) bool {
	if d.family != unix.AF_UNSPEC && int(m.Payload[0]) != d.family {
		return false
	}
	local := netlink.Find(attrs, unix.IFA_LOCAL).Addr()
	if !local.IsValid() {
		local = netlink.Find(attrs, unix.IFA_ADDRESS).Addr() // IPv6 uses this attribute
	}
	prefixBits := int(m.Payload[1])
	if !local.IsValid() || prefixBits != local.BitLen() || !counts(local) {
		return false
	}
	_, held := d.held[local]
	return held != (m.Kind == unix.RTM_NEWADDR)
}
