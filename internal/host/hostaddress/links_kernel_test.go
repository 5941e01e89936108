// SPDX-License-Identifier: Apache-2.0

package hostaddress

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// TestKernelWatchLinks: WatchLinks reports added, renamed and removed devices, without loopback and members of a
// bridge.
func TestKernelWatchLinks(t *testing.T) {
	testenv.NeedsRoot(t)
	namespace, err := netns.New(t.Name())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	seen, ended := make(chan []Link, 100), make(chan error, 1)
	go func() {
		ended <- namespace.Do(func() error { return WatchLinks(ctx, func(all []Link) { seen <- all }) })
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := namespace.Close(); err != nil {
			t.Error(err)
		}
	})
	expect := func(want ...string) {
		t.Helper()
		slices.Sort(want)
		timeout := time.After(reactMax)
		for {
			var names []string
			select {
			case all := <-seen:
				for _, l := range all {
					if l.Index == 0 {
						t.Errorf("%s has no index", l.Name)
					}
					names = append(names, l.Name)
				}
			case <-timeout:
				t.Fatalf("%v passed without %v", reactMax, want)
			}
			if slices.Sort(names); slices.Equal(names, want) {
				return
			}
		}
	}
	do := func(change func() error) {
		t.Helper()
		if err := namespace.Do(change); err != nil {
			t.Fatal(err)
		}
	}
	named := func(name string) netlink.LinkAttrs {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = name
		return attrs
	}
	expect()
	do(func() error { return netlink.LinkAdd(&netlink.Veth{LinkAttrs: named("v1"), PeerName: "v2"}) })
	expect("v1", "v2")
	bridge := &netlink.Bridge{LinkAttrs: named("b")}
	do(func() error { return netlink.LinkAdd(bridge) })
	expect("b", "v1", "v2")
	v1 := func() netlink.Link {
		l, err := netlink.LinkByName("v1")
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	do(func() error { return netlink.LinkSetMaster(v1(), bridge) })
	expect("b", "v2")
	do(func() error { return netlink.LinkSetNoMaster(v1()) })
	expect("b", "v1", "v2")
	do(func() error { return netlink.LinkSetName(v1(), "v3") })
	expect("b", "v2", "v3")
	do(func() error { return netlink.LinkDel(bridge) })
	expect("v2", "v3")
}
