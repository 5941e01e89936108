// Package hostaddress follows the addresses of this host's interfaces, for node
// ports that answer on some of them only.
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

// settle is how long a burst of address changes is gathered.
const settle = 50 * time.Millisecond

// rescan is how often the addresses are read without a notification, in case
// one was lost.
const rescan = 5 * time.Minute

// again is the pause after a failure, once the addresses have been read: until it
// works again, they are read as often.
const again = time.Second

// attempts bounds the listings of which the kernel says that they are not one
// picture, because addresses changed meanwhile (NLM_F_DUMP_INTR).
const attempts = 100

// Watch calls changed with all addresses, sorted, at the start and after each
// difference, until the context ends. It blocks. The kernel announces changes
// (rtnetlink(7), RTM_NEWADDR and RTM_DELADDR). It fails at the start only; later
// trouble, such as no descriptor left for a socket, is tried again, and the last
// addresses count until then.
func Watch(ctx context.Context, changed func([]netip.Addr)) error {
	return watch(ctx, netlink.AddrSubscribe, &lister{}, changed)
}

// WatchWithout is Watch for addresses that the host has apart from those of one
// interface, whose changes wake nobody. It need not exist.
func WatchWithout(ifname string) func(ctx context.Context, changed func([]netip.Addr)) error {
	return func(ctx context.Context, changed func([]netip.Addr)) error {
		return watch(ctx, netlink.AddrSubscribe, &lister{without: ifname}, changed)
	}
}

// subscribe asks for announcements, until stop is closed. It closes updates when
// the kernel ends the subscription, as it does when it has more to announce than
// the socket's buffer holds (netlink(7), ENOBUFS).
type subscribe func(updates chan<- netlink.AddrUpdate, stop <-chan struct{}) error

func watch(ctx context.Context, subscribe subscribe, l *lister, changed func([]netip.Addr)) error {
	stop := make(chan struct{})
	defer close(stop)
	var updates chan netlink.AddrUpdate // nil without a subscription
	var last []netip.Addr
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case update, ok := <-updates:
			if ok && l.passesOver(update.LinkIndex) {
				continue
			}
			if !ok {
				updates = nil
			}
			timer.Reset(settle)
		case <-timer.C:
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

// look reads the addresses, having subscribed to changes if there is no
// subscription. Either can succeed without the other; now is nil without addresses.
func look(updates *chan netlink.AddrUpdate, subscribe subscribe, l *lister, stop <-chan struct{}) (now []netip.Addr, subscribed bool, err error) {
	if *updates == nil {
		fresh := make(chan netlink.AddrUpdate, 64)
		if err = subscribe(fresh, stop); err != nil {
			err = fmt.Errorf("host addresses: cannot subscribe to changes: %w", err)
		} else {
			*updates = fresh
		}
	}
	now, listErr := l.list()
	return now, *updates != nil, errors.Join(err, listErr)
}

// List gives the addresses of all interfaces, sorted and without duplicates; it
// is never nil.
func List() ([]netip.Addr, error) { return (&lister{}).list() }
