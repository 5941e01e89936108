// Package hostaddress follows the addresses of this host's interfaces, for node
// ports that answer on some of them only.
package hostaddress

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
)

// settle is how long a burst of address changes is gathered.
const settle = 50 * time.Millisecond

// rescan is how often the addresses are read without a notification, in case
// one was lost.
const rescan = 5 * time.Minute

// Watch calls changed with all addresses, sorted, at the start and after each
// difference, until the context ends. It blocks. The kernel announces changes
// (rtnetlink(7), RTM_NEWADDR and RTM_DELADDR).
func Watch(ctx context.Context, changed func([]netip.Addr)) error {
	updates := make(chan netlink.AddrUpdate, 64)
	stop := make(chan struct{})
	defer close(stop)
	if err := netlink.AddrSubscribe(updates, stop); err != nil {
		return fmt.Errorf("host addresses: cannot subscribe to changes: %w", err)
	}
	last, err := List()
	if err != nil {
		return err
	}
	changed(last)
	timer := time.NewTimer(rescan)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case _, ok := <-updates:
			if !ok {
				return fmt.Errorf("host addresses: the kernel closed the subscription")
			}
			timer.Reset(settle)
		case <-timer.C:
			now, err := List()
			if err != nil {
				return err
			}
			if !slices.Equal(now, last) {
				last = now
				changed(now)
			}
			timer.Reset(rescan)
		}
	}
}

// List gives the addresses of all interfaces, sorted and without duplicates.
func List() ([]netip.Addr, error) {
	found, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("host addresses: cannot list them: %w", err)
	}
	var all []netip.Addr
	for _, a := range found {
		if addr, ok := netip.AddrFromSlice(a.IP); ok {
			all = append(all, addr.Unmap())
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all), nil
}
