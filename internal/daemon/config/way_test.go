package config

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestWayToAConfigMap: the way to a file of a ConfigMap leads through its own
// directory, and that of the link.
func TestWayToAConfigMap(t *testing.T) {
	m := &configMap{t: t, dir: t.TempDir()}
	m.set("")
	paths := wayTo(m.file())
	if want := filepath.Join(m.dir, "x", "config.conf"); paths[len(paths)-1] != want || !slices.Contains(paths, m.dir) || !slices.Contains(paths, filepath.Dir(want)) {
		t.Errorf("%v, want %s last", paths, want)
	}
}

// TestWayTo: the kernel follows a loop of links no further than 40 times.
func TestWayTo(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	if err := os.Symlink(a, b); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("b", a); err != nil {
		t.Fatal(err)
	}
	if paths := wayTo(a); len(paths) == 0 || len(paths) > 2*linksMax+1 {
		t.Errorf("%d paths", len(paths))
	}
}
