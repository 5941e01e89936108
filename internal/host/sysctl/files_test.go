package sysctl

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const routeLocalnet = "net/ipv4/conf/all/route_localnet"

func TestEnsureWritesOnlyWhatDiffers(t *testing.T) {
	f := newRoot(t, map[string]string{procSys + routeLocalnet: "0"})
	for i, want := range []bool{true, false} {
		if changed, err := f.Ensure(routeLocalnet, "1", "advice"); err != nil || changed != want {
			t.Errorf("call %d: changed = %v, %v; want %v", i, changed, err, want)
		}
	}
	if value, err := f.Read(routeLocalnet); err != nil || value != "1" {
		t.Errorf("value %q, %v", value, err)
	}
}

func TestEnsureSaysWhatToDo(t *testing.T) {
	// A folder in place of the file can be neither read nor written.
	f := Files{Root: t.TempDir()}
	if err := os.MkdirAll(filepath.Join(f.Root, procSys, routeLocalnet), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := f.Ensure(routeLocalnet, "1", "do this instead")
	if err == nil || !strings.Contains(err.Error(), "net.ipv4.conf.all.route_localnet") || !strings.Contains(err.Error(), "do this instead") {
		t.Errorf("error %v, want one that names the sysctl and says what to do", err)
	}
}

func TestReadWhatIsNotThere(t *testing.T) {
	_, err := Files{Root: t.TempDir()}.Read(routeLocalnet)
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "net.ipv4.conf.all.route_localnet") {
		t.Errorf("error %v", err)
	}
}
