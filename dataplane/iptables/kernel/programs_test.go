// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// fakeScripts sets PATH to a folder with these shell scripts, and to the folders in rest.
func fakeScripts(t *testing.T, scripts map[string]string, rest ...string) {
	t.Helper()
	folder := t.TempDir()
	for name, script := range scripts {
		if err := os.WriteFile(filepath.Join(folder, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", strings.Join(append([]string{folder}, rest...), ":"))
}

// fakePrograms sets PATH to a folder with programs that print a version.
func fakePrograms(t *testing.T, printed map[string]string) {
	t.Helper()
	scripts := make(map[string]string)
	for name, text := range printed {
		for _, suffix := range [...]string{"", "-restore", "-save"} {
			scripts[name+suffix] = "echo '" + text + "'"
		}
	}
	fakeScripts(t, scripts)
}

func TestFindPrograms(t *testing.T) {
	for _, tt := range []struct {
		name    string
		present map[string]string
		family  service.Family
		variant Variant
		want    string // the program's name, or the words of the error
	}{
		{"by its name", map[string]string{"iptables-nft": "iptables v1.8.9 (nf_tables)", "iptables": "iptables v1.8.9 (legacy)"}, service.IPv4, NFT, "iptables-nft"},
		{"by what it says", map[string]string{"ip6tables": "ip6tables v1.8.4 (nf_tables)"}, service.IPv6, NFT, "ip6tables"},
		{"before there were variants", map[string]string{"iptables": "iptables v1.6.2"}, service.IPv4, Legacy, "iptables"},
		{"the other variant", map[string]string{"iptables": "iptables v1.8.4 (nf_tables)"}, service.IPv4, Legacy, "is of the nft variant"},
		{"too old", map[string]string{"iptables": "iptables v1.6.1"}, service.IPv4, Legacy, "is version 1.6.1, too old; needed: iptables 1.6.2 or newer"},
		{"none", nil, service.IPv6, Legacy, "Debian package iptables"},
		{"not iptables", map[string]string{"iptables": "busybox"}, service.IPv4, Legacy, "no iptables version found in string: busybox"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fakePrograms(t, tt.present)
			found, err := findPrograms(t.Context(), tt.family, tt.variant, 0)
			if err == nil {
				if filepath.Base(found.iptables) != tt.want || filepath.Base(found.restore) != tt.want+"-restore" || filepath.Base(found.save) != tt.want+"-save" {
					t.Errorf("found %+v, want %s", found, tt.want)
				}
				return
			}
			missing, ok := errors.AsType[*MissingError](err)
			if !ok || missing.Family != tt.family || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want a MissingError for %v with %q", err, tt.family, tt.want)
			}
		})
	}
}

func TestVersion_Less(t *testing.T) {
	ascending := []version{{1, 4, 21}, {1, 6, 1}, {1, 6, 2}, {1, 8, 0}, {1, 10, 0}, {2, 0, 0}}
	for i, a := range ascending {
		for j, b := range ascending {
			if got := a.less(b); got != (i < j) {
				t.Errorf("%v less than %v: %v", a, b, got)
			}
		}
	}
}

// TestExec_RestoreKilledWithContext: a restore is killed when its context ends, and its outcome is unknown.
func TestExec_RestoreKilledWithContext(t *testing.T) {
	fakeScripts(t, map[string]string{
		"iptables-nft":         "echo 'iptables v1.8.9 (nf_tables)'",
		"iptables-nft-save":    "exit 0",
		"iptables-nft-restore": "exec sleep 600",
	}, os.Getenv("PATH"))
	tool, err := NewExec(t.Context(), ExecConfig{Variant: NFT})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err = tool.Restore(ctx, []byte("*nat\nCOMMIT\n"))
	toolErr, ok := errors.AsType[*ToolError](err)
	if !ok || toolErr.Outcome != dataplane.Unknown || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want an unknown outcome", err)
	}
}

// fakeSysctls are values by path. They cannot be set if broken is not nil.
type fakeSysctls struct {
	values map[string]string
	broken error
}

func (f fakeSysctls) Read(path string) (string, error) {
	value, there := f.values[path]
	if !there {
		return "", fmt.Errorf("%s: %w", path, fs.ErrNotExist)
	}
	return value, f.broken
}

func (f fakeSysctls) Ensure(path, value, advice string) (bool, error) {
	if f.broken != nil {
		return false, fmt.Errorf("%s: %w; %s", path, f.broken, advice)
	}
	changed := f.values[path] != value
	f.values[path] = value
	return changed, nil
}

func TestEnsureRouteLocalnet(t *testing.T) {
	s, protected := fakeSysctls{values: map[string]string{RouteLocalnet: "0"}}, 0
	unprotected := errors.New("cannot protect")
	if changed, err := EnsureRouteLocalnet(s, func() error { return unprotected }); changed || !errors.Is(err, unprotected) || s.values[RouteLocalnet] != "0" {
		t.Errorf("without protection: changed = %v, %v, value %s", changed, err, s.values[RouteLocalnet])
	}
	protect := func() error {
		if protected++; s.values[RouteLocalnet] != "0" {
			t.Error("protected too late")
		}
		return nil
	}
	for i, want := range []bool{true, false} {
		if changed, err := EnsureRouteLocalnet(s, protect); err != nil || changed != want || s.values[RouteLocalnet] != "1" || protected != 1 {
			t.Errorf("call %d: changed = %v, %v, value %s, protected %d times; want %v", i, changed, err, s.values[RouteLocalnet], protected, want)
		}
	}
	s.broken = fs.ErrPermission
	if _, err := EnsureRouteLocalnet(s, func() error { return nil }); !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "iptables.localhostNodePorts: false") {
		t.Errorf("error %v, want one that says what to do", err)
	}
}

func TestTCPBeLiberal(t *testing.T) {
	for value, want := range map[string]bool{"0": false, "1": true, "255": true} {
		if got, err := TCPBeLiberal(fakeSysctls{values: map[string]string{tcpBeLiberal: value}}); err != nil || got != want {
			t.Errorf("%s: %v, %v", value, got, err)
		}
	}
	if got, err := TCPBeLiberal(fakeSysctls{}); err != nil || got {
		t.Errorf("without conntrack: %v, %v", got, err)
	}
	s := fakeSysctls{values: map[string]string{tcpBeLiberal: "1"}, broken: fs.ErrPermission}
	if got, err := TCPBeLiberal(s); !errors.Is(err, fs.ErrPermission) || got {
		t.Errorf("unreadable: %v, %v", got, err)
	}
}

func TestParseKernel(t *testing.T) {
	for release, want := range map[string]version{
		"6.1.0-18-amd64": {6, 1, 0}, "3.10.0-1160.el7": {3, 10, 0}, "5.15-generic": {5, 15, 0}, "unknown": {},
	} {
		if got := parseKernel(release); got != want {
			t.Errorf("parseKernel(%q) = %v, want %v", release, got, want)
		}
	}
}

// TestExec_PresentWithoutTable: Present returns a MissingError if a table does not exist, and another error if the lock
// is held.
func TestExec_PresentWithoutTable(t *testing.T) {
	for name, tt := range map[string]struct {
		words   string
		status  int
		missing bool
	}{
		"no table": {"can't initialize iptables table 'nat': Table does not exist", 3, true},
		"busy":     {"Another app is currently holding the xtables lock.", 4, false},
	} {
		script := fmt.Sprintf(`[ "$1" = --version ] && echo 'iptables v1.8.9 (legacy)' && exit; echo "%s" >&2; exit %d`, tt.words, tt.status)
		fakeScripts(t, map[string]string{"iptables-legacy": script, "iptables-legacy-restore": script, "iptables-legacy-save": ""})
		tool, err := NewExec(t.Context(), ExecConfig{Variant: Legacy})
		if err != nil {
			t.Fatal(err)
		}
		err = tool.Present(t.Context(), false)
		_, missing := errors.AsType[*MissingError](err)
		if err == nil || missing != tt.missing || !strings.Contains(err.Error(), tt.words) {
			t.Errorf("%s: %v", name, err)
		}
		if missing && !strings.Contains(err.Error(), "iptable_nat") {
			t.Errorf("%s: %v; want it to name the kernel's module", name, err)
		}
	}
}
