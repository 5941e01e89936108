// SPDX-License-Identifier: Apache-2.0

package sysctl

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestMax(t *testing.T) {
	for _, tt := range []struct{ perCore, least, cpus, want int }{
		{32768, 131072, 1, 131072},
		{32768, 131072, 4, 131072},
		{32768, 131072, 8, 262144},
		{32768, 131072, 32, 1048576},
		{32768, 131072, 64, 1048576},
		{32768, 131072, 33, 1048576},
		{0, 131072, 64, 0},
		{100, 0, 3, 300},
		{32768, 2000000, 4, 2000000},  // past the cap
		{32768, 2000000, 64, 1048576}, // the cap comes first
	} {
		if got := (Conntrack{MaxPerCore: tt.perCore, Min: tt.least}).Max(tt.cpus); got != tt.want {
			t.Errorf("%d per core, %d at least, %d CPUs: %d, want %d", tt.perCore, tt.least, tt.cpus, got, tt.want)
		}
	}
}

var defaults = Conntrack{
	MaxPerCore: 32768, Min: 131072, TCPEstablished: 24 * time.Hour, TCPCloseWait: time.Hour,
}

func TestApplyConntrack(t *testing.T) {
	eight := []string{"cpu0", "cpu1", "cpu2", "cpu3", "cpu4", "cpu5", "cpu6", "cpu10"}
	for _, tt := range []struct {
		name string
		c    Conntrack
		want map[string]string // what differs from the kernel's own
	}{
		{"nothing", Conntrack{}, nil},
		{"a minimum alone", Conntrack{Min: 131072}, nil},
		{"defaults", defaults, map[string]string{
			netfilter + "nf_conntrack_max": "262144",
			hashsize:                       "65536",
			netfilter + "nf_conntrack_tcp_timeout_established": "86400",
			netfilter + "nf_conntrack_tcp_timeout_close_wait":  "3600",
		}},
		{"hash table large enough", Conntrack{MaxPerCore: 1, Min: 65536 + 3}, map[string]string{
			netfilter + "nf_conntrack_max": "65539",
		}},
		{"a larger maximum stays", Conntrack{MaxPerCore: 1, Min: 65536 - 4}, nil},
		{"the rest", Conntrack{UDP: 1500 * time.Millisecond, UDPStream: 3 * time.Minute, TCPBeLiberal: true}, map[string]string{
			netfilter + "nf_conntrack_udp_timeout":        "1",
			netfilter + "nf_conntrack_udp_timeout_stream": "180",
			netfilter + "nf_conntrack_tcp_be_liberal":     "1",
		}},
		{"less than a second", Conntrack{UDP: time.Millisecond}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := machine(eight...)
			f := newRoot(t, before)
			changes, err := f.ApplyConntrack(tt.c)
			if err != nil {
				t.Fatal(err)
			}
			if len(changes) != len(tt.want) {
				t.Errorf("changes are %+v, want %d", changes, len(tt.want))
			}
			for path, was := range before {
				want, changed := tt.want[path]
				if !changed {
					want = was
				}
				if got := valueOf(t, f, path); got != want {
					t.Errorf("%s is %s, want %s", path, got, want)
				}
				if changed && !slices.Contains(changes, Change{entry{path: path}.name(), was, want, "", "", false}) {
					t.Errorf("the change of %s is not among %+v", path, changes)
				}
			}
			if changes, err = f.ApplyConntrack(tt.c); err != nil || len(changes) > 0 {
				t.Errorf("the second time: %+v, %v", changes, err)
			}
		})
	}
}

// TestApplyConntrack_CorrectNotWritten: a correct value is not written again, so that a process without the privilege
// can follow one that had it.
func TestApplyConntrack_CorrectNotWritten(t *testing.T) {
	f := newRoot(t, machine("cpu0"))
	if _, err := f.ApplyConntrack(defaults); err != nil {
		t.Fatal(err)
	}
	old := time.Unix(1000, 0)
	eachFile(t, f, func(path string) error { return os.Chtimes(path, old, old) })
	if _, err := f.ApplyConntrack(defaults); err != nil {
		t.Fatal(err)
	}
	eachFile(t, f, func(path string) error {
		info, err := os.Stat(path)
		if err == nil && !info.ModTime().Equal(old) {
			t.Errorf("%s was written again", path)
		}
		return err
	})
}

func eachFile(t *testing.T, f Files, do func(path string) error) {
	t.Helper()
	err := filepath.WalkDir(f.Root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		return do(path)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestApplyConntrack_FailureAdvice: for each file that is missing or rejects the value, the error contains the advice
// for its field.
func TestApplyConntrack_FailureAdvice(t *testing.T) {
	everything := defaults
	everything.UDP, everything.UDPStream, everything.TCPBeLiberal = time.Hour, time.Hour, true
	for path, advice := range map[string]string{
		netfilter + "nf_conntrack_max": "conntrack.maxPerCore: 0",
		hashsize:                       "conntrack.maxPerCore: 0",
		netfilter + "nf_conntrack_tcp_timeout_established": "conntrack.tcpEstablishedTimeout: 0s",
		netfilter + "nf_conntrack_tcp_timeout_close_wait":  "conntrack.tcpCloseWaitTimeout: 0s",
		netfilter + "nf_conntrack_udp_timeout":             "conntrack.udpTimeout: 0s",
		netfilter + "nf_conntrack_udp_timeout_stream":      "conntrack.udpStreamTimeout: 0s",
		netfilter + "nf_conntrack_tcp_be_liberal":          "conntrack.tcpBeLiberal: false",
	} {
		name := entry{path: path}.name()
		expect := func(how string, f Files, more ...string) {
			t.Helper()
			_, err := f.ApplyConntrack(everything)
			if err == nil {
				t.Fatalf("%s %s: no error", name, how)
			}
			for _, want := range append(more, name, advice) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s %s: %v: does not mention %q", name, how, err, want)
				}
			}
		}
		files := machine("cpu0")
		delete(files, path)
		missing := newRoot(t, files)
		expect("missing", missing, "load the kernel module nf_conntrack")
		if _, err := missing.ApplyConntrack(everything); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s missing: %v hides the reason", name, err)
		}
		folder := newRoot(t, machine("cpu0"))
		at := filepath.Join(folder.Root, path)
		if err := errors.Join(os.Remove(at), os.Mkdir(at, 0o755)); err != nil {
			t.Fatal(err)
		}
		expect("unreadable", folder)
	}
}

// TestApplyConntrack_InvalidHashSize: a hash size that is no number is an error that names the file.
func TestApplyConntrack_InvalidHashSize(t *testing.T) {
	files := machine("cpu0")
	files[hashsize] = "many"
	changes, err := newRoot(t, files).ApplyConntrack(defaults)
	if err == nil || !strings.Contains(err.Error(), "/"+hashsize) {
		t.Errorf("got %v", err)
	}
	if len(changes) != 1 {
		t.Errorf("changes are %+v, want that of the maximum", changes)
	}
}
