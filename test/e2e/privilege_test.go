// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/test/harness"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// A proxy of a user who is not root needs the capabilities that docs/security.md names, in each variant: with them it
// becomes healthy, without any one of them it does not start. Every test of this package runs the proxy as such a user.
func TestProxy_NeededCapabilities(t *testing.T) {
	lockOfNode(t)
	c := harness.NewCluster(t)
	for _, need := range []struct {
		variant
		capabilities []string
	}{
		{variant{"nftables", ""}, []string{"NET_ADMIN"}},
		{variant{"userspace", ""}, []string{"NET_ADMIN"}}, // NET_BIND_SERVICE is for ports below 1024
		{variant{"iptables", "nft"}, []string{"NET_ADMIN"}},
		{variant{"iptables", "legacy"}, []string{"NET_ADMIN", "NET_RAW", "DAC_READ_SEARCH"}},
	} {
		t.Run(need.variant.String(), func(t *testing.T) {
			var flags []string
			if need.programs != "" {
				flags = []string{testenv.Settings(t, "iptables: {variant: "+need.programs+"}")}
			}
			for _, dropped := range need.capabilities {
				fewer := slices.DeleteFunc(slices.Clone(need.capabilities), func(name string) bool { return name == dropped })
				proxy := c.StartProxyWithCapabilities(fewer, harness.Mode(need.mode), slices.Clone(flags)...)
				if status := proxy.ExitStatus(); status != 1 {
					t.Errorf("without %s: exit status %d, want 1", dropped, status)
				}
				t.Logf("without %s: %s", dropped, proxy.Tail(1))
			}
			proxy := c.StartProxyWithCapabilities(need.capabilities, harness.Mode(need.mode), slices.Clone(flags)...)
			harness.Eventually(t, "the proxy is healthy", func(ctx context.Context) error {
				page, err := c.N1.Get(ctx, "http://127.0.0.1:10256/healthz")
				if err == nil && page.Status != 200 {
					err = fmt.Errorf("status %d", page.Status)
				}
				return err
			})
			mustBeConfined(t, proxy.PID())
			if err := proxy.Stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// lockOfNode makes a lock as iptables has made it on a node: for root alone.
func lockOfNode(t *testing.T) {
	t.Helper()
	lock := filepath.Join(t.TempDir(), "xtables.lock")
	if err := os.WriteFile(lock, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XTABLES_LOCKFILE", lock)
}

// mustBeConfined looks at a process from outside.
func mustBeConfined(t *testing.T, pid int) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Uid:\t65532\t65532\t65532\t65532", "NoNewPrivs:\t1", "Seccomp:\t2"} {
		if !strings.Contains(string(status), want+"\n") {
			t.Errorf("/proc/%d/status lacks %q", pid, want)
		}
	}
	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mounts", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 3 && fields[1] == "/" && !slices.Contains(strings.Split(fields[3], ","), "ro") {
			t.Errorf("its root can be written: %s", line)
		}
	}
}
