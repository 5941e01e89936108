// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/sluice-proxy/sluice/internal/host/sysctl"
)

func TestReuseChoice(t *testing.T) {
	for release, want := range map[string]reuse{
		"3.10.0-1160.el7.x86_64": reuseUnknown, "4.0.9": reuseUnknown, "4.1.0": reuseOff, "5.4.0-150-generic": reuseOff, "5.8.18": reuseOff,
		"5.9.0-rc1": reuseAsIs, "5.10.0": reuseAsIs, "6.1.0-18-amd64": reuseAsIs, "6.18": reuseAsIs, "gvisor": reuseAsIs, "": reuseAsIs,
	} {
		if got := reuseChoice(release); got != want {
			t.Errorf("%q: %d, want %d", release, got, want)
		}
	}
}

// kernelFiles are the parameters of a kernel that has IPVS, each with the value 0.
func kernelFiles(t *testing.T) sysctl.Files {
	t.Helper()
	files := sysctl.Files{Root: t.TempDir(), Record: sysctl.NewRecord(t.TempDir(), func(err error) { t.Errorf("warned: %v", err) })}
	o := IPVSOptions{StrictARP: true}
	for _, p := range append(o.Parameters(), Parameter{Path: "net/ipv4/vs/conn_reuse_mode"}) {
		at := filepath.Join(files.Root, "proc/sys", p.Path)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte("0\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// TestARPSettings_CannotBeSet: if ARP settings cannot be set, IPVS mode with strict ARP does not start, and userspace
// mode serves without them.
func TestARPSettings_CannotBeSet(t *testing.T) {
	const prefix = "net.ipv4.conf.all.arp_"
	for name, c := range map[string]struct {
		set     func(sysctl.Files) error
		want    int
		without bool
	}{
		"ipvs": {func(f sysctl.Files) error {
			return setIPVS(IPVSOptions{StrictARP: true, Sysctls: f, Log: zap.NewNop()})
		}, 2, false},
		"userspace": {func(f sysctl.Files) error { return SetUserspace(UserspaceOptions{Sysctls: f, Log: zap.NewNop()}) }, 2, true},
		"userspace, answering": {func(f sysctl.Files) error {
			return SetUserspace(UserspaceOptions{AnswerARP: true, Sysctls: f, Log: zap.NewNop()})
		}, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			files, planned := kernelFiles(t), 0
			files.Plan = func(change sysctl.Change) {
				if !strings.HasPrefix(change.Name, prefix) {
					return
				}
				if planned++; change.Optional != c.without {
					t.Errorf("planned %+v", change)
				}
			}
			if err := c.set(files); err != nil || planned != c.want {
				t.Errorf("%d changes are planned, want %d; %v", planned, c.want, err)
			}
		})
	}
}

// TestSetIPVS_Parameters: the parameters of IPVS are set, recorded and logged, those of strict ARP only on demand.
func TestSetIPVS_Parameters(t *testing.T) {
	always := []string{"net.ipv4.ip_forward", "net.ipv4.vs.conntrack", "net.ipv4.vs.expire_nodest_conn", "net.ipv4.vs.expire_quiescent_template"}
	for name, c := range map[string]struct {
		strict bool
		want   []string
	}{
		"by default": {false, always},
		"strict ARP": {true, slices.Concat([]string{"net.ipv4.conf.all.arp_announce", "net.ipv4.conf.all.arp_ignore"}, always)},
	} {
		t.Run(name, func(t *testing.T) {
			files := kernelFiles(t)
			core, lines := observer.New(zap.InfoLevel)
			o := IPVSOptions{StrictARP: c.strict, Sysctls: files, Log: zap.New(core)}
			for range 2 { // the second time all is as it should be
				if err := setIPVS(o); err != nil {
					t.Fatal(err)
				}
			}
			if got := lines.FilterMessage("sysctl value changed").Len(); got != len(c.want) {
				t.Errorf("%d changes are logged, want %d: %v", got, len(c.want), lines.All())
			}
			if lines.FilterMessageSnippet("conn_reuse_mode").Len() != 2 {
				t.Error("the choice for conn_reuse_mode is not logged")
			}
			done, err := files.Restore()
			if err != nil {
				t.Fatal(err)
			}
			var restored []string
			for _, d := range done {
				restored = append(restored, d.Name)
			}
			if !slices.Equal(restored, c.want) {
				t.Errorf("a clean-up puts back %v, want %v", restored, c.want)
			}
		})
	}
}

// TestSetIPVS_ParameterMissing: the error for a parameter that the kernel lacks names the mode and the parameter.
func TestSetIPVS_ParameterMissing(t *testing.T) {
	err := setIPVS(IPVSOptions{Sysctls: sysctl.Files{Root: t.TempDir()}, Log: zap.NewNop()})
	if err == nil || !strings.Contains(err.Error(), "IPVS mode: cannot set net.ipv4.vs.conntrack to 1") {
		t.Errorf("got %v", err)
	}
}
