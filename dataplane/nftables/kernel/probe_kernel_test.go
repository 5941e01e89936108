// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	"github.com/sluice-proxy/sluice/service"
)

// TestProbe_ThisKernelHasAllFeatures: this kernel has all needed features, and the probe leaves nothing.
func TestProbe_ThisKernelHasAllFeatures(t *testing.T) {
	for _, family := range service.Families {
		w := newWorld(t, family, kernel.WriterConfig{})
		if err := kernel.Probe(family, w.node.Do); err != nil {
			t.Errorf("%s: %v", family, err)
		}
		if err := w.node.Do(func() error { return kernel.CheckHashing(family) }); err != nil {
			t.Errorf("%s: %v", family, err)
		}
		var name unix.Utsname
		if err := unix.Uname(&name); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s on Linux %s", family, unix.ByteSliceToString(name.Release[:]))
		if left := w.nft("", "list", "ruleset"); left != "" {
			t.Errorf("%s: the probe leaves\n%s", family, left)
		}
	}
}

// TestCleanup_RemovesTableOnly: Cleanup removes our table and nothing else.
func TestCleanup_RemovesTableOnly(t *testing.T) {
	for _, family := range service.Families {
		w := newWorld(t, family, kernel.WriterConfig{})
		if removed, err := in(w.node, func() (bool, error) { return kernel.Cleanup(family) }); removed || err != nil {
			t.Errorf("%s: nothing to remove: got %t, %v", family, removed, err)
		}
		w.nft("add table inet other; add chain inet other c", "-f", "-")
		w.commit()
		if removed, err := in(w.node, func() (bool, error) { return kernel.Cleanup(family) }); !removed || err != nil {
			t.Errorf("%s: got %t, %v", family, removed, err)
		}
		if left := w.nft("", "list", "tables"); left != "table inet other\n" {
			t.Errorf("%s: left are\n%s", family, left)
		}
	}
}

// TestMissingError_SaysWhatIsNeeded: a MissingError names the feature and the required kernel.
func TestMissingError_SaysWhatIsNeeded(t *testing.T) {
	err := error(&kernel.MissingError{Family: service.IPv6, Feature: "numgen", Need: "Linux 4.9", Err: unix.ENOENT})
	const want = "nftables is not usable for IPv6: missing kernel feature numgen (requires Linux 4.9): no such file or directory"
	if err.Error() != want || !errors.Is(err, unix.ENOENT) {
		t.Errorf("got %q, want %q", err, want)
	}
}

// TestProbe_LeftoverOfKilledProbe: the next probe and a cleanup remove the table that a killed probe left between two
// transactions.
func TestProbe_LeftoverOfKilledProbe(t *testing.T) {
	const left = `table %[1]s sluice-probe {
	map probe-map { type inet_proto . inet_service : verdict; elements = { tcp . 1 : goto probe-target }; }
	chain probe-target { }
}
`
	for _, family := range service.Families {
		w := newWorld(t, family, kernel.WriterConfig{})
		word := map[service.Family]string{service.IPv4: "ip", service.IPv6: "ip6"}[family]
		leave := func() {
			w.nft(fmt.Sprintf(left, word), "-f", "-")
			if tables := w.nft("", "list", "tables"); tables != "table "+word+" sluice-probe\n" {
				t.Fatalf("%s: at first the tables are\n%s", family, tables)
			}
		}
		leave()
		if err := kernel.Probe(family, w.node.Do); err != nil {
			t.Errorf("%s: %v", family, err)
		}
		if tables := w.nft("", "list", "tables"); tables != "" {
			t.Errorf("%s: after a probe the tables are\n%s", family, tables)
		}
		leave()
		if removed, err := in(w.node, func() (bool, error) { return kernel.Cleanup(family) }); removed || err != nil {
			t.Errorf("%s: got %t, %v; there was no table of a proxy", family, removed, err)
		}
		if tables := w.nft("", "list", "tables"); tables != "" {
			t.Errorf("%s: after a clean-up the tables are\n%s", family, tables)
		}
	}
}
