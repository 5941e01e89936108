package sysctl

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
)

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

// TestRestoreLeavesOthersChanges: above all a table that somebody has made larger
// since is not made smaller.
func TestRestoreLeavesOthersChanges(t *testing.T) {
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
		{Change{"net.netfilter.nf_conntrack_max", "262144", "65536"}, "524288"},
		{Change{"net.netfilter.nf_conntrack_tcp_timeout_close_wait", "3600", "60"}, ""},
		{Change{"/" + hashsize, "65536", "16384"}, ""},
	}
	if err != nil || !slices.Equal(done, want) {
		t.Errorf("got %+v, %v\nwant %+v", done, err, want)
	}
	if got := valueOf(t, f, size); got != "524288" {
		t.Errorf("the size is %s", got)
	}
	mustHold(t, f.Record, "afterwards", nil)
}

// TestRestoreThatFails keeps in the record what is still to be put back.
func TestRestoreThatFails(t *testing.T) {
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

// TestRestoreWritesToSettingsOnly, whatever stands in the record.
func TestRestoreWritesToSettingsOnly(t *testing.T) {
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

func TestRestoreWithoutARecord(t *testing.T) {
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
