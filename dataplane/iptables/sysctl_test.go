package iptables

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fakeSys makes a /proc/sys with one parameter in it.
func fakeSys(t *testing.T, value string) string {
	t.Helper()
	root := t.TempDir()
	path := filepath.Join(root, routeLocalnet)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
		t.Fatal(err)
	}
	return root
}

func TestEnsureSysctlWritesOnlyWhatDiffers(t *testing.T) {
	root := fakeSys(t, "0\n")
	for i, want := range []bool{true, false} {
		if changed, err := ensureSysctl(root, routeLocalnet, "1", "advice"); err != nil || changed != want {
			t.Errorf("call %d: changed = %v, %v; want %v", i, changed, err, want)
		}
	}
	if value, err := readSysctl(root, routeLocalnet); err != nil || value != "1" {
		t.Errorf("value %q, %v", value, err)
	}
}

func TestEnsureSysctlSaysWhatToDo(t *testing.T) {
	// A folder in place of the file can be neither read nor written.
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, routeLocalnet), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := ensureSysctl(root, routeLocalnet, "1", "do this instead")
	if err == nil || !strings.Contains(err.Error(), "net.ipv4.conf.all.route_localnet") || !strings.Contains(err.Error(), "do this instead") {
		t.Errorf("error %v, want one that names the sysctl and says what to do", err)
	}
}

func TestReadSysctlThatIsNotThere(t *testing.T) {
	if _, err := readSysctl(t.TempDir(), tcpBeLiberal); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}
