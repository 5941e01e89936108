// SPDX-License-Identifier: Apache-2.0

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
	"regexp"
	"strings"
	"time"
)

// Rules lists the rules of the node: in mode iptables, those of both families by the programs of
// its variant; otherwise everything in nf_tables, in mode ipvs virtual servers, sets and
// addresses as well, and in mode userspace local addresses and listeners.
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
	case "userspace":
		local := []string{"route", "show", "table", "local", "proto", "219"}
		return [][]string{nft, append([]string{"ip"}, local...), append([]string{"ip", "-6"}, local...), {"ss", "-lntu"}}
	case "ipvs":
		return [][]string{nft, {"ipvsadm", "-Ln"}, {"ipset", "list"}, {"ip", "-o", "address", "show"}}
	}
	if w.options.Variant == "legacy" {
		return [][]string{{"iptables-legacy-save"}, {"ip6tables-legacy-save"}, nft}
	}
	return [][]string{{"iptables-nft-save"}, {"ip6tables-nft-save"}}
}

// SetPolicy sets the policy of a built-in chain of the node's table filter, in both families. It
// uses the same variant of iptables as the proxy: the other variant can still drop a packet that
// one accepts.
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

// seizure deletes the proxy's tables and adds them again, owned by the process that sends it.
const seizure = `
delete table ip kube-proxy
delete table ip6 kube-proxy
add table ip kube-proxy { flags owner; }
add table ip6 kube-proxy { flags owner; }
`

// ownedTable matches a table of the proxy's rules that a process owns. The table with a flowtable, which the
// proxy owns, is another one.
var ownedTable = regexp.MustCompile(`(?m)^table ip6? kube-proxy \{.*\n(\tcomment .*\n)?\tflags owner$`)

// Seize starts a process that owns the proxy's tables in nf_tables, so that the kernel refuses the
// proxy's writes until the returned Closer is closed. The proxy's rules are gone meanwhile, and the
// kernel removes the tables with their owner.
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
	// One line is one transaction, so the proxy cannot write in between.
	if _, err := io.WriteString(input, strings.ReplaceAll(strings.TrimSpace(seizure), "\n", "; ")+"\n"); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	const wait, pause = time.Minute, 20 * time.Millisecond
	for deadline := time.Now().Add(wait); ; time.Sleep(pause) {
		listing, err := w.Run(ctx, "nft", "list", "ruleset")
		if err == nil && len(ownedTable.FindAllString(listing, -1)) == 2 {
			return s, nil
		}
		if time.Now().After(deadline) {
			return nil, errors.Join(fmt.Errorf("no process owns the tables; there is\n%s", listing), err, s.Close())
		}
	}
}

// Close ends the owner.
func (s *seized) Close() error {
	err := s.input.Close() // at which nft ends
	return errors.Join(err, s.owner.Wait())
}

// restoreFormat wraps a real program: it records the program's input, and fails instead while a
// file exists, or if the input has the word in another file, as a program that lacks an option does.
const restoreFormat = `#!/bin/sh
if [ -e %[1]q ]; then
	echo "%[2]s: the scenario wants it to fail" >&2
	exit 1
fi
if [ -e %[5]q ]; then
	input=$(cat; echo .) lacking=$(cat %[5]q)
	case "$input" in *"$lacking"*)
		echo "%[2]s: unknown option \"$lacking\"" >&2
		exit 2 ;;
	esac
	printf %%s "${input%%.}" | tee -a %[3]q | %[4]q "$@"
	exit
fi
tee -a %[3]q | exec %[4]q "$@"
`

// WatchPrograms puts wrappers of iptables-restore and the like first in the PATH of proxies that
// start from now on. They record their input, and FailPrograms can make them fail.
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
			text := fmt.Sprintf(restoreFormat, w.obstacle(), name, w.Restored(), program, w.lacking())
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

// LackOption makes the watched programs reject an option.
func (w *World) LackOption(name string) error { return os.WriteFile(w.lacking(), []byte(name), 0o600) }

func (w *World) lacking() string { return filepath.Join(w.options.Dir, "programs-lack") }

func (w *World) obstacle() string { return filepath.Join(w.options.Dir, "programs-fail") }

// Restored is the file with the input of the watched programs.
func (w *World) Restored() string { return filepath.Join(w.options.Dir, "restored") }
