// SPDX-License-Identifier: Apache-2.0

package sysctl

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/test/testenv"
)

const established = netfilter + "nf_conntrack_tcp_timeout_established"

// newRecord makes a record in a directory that is not there yet. A warning fails
// the test.
func newRecord(t *testing.T) *Record {
	t.Helper()
	return NewRecord(filepath.Join(t.TempDir(), "sluice"), func(err error) { t.Errorf("warned: %v", err) })
}

// mustHold compares a record with what it should say, and its file with how it
// should be.
func mustHold(t *testing.T, r *Record, when string, want formers) {
	t.Helper()
	got, err := r.load()
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%s: the record says %v, %v; want %v", when, got, err, want)
	}
	entries, err := os.ReadDir(r.dir)
	if len(want) == 0 {
		if len(entries) > 0 {
			t.Errorf("%s: %v is left", when, entries[0])
		}
		return
	}
	if err != nil || len(entries) != 1 || entries[0].Name() != recordFile {
		t.Fatalf("%s: got %v, %v; want %s alone", when, entries, err, recordFile)
	}
	if info, err := entries[0].Info(); err != nil || info.Mode() != 0o600 {
		t.Errorf("%s: mode %v, %v", when, info.Mode(), err)
	}
}

// TestRecord_FirstValueKept: the record keeps the first value over restarts, and forgets a setting that has this value
// again.
func TestRecord_FirstValueKept(t *testing.T) {
	f := newRoot(t, machine("cpu0"))
	f.Record = newRecord(t)
	for _, tt := range []struct {
		when  string
		hours time.Duration
		want  formers
	}{
		{"as it is already", 120, nil},
		{"first", 24, formers{established: {"432000", "86400"}}},
		{"the same again", 24, formers{established: {"432000", "86400"}}},
		{"another value", 1, formers{established: {"432000", "3600"}}},
		{"as it was", 120, nil},
	} {
		f.Record = NewRecord(f.Record.dir, f.Record.warn)
		if _, err := f.ApplyConntrack(Conntrack{TCPEstablished: tt.hours * time.Hour}); err != nil {
			t.Fatal(err)
		}
		mustHold(t, f.Record, tt.when, tt.want)
	}
}

// TestRecord_EverythingSet: the record contains every setting that was changed.
func TestRecord_EverythingSet(t *testing.T) {
	f := newRoot(t, machine("cpu0"))
	f.Record = newRecord(t)
	if _, err := f.ApplyConntrack(defaults); err != nil {
		t.Fatal(err)
	}
	if err := f.AdjustOOMScore(-999); err != nil {
		t.Fatal(err)
	}
	mustHold(t, f.Record, "defaults", formers{
		hashsize: {"16384", "32768"}, netfilter + "nf_conntrack_max": {"65536", "131072"},
		established: {"432000", "86400"}, netfilter + "nf_conntrack_tcp_timeout_close_wait": {"60", "3600"},
	})
}

// TestRecord_FailedWrite: after a failed write, the record contains the value that the kernel has, not the wanted one.
func TestRecord_FailedWrite(t *testing.T) {
	f := newRoot(t, machine("cpu0"))
	f.Record = newRecord(t)
	e := entry{path: established}
	if _, _, err := f.ensure(e, "5"); err != nil {
		t.Fatal(err)
	}
	// A kernel takes back what it does not like; here the file does not change.
	at := f.at(e)
	reject := func() {
		if err := os.Rename(at, at+".real"); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("/proc/version", at); err != nil { // nobody can write to it
			t.Fatal(err)
		}
	}
	reject()
	version, err := f.read(e)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.write(e, version, "7"); err == nil {
		t.Fatal("/proc/version was written to")
	}
	mustHold(t, f.Record, "rejected", formers{established: {"432000", version}})
	if err := f.Record.save(nil); err != nil {
		t.Fatal(err)
	}
	if err := f.write(e, version, "7"); err == nil {
		t.Fatal("/proc/version was written to")
	}
	mustHold(t, f.Record, "rejected the first time", nil)
}

// TestRecord_UnusableIsNoFailure: without a usable record, settings are still applied. A directory that cannot be
// created or written and an invalid record are each reported once, and stay as they are.
func TestRecord_UnusableIsNoFailure(t *testing.T) {
	for name, tt := range map[string]struct {
		prepare func(t *testing.T) (dir string)
		want    string
	}{
		"nothing above": {func(t *testing.T) string { return filepath.Join(t.TempDir(), "a", "b") }, "no such file or directory"},
		"a file": {func(t *testing.T) string {
			at := filepath.Join(t.TempDir(), "file")
			if err := os.WriteFile(at, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			return at
		}, "not a directory"},
		"nothing can be written": {func(*testing.T) string { return "/proc/self" }, "cannot write the sysctl record"},
		"no record": {func(t *testing.T) string {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, recordFile), []byte("{"), 0o600); err != nil {
				t.Fatal(err)
			}
			return dir
		}, "delete it"},
	} {
		t.Run(name, func(t *testing.T) {
			var warnings []error
			f := newRoot(t, machine("cpu0"))
			f.Record = NewRecord(tt.prepare(t), func(err error) { warnings = append(warnings, err) })
			changes, err := f.ApplyConntrack(defaults)
			if err != nil || len(changes) != 4 {
				t.Errorf("changes %v, %v; want 4", changes, err)
			}
			if len(warnings) != 1 || !strings.Contains(warnings[0].Error(), tt.want) || !strings.Contains(warnings[0].Error(), recordFile) {
				t.Errorf("warnings %v, want one that names the file and says %q", warnings, tt.want)
			}
			if text, err := os.ReadFile(f.Record.file()); err == nil && string(text) != "{" {
				t.Errorf("the file holds %q", text)
			}
		})
	}
}

// served is a machine on which a proxy has served, with all settings.
func served(t *testing.T) (f Files, before map[string]string) {
	t.Helper()
	before = machine("cpu0", "cpu1", "cpu2", "cpu3", "cpu4", "cpu5", "cpu6", "cpu7")
	f = newRoot(t, before)
	f.Record = newRecord(t)
	c := defaults
	c.TCPBeLiberal = true
	if _, err := f.ApplyConntrack(c); err != nil {
		t.Fatal(err)
	}
	return f, before
}

func TestRestore(t *testing.T) {
	f, before := served(t)
	done, err := f.Restore()
	if err != nil || len(done) != 5 {
		t.Errorf("got %v, %v; want 5 that are put back", done, err)
	}
	for path, want := range before {
		if got := valueOf(t, f, path); got != want {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}
	for _, d := range done {
		if d.Kept != "" {
			t.Errorf("%+v was kept", d)
		}
	}
	mustHold(t, f.Record, "afterwards", nil)
	if done, err = f.Restore(); err != nil || len(done) > 0 {
		t.Errorf("the second time: %v, %v", done, err)
	}
}

// TestRestore_Some: restoring some settings leaves the other ones unchanged and in the record.
func TestRestore_Some(t *testing.T) {
	f, before := served(t)
	name := strings.TrimPrefix(established, procSys)
	done, err := f.Restore(name, "net/ipv4/ip_forward")
	if err != nil || len(done) != 1 || valueOf(t, f, established) != before[established] {
		t.Errorf("got %v, %v; want that of %s", done, err, name)
	}
	if done, err = f.Restore(name); err != nil || len(done) != 0 {
		t.Errorf("the second time: %v, %v", done, err)
	}
	if done, err = f.Restore(); err != nil || len(done) != 4 {
		t.Errorf("the rest: %v, %v; want 4", done, err)
	}
}

// TestRestore_KeepsOthersChanges: a restore keeps values that another program changed since. In particular, it does not
// shrink a table that was enlarged.
func TestRestore_KeepsOthersChanges(t *testing.T) {
	f, _ := served(t)
	const size = netfilter + "nf_conntrack_max"
	for path, value := range map[string]string{size: "524288", established: "432000"} {
		if err := os.WriteFile(f.at(entry{path: path}), []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(f.at(entry{path: netfilter + "nf_conntrack_tcp_be_liberal"})); err != nil {
		t.Fatal(err)
	}
	done, err := f.Restore()
	want := []Restored{
		{Change{"net.netfilter.nf_conntrack_max", "262144", "65536", "", "", false}, "524288"},
		{Change{"net.netfilter.nf_conntrack_tcp_timeout_close_wait", "3600", "60", "", "", false}, ""},
		{Change{"/" + hashsize, "65536", "16384", "", "", false}, ""},
	}
	if err != nil || !slices.Equal(done, want) {
		t.Errorf("got %+v, %v\nwant %+v", done, err, want)
	}
	if got := valueOf(t, f, size); got != "524288" {
		t.Errorf("the size is %s", got)
	}
	mustHold(t, f.Record, "afterwards", nil)
}

// TestRestore_Failure: a failed restore keeps the settings that it could not restore in the record.
func TestRestore_Failure(t *testing.T) {
	f, _ := served(t)
	at := f.at(entry{path: established})
	if err := errors.Join(os.Remove(at), os.Mkdir(at, 0o755)); err != nil {
		t.Fatal(err)
	}
	done, err := f.Restore()
	if err == nil || !strings.Contains(err.Error(), "tcp_timeout_established") || !strings.Contains(err.Error(), "run privileged") {
		t.Errorf("got %v, want an error that names the sysctl and says what to do", err)
	}
	if len(done) != 4 {
		t.Errorf("%d were put back, want 4", len(done))
	}
	mustHold(t, f.Record, "afterwards", formers{established: {"432000", "86400"}})
	if err := errors.Join(os.Remove(at), os.WriteFile(at, []byte("86400"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if done, err = f.Restore(); err != nil || len(done) != 1 || valueOf(t, f, established) != "432000" {
		t.Errorf("the second try: %v, %v", done, err)
	}
}

// TestRestore_SettingsOnly: a restore writes only kernel settings, regardless of the paths in the record.
func TestRestore_SettingsOnly(t *testing.T) {
	for _, path := range []string{"etc/passwd", "proc/sys/../../etc/passwd", "/proc/sys/x", "sys/kernel/x", ""} {
		f := newRoot(t, map[string]string{"etc/passwd": "set", "proc/sys/x": "set", "sys/kernel/x": "set"})
		f.Record = newRecord(t)
		if err := f.Record.save(formers{path: {"found", "set"}}); err != nil {
			t.Fatal(err)
		}
		if done, err := f.Restore(); err == nil || len(done) > 0 {
			t.Errorf("%q: got %v, %v", path, done, err)
		}
		for _, file := range []string{"etc/passwd", "proc/sys/x", "sys/kernel/x"} {
			if got := valueOf(t, f, file); got != "set" {
				t.Errorf("%q: %s holds %q", path, file, got)
			}
		}
	}
}

// TestRestore_WithoutRecord: a restore without a record or with an empty one does nothing, and an invalid one is an
// error.
func TestRestore_WithoutRecord(t *testing.T) {
	f := newRoot(t, machine("cpu0"))
	for _, r := range []*Record{nil, newRecord(t)} {
		f.Record = r
		if done, err := f.Restore(); err != nil || len(done) > 0 {
			t.Errorf("got %v, %v", done, err)
		}
	}
	f.Record = newRecord(t)
	if err := errors.Join(os.Mkdir(f.Record.dir, 0o700), os.WriteFile(f.Record.file(), []byte("null"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if done, err := f.Restore(); err != nil || len(done) > 0 {
		t.Errorf("an empty one: %v, %v", done, err)
	}
	if err := os.WriteFile(f.Record.file(), []byte("["), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Restore(); err == nil || !strings.Contains(err.Error(), "delete it") {
		t.Errorf("one that is none: %v", err)
	}
}

// TestRecord_DirectoryOwner: a record that root writes belongs to the owner of its directory, so a proxy that is not
// root can continue with it.
func TestRecord_DirectoryOwner(t *testing.T) {
	testenv.NeedsRoot(t)
	const user = 65532
	r := newRecord(t)
	if err := errors.Join(os.Mkdir(r.dir, 0o700), os.Chown(r.dir, user, user)); err != nil {
		t.Fatal(err)
	}
	r.remember(established, "1", "2")
	info, err := os.Stat(r.file())
	if err != nil {
		t.Fatal(err)
	}
	if owner := info.Sys().(*syscall.Stat_t); owner.Uid != user || owner.Gid != user || info.Mode().Perm() != 0o600 {
		t.Errorf("the file belongs to %d:%d with mode %v", owner.Uid, owner.Gid, info.Mode())
	}
}
