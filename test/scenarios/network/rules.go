package network

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Rules returns what the rules of the node look like: the listings of both families
// in mode iptables, by the programs of its variant, and of everything in nf_tables; in
// mode ipvs, virtual servers, sets and addresses as well.
func (w *World) Rules(ctx context.Context) (string, error) {
	var all strings.Builder
	for _, words := range w.listings() {
		printed, err := w.Run(ctx, words[0], words[1:]...)
		if err != nil {
			return "", err
		}
		all.WriteString(printed)
	}
	return all.String(), nil
}

func (w *World) listings() [][]string {
	nft := []string{"nft", "list", "ruleset"}
	switch w.options.Mode {
	case "nftables":
		return [][]string{nft}
	case "ipvs":
		return [][]string{nft, {"ipvsadm", "-Ln"}, {"ipset", "list"}, {"ip", "-o", "address", "show"}}
	}
	if w.options.Variant == "legacy" {
		return [][]string{{"iptables-legacy-save"}, {"ip6tables-legacy-save"}, nft}
	}
	return [][]string{{"iptables-nft-save"}, {"ip6tables-nft-save"}}
}

// SetPolicy sets the policy of a built-in chain of the node's table filter, in both
// families. It belongs to the same programs as the proxy's rules: a packet that one
// variant accepts can still be dropped by the other.
func (w *World) SetPolicy(ctx context.Context, chain, policy string) error {
	suffix := ""
	if w.options.Variant != "" {
		suffix = "-" + w.options.Variant
	}
	for _, program := range []string{"iptables", "ip6tables"} {
		if _, err := w.Run(ctx, program+suffix, "-w", "-P", chain, policy); err != nil {
			return err
		}
	}
	return nil
}

// seized is a process that owns the proxy's tables in nf_tables.
type seized struct {
	owner *exec.Cmd
	input io.Closer
}

// seizure takes kube-proxy's tables away and makes them again as the property of
// whoever says it.
const seizure = `
delete table ip kube-proxy
delete table ip6 kube-proxy
add table ip kube-proxy { flags owner; }
add table ip6 kube-proxy { flags owner; }
`

// Seize starts a process that owns the proxy's tables in nf_tables, so that the
// kernel refuses whatever the proxy writes there, until what it returns is closed.
// The rules are gone, and the kernel removes the tables in the end.
func (w *World) Seize(ctx context.Context) (io.Closer, error) {
	owner := exec.Command("nft", "-i")
	input, err := owner.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := w.Node().Do(owner.Start); err != nil {
		return nil, errors.Join(err, input.Close())
	}
	s := &seized{owner, input}
	// One line is one transaction, and the proxy cannot come between.
	if _, err := io.WriteString(input, strings.ReplaceAll(strings.TrimSpace(seizure), "\n", "; ")+"\n"); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	const wait, pause = 5 * time.Second, 20 * time.Millisecond
	for deadline := time.Now().Add(wait); ; time.Sleep(pause) {
		listing, err := w.Run(ctx, "nft", "list", "ruleset")
		if err == nil && strings.Count(listing, "flags owner") == 2 {
			return s, nil
		}
		if time.Now().After(deadline) {
			return nil, errors.Join(fmt.Errorf("nobody owns the tables, but there is\n%s", listing), err, s.Close())
		}
	}
}

// Close ends the owner.
func (s *seized) Close() error {
	err := s.input.Close() // at which nft ends
	return errors.Join(err, s.owner.Wait())
}

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
