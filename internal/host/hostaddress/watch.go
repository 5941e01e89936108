// SPDX-License-Identifier: Apache-2.0

// Package hostaddress watches the addresses of this host's interfaces, because node ports may be open on some of them
// only, and the interfaces themselves. It owns only its netlink sockets. Package daemon gets the node's addresses from
// it, and package conntrack recognizes the host's own addresses with it.
package hostaddress

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
)

const (
	// settle is how long address changes must pause before the addresses are read.
	settle = 50 * time.Millisecond
	// settleMax bounds how long changes without a pause delay the reading.
	settleMax = 250 * time.Millisecond
	// rescan is how often the addresses are read without a notification, in case one was lost.
	rescan = 5 * time.Minute
	// again is the pause after a failure, once the addresses have been read.
	again = time.Second
	// attempts bounds the listings that the kernel reports as inconsistent, because addresses
	// changed meanwhile (NLM_F_DUMP_INTR).
	attempts = 100
)

// Watch calls changed with all addresses, sorted, at the start and after each difference, until the
// context ends. It blocks. The kernel announces changes (rtnetlink(7), RTM_NEWADDR and
// RTM_DELADDR). It fails only at the start. A later error, for example because there is no
// descriptor left for a socket, is retried, and the last addresses count until then.
func Watch(ctx context.Context, changed func([]netip.Addr)) error {
	return watch(ctx, netlink.AddrSubscribe, &lister{}, changed)
}

// WatchLinks is Watch for network devices.
func WatchLinks(ctx context.Context, changed func([]Link)) error {
	return watch(ctx, netlink.LinkSubscribe, &links{}, changed)
}

// WatchWithout returns a Watch that leaves out the addresses of one interface and ignores their
// changes. The interface need not exist.
func WatchWithout(ifname string) func(ctx context.Context, changed func([]netip.Addr)) error {
	return func(ctx context.Context, changed func([]netip.Addr)) error {
		return watch(ctx, netlink.AddrSubscribe, &lister{without: ifname}, changed)
	}
}

// List returns the addresses of all interfaces, sorted and without duplicates. It never returns nil
// without an error.
func List() ([]netip.Addr, error) { return (&lister{}).list() }

// ListWithout is List without the addresses of one interface, which need not exist.
func ListWithout(ifname string) ([]netip.Addr, error) { return (&lister{without: ifname}).list() }

// Towards returns the interface through which the node would reach an address, or "" if it has no
// route there.
func Towards(addr netip.Addr) string {
	routes, err := netlink.RouteGet(addr.AsSlice())
	if err != nil || len(routes) == 0 {
		return ""
	}
	link, err := netlink.LinkByIndex(routes[0].LinkIndex)
	if err != nil {
		return ""
	}
	return link.Attrs().Name
}

// subscribe asks for announcements until stop is closed. It closes updates when the kernel ends the
// subscription, as it does when it has more to announce than the socket's buffer holds (netlink(7),
// ENOBUFS).
type subscribe[U any] func(updates chan<- U, stop <-chan struct{}) error

// source reads items that the kernel announces with updates.
type source[U, T any] interface {
	// list returns the items, sorted and without duplicates. It never returns nil without an error.
	list() ([]T, error)
	// passesOver reports whether an update changes no item.
	passesOver(update U) bool
}

func watch[U any, T comparable](ctx context.Context, subscribe subscribe[U], l source[U, T], changed func([]T)) error {
	stop := make(chan struct{})
	defer close(stop)
	var updates chan U // nil without a subscription
	var last []T
	var burst time.Time // when it began; zero without one
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case update, ok := <-updates:
			if ok && l.passesOver(update) {
				continue
			}
			if !ok {
				updates = nil
			}
			if burst.IsZero() {
				burst = time.Now()
			}
			timer.Reset(min(settle, settleMax-time.Since(burst)))
		case <-timer.C:
			burst = time.Time{}
			now, subscribed, err := look(&updates, subscribe, l, stop)
			if err != nil && last == nil {
				return err
			}
			if now == nil {
				timer.Reset(again)
				continue
			}
			if last == nil || !slices.Equal(now, last) {
				last = now
				changed(now)
			}
			timer.Reset(rescan)
			if !subscribed {
				timer.Reset(again)
			}
		}
	}
}

// look reads the items. If there is no subscription, it subscribes first. Either can succeed
// without the other; now is nil without items.
func look[U, T any](
	updates *chan U, subscribe subscribe[U], l source[U, T], stop <-chan struct{},
) (now []T, subscribed bool, err error) {
	if *updates == nil {
		fresh := make(chan U, 64)
		if err = subscribe(fresh, stop); err != nil {
			err = fmt.Errorf("network interfaces: cannot subscribe to changes: %w", err)
		} else {
			*updates = fresh
		}
	}
	now, listErr := l.list()
	return now, *updates != nil, errors.Join(err, listErr)
}

// lister reads the addresses of interfaces.
type lister struct {
	// without is the name of the interface to leave out, empty for none.
	without string
	// index is that of the interface at the last look, 0 if it did not exist.
	index int
}

// passesOver implements source.
func (l *lister) passesOver(update netlink.AddrUpdate) bool { return l.leavesOut(update.LinkIndex) }

// leavesOut reports whether the addresses of an interface are left out.
func (l *lister) leavesOut(index int) bool { return l.index != 0 && l.index == index }

// list returns the addresses, sorted and without duplicates.
func (l *lister) list() ([]netip.Addr, error) {
	if err := l.find(); err != nil {
		return nil, err
	}
	found, err := steadily(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("host addresses: cannot list them: %w", err)
	}
	all := []netip.Addr{}
	for _, a := range found {
		if addr, ok := netip.AddrFromSlice(a.IP); ok && !l.leavesOut(a.LinkIndex) {
			all = append(all, addr.Unmap())
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all), nil
}

// steadily repeats a listing that the kernel reports as inconsistent.
func steadily[T any](list func() ([]T, error)) (found []T, err error) {
	found, err = list()
	for attempt := 1; attempt < attempts && errors.Is(err, netlink.ErrDumpInterrupted); attempt++ {
		found, err = list()
	}
	return found, err
}

// find looks up the interface to leave out. Programs may create it, delete it, and create it again with another index.
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
		return fmt.Errorf("host addresses: cannot look up interface %s: %w", l.without, err)
	}
	l.index = link.Attrs().Index
	return nil
}
