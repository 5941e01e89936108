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
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// TestARPSettings_FollowMode: userspace mode sets the ARP settings, unless its configuration forbids it. A running
// process restores the previous values when its next configuration does not need the settings.
func TestARPSettings_FollowMode(t *testing.T) {
	if netnstest.Rerun(t) {
		return
	}
	const ignore, announce = "/proc/sys/net/ipv4/conf/all/arp_ignore", "/proc/sys/net/ipv4/conf/all/arp_announce"
	check(t, os.WriteFile(announce, []byte("1"), 0))
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	configure := func(text string) {
		t.Helper()
		text = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n" + text
		check(t, os.WriteFile(file+".new", []byte(text), 0o600))
		check(t, os.Rename(file+".new", file))
	}
	const userspace, nftables = "mode: userspace\n", "mode: nftables\n"
	const answering = userspace + "---\napiVersion: sluice.dev/v1alpha1\nkind: SluiceConfiguration\nuserspace: {answerARP: true}\n"
	expect := func(when, wantIgnore, wantAnnounce string) {
		t.Helper()
		var found []string
		for deadline := time.Now().Add(testenv.Patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
			found = nil
			for _, path := range []string{ignore, announce} {
				value, err := os.ReadFile(path)
				check(t, err)
				found = append(found, strings.TrimSpace(string(value)))
			}
			if found[0] == wantIgnore && found[1] == wantAnnounce {
				return
			}
		}
		t.Fatalf("%s: arp_ignore and arp_announce are %v, want %s and %s", when, found, wantIgnore, wantAnnounce)
	}

	configure(answering)
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	o := &Options{Options: setup.Options{Flags: config.BindProxy(flags)}}
	check(t, flags.Parse([]string{"--config", file, "--hostname-override", "demo", testenv.Settings(t, "log: {level: error}"),
		"--sluice-state-dir", filepath.Join(dir, "state")}))
	check(t, o.Load())
	applied := make(chan config.Mode, 10)
	o.FirstSync = func(m config.Mode) { applied <- m }
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, o, feed.Manifests("../../examples/demo")) }()

	<-applied
	expect("with answerARP", "0", "1")
	for range 2 {
		configure(userspace)
		<-applied
		expect("in userspace mode", "1", "2")
		configure(nftables)
		<-applied
		expect("after userspace mode", "0", "1")
	}
	configure(userspace)
	<-applied
	expect("in userspace mode again", "1", "2")
	configure(answering)
	<-applied
	expect("once the node is to answer", "0", "1")
	configure(userspace)
	<-applied
	expect("in userspace mode", "1", "2")
	cancel()
	check(t, <-ended)

	configure(answering) // the proxy of our manifests cannot write to /proc/sys, but its init container can
	check(t, o.Load())
	check(t, setup.Initialize(t.Context(), &o.Options))
	expect("after --init-only", "0", "1")
}
