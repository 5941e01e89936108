// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/internal/host/sysctl"
)

// newPreflight returns a preflight whose configuration comes from flags.
func newPreflight(t *testing.T, args ...string) *preflight {
	t.Helper()
	set := pflag.NewFlagSet(t.Name(), pflag.ContinueOnError)
	p := &preflight{options: &setup.Options{Flags: config.BindPreflight(set)}, backend: &setup.Backend{}, report: Report{Result: OK}, privileged: true}
	if err := set.Parse(args); err != nil {
		t.Fatal(err)
	}
	if err := p.configuration(); err != nil {
		t.Fatal(err)
	}
	p.report.Checks = nil
	return p
}

// TestPreflight_FallbackReason: a fall-back to iptables is a warning with the same reason as at a start, and what the
// kernel lacks, in one line.
func TestPreflight_FallbackReason(t *testing.T) {
	said := &heard{}
	p := newPreflight(t)
	p.backend.Choice = &backend.Choice{Log: zap.New(said)}
	lacks := errors.New("needed: Linux 5.6")
	p.backend.Choice.Reason = "mode not set; using iptables because of the kernel"
	p.backend.Choice.Log.Warn(p.backend.Choice.Reason, zap.Error(lacks))
	p.backend.Choice.Log.Warn("a firewall drops", zap.String("chain", "FORWARD"))
	p.backend.Choice.Log.Info("not worth a line")
	p.backend.Mode = setup.IPTables
	p.mode(nil, said.warnings)
	want := []Check{
		{"mode", Warn, "a firewall drops (chain: FORWARD)", ""},
		{"mode", Warn, "mode not set; using iptables because of the kernel (error: needed: Linux 5.6)", ""},
	}
	if len(p.report.Checks) != 2 || p.report.Checks[0] != want[0] || p.report.Checks[1] != want[1] {
		t.Errorf("%+v", p.report.Checks)
	}
	if p.report.Result != Warn || p.report.Mode != config.ModeIPTables || p.report.Reason != want[1].Message {
		t.Errorf("%+v", p.report)
	}
}

// TestPreflight_ModeCannotServe: a mode that cannot serve fails the preflight, with the remedy from the start's error.
func TestPreflight_ModeCannotServe(t *testing.T) {
	p := newPreflight(t, "--proxy-mode", "nftables")
	p.mode(&backend.AdvisedError{Err: errors.New("the kernel lacks it"), Do: "use another kernel"}, nil)
	want := Check{"mode", Fail, "nftables cannot serve: the kernel lacks it", "use another kernel"}
	if len(p.report.Checks) != 1 || p.report.Checks[0] != want || p.report.Result != Fail || p.report.Mode != "" {
		t.Errorf("%+v", p.report)
	}
	p.add("later", Warn, "", "a warning after a failure")
	if p.report.Result != Fail {
		t.Errorf("result %s", p.report.Result)
	}
}

// TestAdvised: the remedy is separate from the error.
func TestAdvised(t *testing.T) {
	setting := &sysctl.Error{Err: errors.New("cannot set it"), Do: "run privileged"}
	for err, want := range map[error][2]string{
		fmt.Errorf("connection tracking: %w", setting):                        {"connection tracking: cannot set it", "run privileged"},
		errors.Join(errors.New("no IPv4"), errors.New("no IPv6; needed: it")): {"no IPv4; no IPv6; needed: it", ""},
	} {
		if found, do := advised(err); found != want[0] || do != want[1] {
			t.Errorf("%q, %q, want %q", found, do, want)
		}
	}
}

// TestPreflight_OnlyNeededSettingsFail: only needed settings fail the preflight, because a start continues without an
// optional one.
func TestPreflight_OnlyNeededSettingsFail(t *testing.T) {
	for _, c := range []struct {
		problem  string
		optional bool
		want     Result
	}{{"", false, OK}, {"", true, OK}, {"read-only file system", true, Warn}, {"read-only file system", false, Fail}} {
		p := &preflight{report: Report{Result: OK}}
		p.setting(sysctl.Change{Name: "net.ipv4.conf.all.arp_ignore", From: "0", To: "1", Problem: c.problem, Optional: c.optional})
		if p.report.Result != c.want || len(p.report.Checks) != 1 {
			t.Errorf("%q, optional %t: %+v, want %s", c.problem, c.optional, p.report, c.want)
		}
	}
}

func TestWritable(t *testing.T) {
	dir := t.TempDir()
	for path, want := range map[string]bool{
		dir: true, filepath.Join(dir, "to be made"): true, filepath.Join(dir, "a", "b"): false, "/proc/version/x": false,
	} {
		if err := writable(path); (err == nil) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "to be made")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the question made it: %v", err)
	}
}
