// SPDX-License-Identifier: Apache-2.0

package hostaddress

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// reactMax bounds the time until a change is seen.
var reactMax = testenv.Patience

var loopback = []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")}

// watched is a Watch in a namespace of its own.
type watched struct {
	*testing.T
	namespace *netns.Namespace
	seen      chan []netip.Addr
	cancel    context.CancelFunc
	ended     chan error
}

func newWatched(t *testing.T, subscribe subscribe[netlink.AddrUpdate]) *watched {
	t.Helper()
	return newWatchedBy(t, subscribe, &lister{})
}

func newWatchedBy(t *testing.T, subscribe subscribe[netlink.AddrUpdate], l *lister) *watched {
	t.Helper()
	testenv.NeedsRoot(t)
	namespace, err := netns.New(t.Name())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	w := &watched{T: t, namespace: namespace, seen: make(chan []netip.Addr, 100), cancel: cancel, ended: make(chan error, 1)}
	go func() {
		w.ended <- namespace.Do(func() error {
			return watch(ctx, subscribe, l, func(all []netip.Addr) { w.seen <- all })
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := namespace.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// expect waits until the addresses are these and those of the loopback interface.
func (w *watched) expect(more ...string) {
	w.Helper()
	want := slices.Clone(loopback)
	for _, text := range more {
		want = append(want, netip.MustParseAddr(text))
	}
	slices.SortFunc(want, netip.Addr.Compare)
	timeout := time.After(reactMax)
	var last []netip.Addr
	for {
		select {
		case last = <-w.seen:
			if slices.Equal(last, want) {
				return
			}
		case err := <-w.ended:
			w.Fatalf("watch ended: %v", err)
		case <-timeout:
			w.Fatalf("%v passed; last seen %v, want %v", reactMax, last, want)
		}
	}
}

// add adds an address to the loopback interface.
func (w *watched) add(addr string) {
	w.Helper()
	if err := w.namespace.AddAddress("lo", netip.MustParsePrefix(addr)); err != nil {
		w.Fatal(err)
	}
}

// addTo adds an address to an interface.
func (w *watched) addTo(ifname, addr string) {
	w.Helper()
	if err := w.namespace.AddAddress(ifname, netip.MustParsePrefix(addr)); err != nil {
		w.Fatal(err)
	}
}

// remove removes an address from the loopback interface.
func (w *watched) remove(text string) {
	w.Helper()
	err := w.namespace.Do(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		addr, err := netlink.ParseAddr(text)
		if err != nil {
			return err
		}
		return netlink.AddrDel(lo, addr)
	})
	if err != nil {
		w.Fatal(err)
	}
}

// TestKernelWatch_AddressesComeAndGo: the watch reports added and removed addresses.
func TestKernelWatch_AddressesComeAndGo(t *testing.T) {
	w := newWatched(t, netlink.AddrSubscribe)
	w.expect()
	w.add("192.0.2.1/32")
	w.expect("192.0.2.1")
	w.add("2001:db8::1/128")
	w.expect("192.0.2.1", "2001:db8::1")
	w.remove("192.0.2.1/32")
	w.expect("2001:db8::1")
	w.remove("2001:db8::1/128")
	w.expect()
}

// TestKernelWatch_SkippedInterface: the watch leaves out the addresses of the skipped interface, which is added after
// the watch began.
func TestKernelWatch_SkippedInterface(t *testing.T) {
	w := newWatchedBy(t, netlink.AddrSubscribe, &lister{without: "ours"})
	w.expect()
	w.addLink("ours")
	w.addTo("ours", "192.0.2.1/32")
	w.addTo("ours", "192.0.2.2/32")
	w.add("192.0.2.2/32")
	w.expect("192.0.2.2")
	w.addTo("ours", "192.0.2.3/32")
	w.add("192.0.2.4/32")
	w.expect("192.0.2.2", "192.0.2.4")
	if len(w.seen) > 0 {
		t.Errorf("called again without a difference: %v", <-w.seen)
	}
	var all []netip.Addr
	if err := w.namespace.Do(func() (err error) { all, err = (&lister{without: "lo"}).list(); return err }); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(all), "[192.0.2.1 192.0.2.2 192.0.2.3]"; got != want {
		t.Errorf("without lo: got %s, want %s", got, want)
	}
}

// addLink makes an interface without carrier, which gets no addresses by itself.
func (w *watched) addLink(ifname string) {
	w.Helper()
	err := w.namespace.Do(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = ifname
		return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs})
	})
	if err != nil {
		w.Fatal(err)
	}
}

// TestKernelWatch_Burst: the watch gathers a burst of changes, and reports nothing if they cancel each other out.
func TestKernelWatch_Burst(t *testing.T) {
	w := newWatched(t, netlink.AddrSubscribe)
	w.expect()
	var want []string
	for i := range 50 {
		addr := fmt.Sprintf("192.0.2.%d", i+1)
		w.add(addr + "/32")
		want = append(want, addr)
	}
	w.expect(want...)
	// An address that comes and goes within a burst makes no difference.
	w.add("198.51.100.1/32")
	w.remove("198.51.100.1/32")
	w.add("198.51.100.2/32")
	w.expect(append(want, "198.51.100.2")...)
	if len(w.seen) > 0 {
		t.Errorf("called again without a difference: %v", <-w.seen)
	}
}

// TestKernelWatch_SubscribesAgain: the watch subscribes again when its subscription ends.
func TestKernelWatch_SubscribesAgain(t *testing.T) {
	var subscriptions atomic.Int32
	w := newWatched(t, func(updates chan<- netlink.AddrUpdate, stop <-chan struct{}) error {
		if subscriptions.Add(1) == 1 {
			close(updates)
			return nil
		}
		return netlink.AddrSubscribe(updates, stop)
	})
	w.expect()
	w.add("192.0.2.1/32")
	w.expect("192.0.2.1")
	w.add("192.0.2.2/32")
	w.expect("192.0.2.1", "192.0.2.2")
	if n := subscriptions.Load(); n != 2 {
		t.Errorf("%d subscriptions, want 2", n)
	}
}

// TestWatch_EndlessBurst: a burst that does not end delays the reading only for a moment, so an address that is added
// during it is reported.
func TestWatch_EndlessBurst(t *testing.T) {
	w := newWatched(t, func(updates chan<- netlink.AddrUpdate, stop <-chan struct{}) error {
		go func() {
			for tick := time.Tick(10 * time.Millisecond); ; <-tick {
				select {
				case updates <- netlink.AddrUpdate{LinkIndex: 99}:
				case <-stop:
					return
				}
			}
		}()
		return nil
	})
	w.expect()
	w.add("192.0.2.1/32")
	w.expect("192.0.2.1")
}

// TestWatch_SubscriptionFails: the watch returns an error if its first subscription fails.
func TestWatch_SubscriptionFails(t *testing.T) {
	rejected := errors.New("rejected")
	err := watch(t.Context(), func(chan<- netlink.AddrUpdate, <-chan struct{}) error { return rejected }, &lister{}, func([]netip.Addr) {
		t.Error("called without a subscription")
	})
	if !errors.Is(err, rejected) {
		t.Errorf("got %v", err)
	}
}

// TestKernelWatch_EndsWithContext: the watch ends with its context.
func TestKernelWatch_EndsWithContext(t *testing.T) {
	w := newWatched(t, netlink.AddrSubscribe)
	w.expect()
	w.cancel()
	select {
	case err := <-w.ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(reactMax):
		t.Errorf("still runs %v later", reactMax)
	}
}

// TestKernelList_EachAddressOnce: List returns each address once, even if it has two prefix lengths.
func TestKernelList_EachAddressOnce(t *testing.T) {
	testenv.NeedsRoot(t)
	namespace, err := netns.New(t.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer namespace.Close() // the namespace ends with the process at the latest
	// One address with two prefix lengths counts as two for the kernel.
	for _, addr := range []string{"192.0.2.1/32", "192.0.2.1/24"} {
		if err := namespace.AddAddress("lo", netip.MustParsePrefix(addr)); err != nil {
			t.Fatal(err)
		}
	}
	var got []netip.Addr
	if err := namespace.Do(func() (err error) { got, err = List(); return err }); err != nil {
		t.Fatal(err)
	}
	want := []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("::1")}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestKernelWatch_PollsWithoutSubscription: if the watch cannot subscribe again, it reads the addresses from time to
// time until it can.
func TestKernelWatch_PollsWithoutSubscription(t *testing.T) {
	var asked atomic.Int32
	w := newWatched(t, func(updates chan<- netlink.AddrUpdate, stop <-chan struct{}) error {
		switch asked.Add(1) {
		case 1:
			close(updates) // as the kernel does with a subscriber that is too slow
			return nil
		case 2, 3:
			return errors.New("no socket left")
		default:
			return netlink.AddrSubscribe(updates, stop)
		}
	})
	w.expect()
	w.add("192.0.2.1/32")
	deadline := time.Now().Add(reactMax)
	for asked.Load() < 4 {
		if time.Now().After(deadline) {
			t.Fatalf("asked %d times", asked.Load())
		}
		time.Sleep(10 * time.Millisecond)
	}
	w.expect("192.0.2.1")

	never := newWatched(t, func(chan<- netlink.AddrUpdate, <-chan struct{}) error { return errors.New("no socket left") })
	if err := <-never.ended; err == nil {
		t.Error("it starts without a subscription")
	}
}

// TestKernelList_WhileAddressesChange: List is complete while addresses change. It reads more addresses than fit into
// one message, so that changes come between two messages.
func TestKernelList_WhileAddressesChange(t *testing.T) {
	testenv.NeedsRoot(t)
	namespace, err := netns.New(t.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer namespace.Close() // the namespace ends with the process at the latest
	for i := range 400 {
		addr := netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
		if err := namespace.AddAddress("lo", netip.PrefixFrom(addr, 32)); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	churned := make(chan error, 1)
	go func() { churned <- namespace.Do(func() error { return churn(ctx) }) }()
	err = namespace.Do(func() error {
		for range 200 {
			all, err := List()
			if err != nil {
				return err
			}
			if len(all) < 402 {
				return fmt.Errorf("%d addresses, want 402 at least", len(all))
			}
		}
		return nil
	})
	cancel()
	if err := errors.Join(err, <-churned); err != nil {
		t.Error(err)
	}
}

// churn adds and removes an address until the context ends, with a pause in between.
func churn(ctx context.Context) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	addr, err := netlink.ParseAddr("192.0.2.1/32")
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		if err := netlink.AddrAdd(lo, addr); err != nil {
			return err
		}
		if err := netlink.AddrDel(lo, addr); err != nil {
			return err
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}
