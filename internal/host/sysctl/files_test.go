// SPDX-License-Identifier: Apache-2.0

package sysctl

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/test/testenv"
)

// newRoot creates a folder with the kernel's files.
func newRoot(t *testing.T, files map[string]string) Files {
	t.Helper()
	f := Files{Root: t.TempDir()}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		at := filepath.Join(f.Root, path)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(files[path]+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// machine returns the files of a machine with some CPUs and default values.
func machine(cpus ...string) map[string]string {
	files := map[string]string{
		hashsize:                       "16384",
		netfilter + "nf_conntrack_max": "65536",
		netfilter + "nf_conntrack_tcp_timeout_established": "432000",
		netfilter + "nf_conntrack_tcp_timeout_close_wait":  "60",
		netfilter + "nf_conntrack_tcp_be_liberal":          "0",
		netfilter + "nf_conntrack_udp_timeout":             "30",
		netfilter + "nf_conntrack_udp_timeout_stream":      "120",
		"proc/self/oom_score_adj":                          "0",
	}
	for _, cpu := range cpus {
		files["sys/devices/system/cpu/"+cpu+"/topology/core_id"] = "0"
	}
	return files
}

const hashsize = "sys/module/nf_conntrack/parameters/hashsize"

func valueOf(t *testing.T, f Files, path string) string {
	t.Helper()
	value, err := f.read(entry{path: path})
	if err != nil {
		t.Fatal(err)
	}
	return value
}

const routeLocalnet = "net/ipv4/conf/all/route_localnet"

// TestEnsure_WritesOnlyDifferences: Ensure writes only a different value.
func TestEnsure_WritesOnlyDifferences(t *testing.T) {
	f := newRoot(t, map[string]string{procSys + routeLocalnet: "0"})
	for i, want := range []bool{true, false} {
		if changed, err := f.Ensure(routeLocalnet, "1", "advice"); err != nil || changed != want {
			t.Errorf("call %d: changed = %v, %v; want %v", i, changed, err, want)
		}
	}
	if value, err := f.Read(routeLocalnet); err != nil || value != "1" {
		t.Errorf("value %q, %v", value, err)
	}
}

// TestEnsure_FailureAdvice: the error of Ensure contains the name of the sysctl and the advice.
func TestEnsure_FailureAdvice(t *testing.T) {
	// A folder in place of the file can be neither read nor written.
	f := Files{Root: t.TempDir()}
	if err := os.MkdirAll(filepath.Join(f.Root, procSys, routeLocalnet), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := f.Ensure(routeLocalnet, "1", "do this instead")
	if err == nil || !strings.Contains(err.Error(), "net.ipv4.conf.all.route_localnet") || !strings.Contains(err.Error(), "do this instead") {
		t.Errorf("error %v, want the name of the sysctl and the advice", err)
	}
}

// TestPlan_NotPermitted: a plan reports changes that this process may not make without failing, and writes nothing.
func TestPlan_NotPermitted(t *testing.T) {
	testenv.NeedsRoot(t)
	f := newRoot(t, map[string]string{procSys + routeLocalnet: "0"})
	path := f.at(entry{path: procSys + routeLocalnet})
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	readOnly := t.TempDir()
	if err := os.WriteFile(filepath.Join(readOnly, "value"), text, 0o444); err != nil {
		t.Fatal(err)
	}
	// Root may write any file but one of a read-only mount.
	if err := errors.Join(unix.Mount(readOnly, readOnly, "", unix.MS_BIND, ""), unix.Mount("", readOnly, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(readOnly, unix.MNT_DETACH) })
	if err := errors.Join(os.Remove(path), os.Symlink(filepath.Join(readOnly, "value"), path)); err != nil {
		t.Fatal(err)
	}
	var planned []Change
	f.Plan = func(c Change) { planned = append(planned, c) }
	changed, err := f.Ensure(routeLocalnet, "1", "advice")
	want := []Change{{Name: "net.ipv4.conf.all.route_localnet", From: "0", To: "1", Problem: "read-only file system", Advice: "advice"}}
	if !changed || err != nil || !slices.Equal(planned, want) {
		t.Errorf("%t, %v, planned %+v", changed, err, planned)
	}
}

// TestPlan_WritesNothing: a plan writes nothing, and fails if a file is missing.
func TestPlan_WritesNothing(t *testing.T) {
	f := newRoot(t, map[string]string{procSys + routeLocalnet: "0"})
	var planned []Change
	f.Plan = func(c Change) { planned = append(planned, c) }
	f.Record = NewRecord(filepath.Join(t.TempDir(), "state"), func(err error) { t.Error(err) })
	changed, err := f.Ensure(routeLocalnet, "1", "advice")
	want := []Change{{Name: "net.ipv4.conf.all.route_localnet", From: "0", To: "1"}}
	if !changed || err != nil || !slices.Equal(planned, want) || valueOf(t, f, procSys+routeLocalnet) != "0" {
		t.Errorf("%t, %v, planned %v", changed, err, planned)
	}
	if _, err := os.Stat(f.Record.file()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a record: %v", err)
	}
	if changed, err := f.Ensure(routeLocalnet, "0", "advice"); changed || err != nil || len(planned) != 1 {
		t.Errorf("right already: %t, %v, %v", changed, err, planned)
	}
	if _, err := f.Ensure("net/ipv4/absent", "1", "advice"); !errors.Is(err, fs.ErrNotExist) || len(planned) != 1 {
		t.Errorf("absent: %v, %v", err, planned)
	}
}

// TestRead_Missing: reading a missing sysctl returns an error that names it.
func TestRead_Missing(t *testing.T) {
	_, err := Files{Root: t.TempDir()}.Read(routeLocalnet)
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "net.ipv4.conf.all.route_localnet") {
		t.Errorf("error %v", err)
	}
}

func TestAdjustOOMScore(t *testing.T) {
	f := newRoot(t, machine())
	if err := f.AdjustOOMScore(-999); err != nil {
		t.Fatal(err)
	}
	if got := valueOf(t, f, "proc/self/oom_score_adj"); got != "-999" {
		t.Errorf("the score is %s", got)
	}
	if err := os.RemoveAll(filepath.Join(f.Root, "proc")); err != nil {
		t.Fatal(err)
	}
	err := f.AdjustOOMScore(-999)
	if err == nil || !strings.Contains(err.Error(), "/proc/self/oom_score_adj") || !strings.Contains(err.Error(), "oomScoreAdj") {
		t.Errorf("got %v", err)
	}
}

func TestCPUs(t *testing.T) {
	const at = "sys/devices/system/cpu/"
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  int
	}{
		{"three", map[string]string{
			at + "cpu0/topology/core_id": "0", at + "cpu1/topology/core_id": "0", at + "cpu12/topology/core_id": "6",
		}, 3},
		{"one is switched off", map[string]string{
			at + "cpu0/topology/core_id": "0", at + "cpu1/online": "0", at + "cpu2/online": "1", at + "cpu2/topology/core_id": "1",
		}, 2},
		{"one is on its way out", map[string]string{
			at + "cpu0/topology/core_id": "0", at + "cpu1/online": "0", at + "cpu1/topology/core_id": "1",
		}, 1},
		{"folders that are none", map[string]string{
			at + "cpu0/topology/core_id": "0", at + "cpufreq/topology/core_id": "0", at + "cpuidle/x": "",
		}, 1},
		{"sysfs says nothing", map[string]string{"proc/x": ""}, runtime.NumCPU()},
	} {
		if got := newRoot(t, tt.files).CPUs(); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

func TestIPv6(t *testing.T) {
	const (
		addresses = "proc/thread-self/net/if_inet6"
		disabled  = "proc/sys/net/ipv6/conf/all/disable_ipv6"
		loopback  = "00000000000000000000000000000001 01 80 10 80       lo\n"
	)
	for _, tt := range []struct {
		name  string
		files map[string]string
		need  string // "" with IPv6
	}{
		{"with an address", map[string]string{addresses: loopback, disabled: "0\n"}, ""},
		{"one interface has it", map[string]string{addresses: loopback, disabled: "1\n"}, ""},
		{"without an address", map[string]string{addresses: "", disabled: "0\n"}, ""},
		{"switched off", map[string]string{addresses: "", disabled: "1\n"}, "disable_ipv6=0"},
		{"not in the kernel", map[string]string{"proc/x": ""}, "ipv6.disable=1"},
		{"without the sysctl", map[string]string{addresses: ""}, ""},
	} {
		err := newRoot(t, tt.files).IPv6()
		missing, isMissing := errors.AsType[*NoIPv6Error](err)
		if (tt.need != "") != isMissing || isMissing && !strings.Contains(missing.Need, tt.need) {
			t.Errorf("%s: %v, want one that needs %q", tt.name, err, tt.need)
		}
	}
}
