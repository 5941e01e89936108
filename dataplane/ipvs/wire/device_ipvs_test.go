// SPDX-License-Identifier: Apache-2.0

//go:build ipvs

package wire

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// quietFor is how long no change must be announced.
const quietFor = 300 * time.Millisecond

type deviceWorld struct {
	*testing.T
	*Device
	namespace *netns.Namespace
	changes   chan struct{}
}

// newDeviceWorld is a namespace in which the device is watched.
func newDeviceWorld(t *testing.T) *deviceWorld {
	t.Helper()
	namespace, err := netns.New(t.Name())
	if err != nil {
		t.Fatal(err)
	}
	d, err := OpenDevice(namespace.Do, unix.AF_UNSPEC)
	if err != nil {
		t.Fatal(err)
	}
	w := &deviceWorld{T: t, Device: d, namespace: namespace, changes: make(chan struct{}, 100000)}
	ctx, cancel := context.WithCancelCause(context.Background()) // the test's own ends before its cleanup
	why := errors.New("the test is over")
	ended := make(chan error, 1)
	go func() { ended <- d.Watch(ctx, func() { w.changes <- struct{}{} }) }()
	t.Cleanup(func() {
		cancel(why)
		if err := <-ended; !errors.Is(err, why) {
			t.Errorf("watch ended with %v", err)
		}
		if err := errors.Join(d.Close(), namespace.Close()); err != nil {
			t.Error(err)
		}
	})
	time.Sleep(quietFor) // the watch begins
	return w
}

// ip makes a change as another program.
func (w *deviceWorld) ip(args ...string) {
	w.Helper()
	cmd := exec.Command("ip", args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if _, err := netnstest.Output(w.namespace, cmd); err != nil {
		w.Fatalf("ip %v: %v: %s", args, err, stderr.String())
	}
}

// quiet fails the test when a change is announced.
func (w *deviceWorld) quiet(after string) {
	w.Helper()
	time.Sleep(quietFor)
	if len(w.changes) != 0 {
		w.Errorf("%s: %d announcements of changes by others", after, len(w.changes))
		w.forget()
	}
}

// noticed fails the test when no change is announced.
func (w *deviceWorld) noticed(after string) {
	w.Helper()
	select {
	case <-w.changes:
		time.Sleep(quietFor)
		w.forget()
	case <-time.After(testenv.Patience):
		w.Errorf("%s: not announced", after)
	}
}

func (w *deviceWorld) forget() {
	for len(w.changes) > 0 {
		<-w.changes
	}
}

func (w *deviceWorld) ensure() {
	w.Helper()
	if err := w.Ensure(); err != nil {
		w.Fatal(err)
	}
}

func (w *deviceWorld) allDone(results []error) {
	w.Helper()
	if err := errors.Join(results...); err != nil {
		w.Fatal(err)
	}
}

// expect compares the addresses of the device and of the others.
func (w *deviceWorld) expect(family int, own, others []string) {
	w.Helper()
	gotOwn, gotOthers, err := w.Addresses(family)
	if err != nil {
		w.Fatal(err)
	}
	if fmt.Sprint(gotOwn) != fmt.Sprint(own) || fmt.Sprint(gotOthers) != fmt.Sprint(others) {
		w.Errorf("own %v, others %v; want %v, %v", gotOwn, gotOthers, own, others)
	}
}

func addrs(texts ...string) []netip.Addr {
	var all []netip.Addr
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

// TestDevice_Lifecycle: the device and its addresses are created and removed, also repeatedly, and none of these
// changes is announced as foreign.
func TestDevice_Lifecycle(t *testing.T) {
	w := newDeviceWorld(t)
	w.expect(unix.AF_INET, nil, nil)
	w.allDone(w.Remove(t.Context(), addrs("10.0.0.1")))
	if err := w.Add(t.Context(), addrs("10.0.0.1"))[0]; !errors.Is(err, ErrNoDevice) || Unknown(err) {
		t.Errorf("added without a device: %v", err)
	}
	for range 2 {
		w.ensure()
	}
	link, err := w.routing.LinkByName(DeviceName)
	if err != nil || link.Type() != "dummy" || link.Attrs().Flags&unix.IFF_UP != 0 {
		t.Errorf("device %+v, %v: want a dummy that is down", link, err)
	}
	for range 2 {
		w.allDone(w.Add(t.Context(), addrs("10.0.0.1", "fd00::1", "10.0.0.2", "10.0.0.2")))
	}
	w.expect(unix.AF_INET, []string{"10.0.0.1", "10.0.0.2"}, nil)
	w.expect(unix.AF_INET6, []string{"fd00::1"}, nil)
	// Local although the device is down: this is what it is for.
	for _, a := range []string{"10.0.0.1:80", "[fd00::1]:80"} {
		listener, err := w.namespace.Listen("tcp", a)
		if err != nil {
			t.Errorf("listen at %s: %v", a, err)
			continue
		}
		conn, err := w.namespace.DialContext(t.Context(), "tcp", a)
		if err != nil {
			t.Errorf("connect to %s: %v", a, err)
		} else if err := conn.Close(); err != nil {
			t.Error(err)
		}
		if err := listener.Close(); err != nil {
			t.Error(err)
		}
	}
	for range 2 {
		w.allDone(w.Remove(t.Context(), addrs("10.0.0.2", "fd00::1")))
	}
	w.expect(unix.AF_INET, []string{"10.0.0.1"}, nil)
	w.expect(unix.AF_INET6, nil, nil)
	for range 2 {
		if err := w.Delete(); err != nil {
			t.Error(err)
		}
	}
	w.expect(unix.AF_INET, nil, nil)
	w.quiet("everything was ours")
}

// TestDevice_AddressesOfHost: Addresses also returns the addresses of the host, which may be on the device as well.
// Addresses that every host has and networks on our device do not count.
func TestDevice_AddressesOfHost(t *testing.T) {
	w := newDeviceWorld(t)
	w.ensure()
	w.ip("link", "add", "eth7", "type", "dummy")
	w.ip("link", "set", "eth7", "up") // with an IPv6 link-local address
	for _, a := range []string{"10.0.0.2/24", "10.0.0.9/32", "169.254.20.10/32", "fd00::2/64"} {
		w.ip("addr", "add", a, "dev", "eth7")
	}
	w.ip("addr", "add", "10.7.7.7/32", "dev", "lo")
	w.ip("addr", "add", "10.1.1.1/24", "dev", DeviceName)
	w.allDone(w.Add(t.Context(), addrs("10.0.0.2", "10.0.0.1", "fd00::1")))
	w.expect(unix.AF_INET, []string{"10.0.0.1", "10.0.0.2"}, []string{"10.0.0.2", "10.0.0.9", "10.7.7.7", "169.254.20.10"})
	w.expect(unix.AF_INET6, []string{"fd00::1"}, []string{"fd00::2"})
	w.quiet("the device itself has not changed but for our part")
}

// TestDevice_WrongType: a device of another type under our name is neither changed nor deleted, and the error names the
// type.
func TestDevice_WrongType(t *testing.T) {
	w := newDeviceWorld(t)
	w.ip("link", "add", DeviceName, "type", "bridge")
	w.ip("addr", "add", "10.0.0.2/32", "dev", DeviceName)
	var wrong *WrongTypeError
	if err := w.Ensure(); !errors.As(err, &wrong) || wrong.Type != "bridge" || !strings.Contains(err.Error(), "of type bridge and not dummy") {
		t.Errorf("ensured: %v", err)
	}
	if err := w.Delete(); !errors.As(err, &wrong) {
		t.Errorf("deleted: %v", err)
	}
	for _, err := range append(w.Add(t.Context(), addrs("10.0.0.1")), w.Remove(t.Context(), addrs("10.0.0.2"))...) {
		if !errors.As(err, &wrong) {
			t.Errorf("changed: %v", err)
		}
	}
	w.expect(unix.AF_INET, nil, []string{"10.0.0.2"})
}

// TestDevice_ForeignChangesAnnounced: each change by another program is announced, and no change of ours.
func TestDevice_ForeignChangesAnnounced(t *testing.T) {
	w := newDeviceWorld(t)
	w.ensure()
	w.allDone(w.Add(t.Context(), addrs("10.0.0.1", "fd00::1")))
	w.quiet("our part")
	for _, args := range []string{
		"addr del 10.0.0.1/32 dev " + DeviceName, "addr del fd00::1/128 dev " + DeviceName,
		"addr add 10.0.0.5/32 dev " + DeviceName, "addr add fd00::5/128 dev " + DeviceName,
	} {
		w.ip(strings.Fields(args)...)
		w.noticed(args)
	}
	w.expect(unix.AF_INET, []string{"10.0.0.5"}, nil)
	w.expect(unix.AF_INET6, []string{"fd00::5"}, nil)
	w.allDone(w.Remove(t.Context(), addrs("10.0.0.5", "fd00::5")))
	w.allDone(w.Add(t.Context(), addrs("10.0.0.1", "fd00::1")))
	w.quiet("our repair")
	w.ip("link", "add", "eth7", "type", "dummy")
	w.ip("addr", "add", "10.0.0.77/32", "dev", "eth7")
	w.ip("link", "set", DeviceName, "up")
	w.quiet("other devices, and the state of ours")
	w.ip("link", "del", DeviceName)
	w.noticed("the device was deleted")
	w.ensure()
	w.allDone(w.Add(t.Context(), addrs("10.0.0.1")))
	w.quiet("our repair")
	if err := w.Delete(); err != nil {
		t.Fatal(err)
	}
	w.ip("link", "add", DeviceName, "type", "dummy")
	w.noticed("another program made the device")
	w.ensure()
	w.ip("link", "set", DeviceName, "name", "renamed")
	w.noticed("the device was renamed")
	w.ensure()
	w.quiet("our repair")
}

// TestDevice_ManyAddresses: none of the announcements of 2,000 added addresses is taken for a foreign one.
func TestDevice_ManyAddresses(t *testing.T) {
	w := newDeviceWorld(t)
	w.ensure()
	var all []netip.Addr
	for i := range 1000 {
		all = append(all, netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}),
			netip.AddrFrom16([16]byte{0: 0xfd, 14: byte(i >> 8), 15: byte(i)}))
	}
	start := time.Now()
	w.allDone(w.Add(t.Context(), all))
	added := time.Now()
	four, _, err := w.Addresses(unix.AF_INET)
	six, _, err6 := w.Addresses(unix.AF_INET6)
	listed := time.Now()
	if err := errors.Join(err, err6); err != nil {
		t.Fatal(err)
	}
	want := slices.Clone(all)
	slices.SortFunc(want, netip.Addr.Compare)
	if !slices.Equal(slices.Concat(four, six), want) {
		t.Errorf("%d and %d addresses", len(four), len(six))
	}
	w.allDone(w.Remove(t.Context(), all))
	t.Logf("%d addresses: added in %v, listed in %v, removed in %v", len(all), added.Sub(start), listed.Sub(added), time.Since(listed))
	w.expect(unix.AF_INET, nil, nil)
	w.quiet("everything was ours")
}
