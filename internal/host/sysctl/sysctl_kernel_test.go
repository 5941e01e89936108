// SPDX-License-Identifier: Apache-2.0

package sysctl_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/internal/host/sysctl"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

func newNamespace(t *testing.T) *netns.Namespace {
	t.Helper()
	n := netnstest.New(t, "node")
	return n
}

// TestKernelConntrack_Timeouts: ApplyConntrack sets all timeouts in a network namespace, and writes nothing the second
// time.
func TestKernelConntrack_Timeouts(t *testing.T) {
	n := newNamespace(t)
	wanted := sysctl.Conntrack{
		TCPEstablished: 23 * time.Hour, TCPCloseWait: 59 * time.Minute, UDP: 31 * time.Second, UDPStream: 121 * time.Second,
		TCPBeLiberal: true,
	}
	for _, changes := range []int{5, 0} {
		err := n.Do(func() error {
			done, err := sysctl.Files{}.ApplyConntrack(wanted)
			if len(done) != changes {
				t.Errorf("changes are %+v, want %d", done, changes)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for key, want := range map[string]string{
		"tcp_timeout_established": "82800", "tcp_timeout_close_wait": "3540", "udp_timeout": "31",
		"udp_timeout_stream": "121", "tcp_be_liberal": "1",
	} {
		if got, err := netnstest.ReadSysctl(n, "net.netfilter.nf_conntrack_"+key); err != nil || got != want {
			t.Errorf("%s is %s, %v; want %s", key, got, err, want)
		}
	}
}

// TestKernelRestore: after several starts with different values, a restore sets the values from before the first start.
func TestKernelRestore(t *testing.T) {
	n := newNamespace(t)
	names := []string{"tcp_timeout_established", "tcp_timeout_close_wait", "udp_timeout", "udp_timeout_stream", "tcp_be_liberal"}
	read := func() (values []string) {
		for _, name := range names {
			value, err := netnstest.ReadSysctl(n, "net.netfilter.nf_conntrack_"+name)
			if err != nil {
				t.Fatal(err)
			}
			values = append(values, value)
		}
		return values
	}
	before, dir := read(), t.TempDir()
	files := func() sysctl.Files {
		return sysctl.Files{Record: sysctl.NewRecord(dir, func(err error) { t.Errorf("warned: %v", err) })}
	}
	for hours := range time.Duration(3) {
		wanted := sysctl.Conntrack{
			TCPEstablished: (hours + 1) * time.Hour, TCPCloseWait: 59 * time.Minute, UDP: 31 * time.Second, UDPStream: 121 * time.Second,
			TCPBeLiberal: true,
		}
		if err := n.Do(func() error { _, err := files().ApplyConntrack(wanted); return err }); err != nil {
			t.Fatal(err)
		}
	}
	for _, count := range []int{5, 0} {
		err := n.Do(func() error {
			done, err := files().Restore()
			if len(done) != count {
				t.Errorf("put back %+v, want %d", done, count)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if now := read(); !slices.Equal(now, before) {
			t.Errorf("the settings are %v, want %v", now, before)
		}
	}
}

// TestKernelConntrack_HashSize: a namespace cannot change the size of the machine's table, and need not if the size is
// right.
func TestKernelConntrack_HashSize(t *testing.T) {
	n := newNamespace(t)
	text, err := netnstest.ReadSysctl(n, "net.netfilter.nf_conntrack_max")
	if err != nil {
		t.Fatal(err)
	}
	now, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	apply := func(least int) (changes []sysctl.Change, err error) {
		err = n.Do(func() error {
			changes, err = sysctl.Files{}.ApplyConntrack(sysctl.Conntrack{MaxPerCore: 1, Min: least})
			return err
		})
		return changes, err
	}
	if changes, err := apply(now); err != nil || len(changes) > 0 {
		t.Errorf("the size that it has: %+v, %v", changes, err)
	}
	_, err = apply(now + 1)
	if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "net.netfilter.nf_conntrack_max") ||
		!strings.Contains(err.Error(), "conntrack.maxPerCore: 0") {
		t.Errorf("another size: %v", err)
	}
}

// TestKernelCPUs compares the number of CPUs with another source in sysfs.
func TestKernelCPUs(t *testing.T) {
	found, err := filepath.Glob("/sys/bus/cpu/devices/cpu*")
	if err != nil || len(found) == 0 {
		t.Fatalf("%v, %v", found, err)
	}
	found = slices.DeleteFunc(found, func(at string) bool {
		online, err := os.ReadFile(filepath.Join(at, "online"))
		return err == nil && strings.TrimSpace(string(online)) == "0"
	})
	if got := (sysctl.Files{}).CPUs(); got != len(found) {
		t.Errorf("%d, want %d", got, len(found))
	}
}

// TestKernelAdjustOOMScore: AdjustOOMScore sets the score of this process, which is then slightly more likely to be
// killed for a moment.
func TestKernelAdjustOOMScore(t *testing.T) {
	const own = "/proc/self/oom_score_adj"
	read := func() string {
		text, err := os.ReadFile(own)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(text))
	}
	before := read()
	number, err := strconv.Atoi(before)
	if err != nil {
		t.Fatal(err)
	}
	for _, score := range []int{number + 1, number} {
		if err := (sysctl.Files{}).AdjustOOMScore(score); err != nil {
			t.Fatal(err)
		}
		if got := read(); got != strconv.Itoa(score) {
			t.Errorf("the score is %s, want %d", got, score)
		}
	}
}
