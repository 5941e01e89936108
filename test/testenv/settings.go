// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// Settings writes a configuration file with lines of YAML for Sluice's own document, and returns the flag that names it. A
// proxy may run as another user than root, whom the parent of t.TempDir lets through only then.
func Settings(t testing.TB, lines string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "sluice.conf")
	text := "apiVersion: sluice.dev/v1alpha1\nkind: SluiceConfiguration\n" + lines + "\n"
	dir := filepath.Dir(file)
	if err := errors.Join(os.WriteFile(file, []byte(text), 0o644), os.Chmod(dir, 0o755), os.Chmod(filepath.Dir(dir), 0o711)); err != nil {
		t.Fatal(err)
	}
	return "--config=" + file
}
