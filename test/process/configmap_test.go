// SPDX-License-Identifier: Apache-2.0

package process

import (
	"os"
	"path/filepath"
	"testing"
)

// TestConfigMap_SwapsVersions: readers see one version or the next one, and the file that they open by its name is a
// link that never changes.
func TestConfigMap_SwapsVersions(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "mount")
	m := NewConfigMap(dir, "config.conf")
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
