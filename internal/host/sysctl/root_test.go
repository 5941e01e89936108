package sysctl

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// newRoot makes a folder with files in it, as the kernel would have them.
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

// machine is one with some CPUs and the kernel's own values.
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
