package sysctl

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
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

// TestTheFirstValueIsRemembered over restarts; what is back at it is forgotten.
func TestTheFirstValueIsRemembered(t *testing.T) {
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

func TestWhatIsSetIsRecorded(t *testing.T) {
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

// TestRecordOfAWriteThatFails: it says what is there, and not what was wanted.
func TestRecordOfAWriteThatFails(t *testing.T) {
	f := newRoot(t, machine("cpu0"))
	f.Record = newRecord(t)
	e := entry{path: established}
	if _, _, err := f.ensure(e, "5"); err != nil {
		t.Fatal(err)
	}
	// A kernel takes back what it does not like; here the file does not change.
	at := f.at(e)
	refuse := func() {
		if err := os.Rename(at, at+".real"); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("/proc/version", at); err != nil { // nobody can write to it
			t.Fatal(err)
		}
	}
	refuse()
	version, err := f.read(e)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.write(e, version, "7"); err == nil {
		t.Fatal("/proc/version was written to")
	}
	mustHold(t, f.Record, "refused", formers{established: {"432000", version}})
	if err := f.Record.save(nil); err != nil {
		t.Fatal(err)
	}
	if err := f.write(e, version, "7"); err == nil {
		t.Fatal("/proc/version was written to")
	}
	mustHold(t, f.Record, "refused the first time", nil)
}

// TestNoRecordIsNoFailure: a directory that cannot be made, one where nothing can be
// written, and a file that is no record are said once each, and stay as they are.
func TestNoRecordIsNoFailure(t *testing.T) {
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
		"nothing can be written": {func(*testing.T) string { return "/proc/self" }, "cannot write the record"},
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
