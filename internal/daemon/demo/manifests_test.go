package demo

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestManifestsReplace(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	m, err := newManifests()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(m.dir, "echo.yaml")
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.replace("echo.yaml", "10.244.1.13", "10.244.1.14"); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "10.244.1.13") || strings.Count(string(text), "10.244.1.14") != 1 {
		t.Errorf("the file reads\n%s", text)
	}
	if after, err := os.Stat(path); err != nil || os.SameFile(before, after) {
		t.Errorf("the file was written in place, %v", err)
	}
	if err := m.replace("echo.yaml", "10.244.1.13", "10.244.1.14"); err == nil || !strings.Contains(err.Error(), "nothing to replace") {
		t.Errorf("got %v, want that there is nothing to replace", err)
	}
	if err := m.replace("other.yaml", "a", "b"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if err := m.close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(m.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory is left: %v", err)
	}
}
