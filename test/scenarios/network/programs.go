package network

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// restoreFormat stands in the way to a real program: it keeps what the program is
// told to do, and fails in its place while a file exists.
const restoreFormat = `#!/bin/sh
if [ -e %[1]q ]; then
	echo "%[2]s: the scenario wants it to fail" >&2
	exit 1
fi
tee -a %[3]q | exec %[4]q "$@"
`

// WatchPrograms puts programs of our own before iptables-restore and its kin, in
// the PATH of the proxies that are started from now on. They keep their input, and
// can be made to fail.
func (w *World) WatchPrograms() error {
	bin := filepath.Join(w.options.Dir, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return err
	}
	for _, base := range []string{"iptables", "ip6tables"} {
		for _, variant := range []string{"nft", "legacy"} {
			name := base + "-" + variant + "-restore"
			program, err := exec.LookPath(name)
			if err != nil {
				return err
			}
			text := fmt.Sprintf(restoreFormat, w.obstacle(), name, w.Restored(), program)
			if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o755); err != nil {
				return err
			}
		}
	}
	if err := os.Remove(w.Restored()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err // what an earlier run has left
	}
	w.SetEnvironment("PATH=" + bin + string(filepath.ListSeparator) + os.Getenv("PATH"))
	return w.FailPrograms(false)
}

// FailPrograms makes the watched programs fail, or work again.
func (w *World) FailPrograms(fail bool) error {
	if fail {
		return os.WriteFile(w.obstacle(), nil, 0o600)
	}
	if err := os.Remove(w.obstacle()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (w *World) obstacle() string { return filepath.Join(w.options.Dir, "programs-fail") }

// Restored is the file with what the watched programs were told to do.
func (w *World) Restored() string { return filepath.Join(w.options.Dir, "restored") }
