package harness

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestModesAreThoseListed(t *testing.T) {
	for listed, want := range map[string][]Mode{
		"": {IPTables, NFTables}, "ipvs": {IPVS}, "ipvs,nftables": {IPVS, NFTables},
	} {
		t.Setenv(envModes, listed)
		if got := Modes(IPTables, NFTables); !slices.Equal(got, want) {
			t.Errorf("%q: got %v, want %v", listed, got, want)
		}
	}
}

// Readers see one version or the next, and the file they open by its name is a link that never
// changes.
func TestConfigMapSwapsVersions(t *testing.T) {
	dir := t.TempDir()
	m := NewConfigMap(dir)
	var link os.FileInfo
	for _, want := range []string{"one", "two", "three"} {
		if err := m.Set(want); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(m.Path()); err != nil || string(got) != want {
			t.Errorf("read %q, %v; want %q", got, err, want)
		}
		now, err := os.Lstat(m.Path())
		if err != nil {
			t.Fatal(err)
		}
		if link != nil && !os.SameFile(link, now) {
			t.Error("the link was replaced")
		}
		link = now
	}
	if left, err := filepath.Glob(filepath.Join(dir, "..[0-9]*")); err != nil || len(left) != 1 {
		t.Errorf("folders %v, %v; want the last one only", left, err)
	}
}
