package testenv

import (
	"os"
	"path/filepath"
	"testing"
)

// Settings writes a configuration file with lines of YAML for Sluice's own document, and returns the flag that names it.
func Settings(t testing.TB, lines string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "sluice.conf")
	text := "apiVersion: sluice.dev/v1alpha1\nkind: SluiceConfiguration\n" + lines + "\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return "--config=" + file
}
