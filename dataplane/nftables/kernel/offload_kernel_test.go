// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// newOffload returns the offload of a node. It is nil on a kernel without flowtables, which the test examines then: it must
// say what is missing, and nothing may be left.
func newOffload(t *testing.T) (*world, *kernel.Offload) {
	t.Helper()
	w := newWorld(t, service.IPv4, kernel.WriterConfig{})
	err := w.node.Do(kernel.CheckOffload)
	if left := w.nft("", "list", "ruleset"); left != "" {
		t.Errorf("the check leaves\n%s", left)
	}
	made, makeErr := in(w.node, kernel.NewOffload)
	if err == nil && makeErr == nil {
		t.Cleanup(func() { _ = made.Close() })
		return w, made
	}
	_, missing := errors.AsType[*kernel.NoOffloadError](err)
	if !missing || makeErr == nil || !strings.Contains(err.Error(), "Linux 5.15 with CONFIG_NF_FLOW_TABLE_INET") {
		t.Errorf("check: %v; offload: %v", err, makeErr)
	}
	if left := w.nft("", "list", "tables"); left != "" {
		t.Errorf("a kernel that cannot offload has\n%s", left)
	}
	t.Logf("this kernel cannot offload: %v", err)
	return w, nil
}

// addDevice adds a pair of devices, and returns the first.
func addDevice(w *world, name string) (d kernel.Device) {
	w.Helper()
	err := w.node.Do(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = name
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: name + "-peer"}); err != nil {
			return err
		}
		link, err := netlink.LinkByName(name)
		if err == nil {
			d = kernel.Device{Index: link.Attrs().Index, Name: name}
		}
		return err
	})
	if err != nil {
		w.Fatal(err)
	}
	return d
}

func deleteDevice(w *world, name string) {
	w.Helper()
	err := w.node.Do(func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return netlink.LinkDel(link)
	})
	if err != nil {
		w.Fatal(err)
	}
}

// devicesOf returns the devices of the flowtable, as nft lists them.
func devicesOf(w *world) string {
	w.Helper()
	list := w.nft("", "list", "flowtables")
	found := regexp.MustCompile(`devices = \{ (.*) \}`).FindStringSubmatch(list)
	if found == nil {
		return ""
	}
	return found[1]
}

// TestOffload_FollowsDevices: the offload follows devices that are added, removed, added again under the same name, and
// removed before they are hooked.
func TestOffload_FollowsDevices(t *testing.T) {
	w, o := newOffload(t)
	if o == nil {
		return
	}
	follow := func(wantHooked int, wantList string, devices ...kernel.Device) {
		t.Helper()
		if err := o.Follow(devices); err != nil {
			t.Error(err)
		}
		if o.Devices() < wantHooked {
			t.Errorf("%d devices, want %d", o.Devices(), wantHooked)
		}
		got := strings.Split(strings.ReplaceAll(devicesOf(w), `"`, ""), ", ")
		for _, name := range strings.Fields(wantList) {
			if !strings.Contains(" "+strings.Join(got, " ")+" ", " "+name+" ") {
				t.Errorf("devices %v, want %s", got, wantList)
			}
		}
		if len(strings.Fields(wantList)) == 0 && devicesOf(w) != "" {
			t.Errorf("devices %v, want none", got)
		}
	}
	follow(0, "")
	a, b := addDevice(w, "a"), addDevice(w, "b")
	follow(2, "a b", a, b)
	follow(2, "a b", a, b)
	follow(1, "b", b)
	follow(2, "a b", b, a)
	deleteDevice(w, "a")
	follow(1, "b", b)
	again := addDevice(w, "a")
	if again == a {
		t.Fatalf("the kernel gave the index %d twice", a.Index)
	}
	follow(2, "a b", b, again)
	vanished := kernel.Device{Index: 9999, Name: "vanished"}
	follow(2, "a b", vanished, b, again)
	follow(0, "")

	many := []kernel.Device{vanished}
	for i := range 150 {
		many = append(many, addDevice(w, fmt.Sprint("pod", i)))
	}
	follow(150, "pod0 pod77 pod149", many...)
	follow(1, "pod7", many[8])
}

// TestOffload_BelongsToItsProcess: other processes cannot change the offload table, a second owner is rejected, and
// nothing remains after Close.
func TestOffload_BelongsToItsProcess(t *testing.T) {
	w, o := newOffload(t)
	if o == nil {
		return
	}
	if list := w.nft("", "list", "ruleset"); !strings.Contains(list, "flow add @services") || !strings.Contains(list, "priority 300") {
		t.Errorf("the kernel has\n%s", list)
	}
	w.nft("", "flush", "ruleset") // as firewalls do when they start
	if tables := w.nft("", "list", "tables"); !strings.Contains(tables, "sluice-offload") {
		t.Errorf("flush ruleset leaves only %q", tables)
	}
	if _, err := in(w.node, kernel.NewOffload); !errors.Is(err, unix.EPERM) {
		t.Errorf("a second owner: %v, want EPERM", err)
	}
	if err := o.Close(); err != nil {
		t.Error(err)
	}
	if left := w.nft("", "list", "ruleset"); left != "" {
		t.Errorf("left is\n%s", left)
	}
	next, err := in(w.node, kernel.NewOffload)
	if err != nil {
		t.Fatal(err)
	}
	next.Abandon()
	testenv.Eventually(t, "a killed process leaves nothing", func() bool { return w.nft("", "list", "ruleset") == "" })
}
