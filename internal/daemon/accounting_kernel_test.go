// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/daemon/feed"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// TestAccounting_FollowsConfiguration: accounting sets a sysctl, and the next configuration without it restores the
// previous value. The running proxy reports the use of the connection table.
func TestAccounting_FollowsConfiguration(t *testing.T) {
	if netnstest.Rerun(t) {
		return
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	configure := func(accounting string) {
		t.Helper()
		check(t, os.WriteFile(file+".new", []byte("apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: nftables\n---\n"+
			"apiVersion: sluice.dev/v1alpha1\nkind: SluiceConfiguration\ntraffic: {accounting: "+accounting+"}\n"), 0o600))
		check(t, os.Rename(file+".new", file))
	}
	expect := func(when, want string) {
		t.Helper()
		value, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_acct")
		check(t, err)
		if got := strings.TrimSpace(string(value)); got != want {
			t.Errorf("%s: nf_conntrack_acct is %s, want %s", when, got, want)
		}
	}
	configure("true")
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	o := &Options{Options: setup.Options{Flags: config.BindProxy(flags)}}
	check(t, flags.Parse([]string{"--config", file, "--hostname-override", "demo", testenv.Settings(t, "log: {level: error}"), "--sluice-state-dir", filepath.Join(dir, "state")}))
	check(t, o.Load())
	applied := make(chan config.Mode, 10)
	o.FirstSync = func(m config.Mode) { applied <- m }
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, o, feed.Manifests("../../examples/demo")) }()
	<-applied
	expect("with accounting", "1")
	socket := inspect.NewClient(filepath.Join(dir, "state", "sluice.sock"))
	var status *inspect.Status
	for began := time.Now(); time.Since(began) < testenv.Patience && (status == nil || status.Conntrack == nil); time.Sleep(50 * time.Millisecond) {
		status, _ = socket.Status(ctx) // it serves soon
	}
	if status == nil || status.Conntrack == nil || status.Conntrack.Limit == 0 {
		t.Errorf("status: %+v", status)
	}
	configure("false")
	<-applied
	expect("without accounting", "0")
	configure("true")
	<-applied
	cancel()
	check(t, <-ended)
	expect("after the end", "1")
	configure("false") // the init container restores it, too
	check(t, o.Load())
	check(t, setup.Initialize(t.Context(), &o.Options))
	expect("after --init-only", "0")
}
