package hostaddress

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
)

// lister reads the addresses of interfaces.
type lister struct {
	// without is the name of the interface to pass over; empty for none.
	without string
	// index is that of the interface when it was last looked for; 0 when it was
	// not there.
	index int
}

// passesOver tells whether the addresses of an interface do not count.
func (l *lister) passesOver(index int) bool { return l.index != 0 && l.index == index }

// list gives the addresses, sorted and without duplicates; it is never nil.
func (l *lister) list() ([]netip.Addr, error) {
	if err := l.find(); err != nil {
		return nil, err
	}
	found, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	for attempt := 1; attempt < attempts && errors.Is(err, netlink.ErrDumpInterrupted); attempt++ {
		found, err = netlink.AddrList(nil, netlink.FAMILY_ALL)
	}
	if err != nil {
		return nil, fmt.Errorf("host addresses: cannot list them: %w", err)
	}
	all := []netip.Addr{}
	for _, a := range found {
		if addr, ok := netip.AddrFromSlice(a.IP); ok && !l.passesOver(a.LinkIndex) {
			all = append(all, addr.Unmap())
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all), nil
}

// find looks for the interface to pass over. It may come, go, and come again with
// another index.
func (l *lister) find() error {
	l.index = 0
	if l.without == "" {
		return nil
	}
	link, err := netlink.LinkByName(l.without)
	if _, absent := errors.AsType[netlink.LinkNotFoundError](err); absent {
		return nil
	}
	if err != nil {
		return fmt.Errorf("host addresses: cannot look for interface %s: %w", l.without, err)
	}
	l.index = link.Attrs().Index
	return nil
}
