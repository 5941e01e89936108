// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

// tool runs a program that changes the namespace of the test.
func tool(t *testing.T, line string) string {
	t.Helper()
	words := strings.Fields(line)
	out, err := exec.CommandContext(t.Context(), words[0], words[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", line, err, out)
	}
	return string(out)
}

// addAddress gives the namespace of the test an address of IPv4, without which the family is not tested.
func addAddress(t *testing.T) {
	t.Helper()
	tool(t, "ip link add veth0 type veth peer name veth1")
	tool(t, "ip addr add 192.0.2.1/24 dev veth0")
	tool(t, "ip link set veth0 up")
}

// serveDemo serves the demo's Services.
func serveDemo(t *testing.T, flags ...string) (*inspect.Client, func()) {
	t.Helper()
	return serveTested(t, "../../examples/demo", flags...)
}

// serveTested serves manifests in the namespace of the test, with a self-test ten times per second. It returns the client of
// its socket, and what stops it.
func serveTested(t *testing.T, manifests string, flags ...string) (*inspect.Client, func()) {
	t.Helper()
	return serveChanged(t, manifests, func(*Options) {}, flags...)
}

// serveChanged is serveTested with changed options.
func serveChanged(t *testing.T, manifests string, change func(*Options), flags ...string) (*inspect.Client, func()) {
	t.Helper()
	dir := t.TempDir()
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	o := &Options{Options: setup.Options{Flags: config.BindServing(set)}, SelfTestInterval: 100 * time.Millisecond, LookInterval: 50 * time.Millisecond, SuspectPause: time.Second}
	check(t, set.Parse(append(flags, "--hostname-override", "demo", testenv.Settings(t, "log: {level: error}"), "--sluice-state-dir", dir)))
	check(t, o.Load())
	change(o)
	applied := make(chan struct{})
	o.FirstSync = func(config.Mode) { close(applied) }
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, o, feed.Manifests(manifests)) }()
	<-applied
	client := inspect.NewClient(filepath.Join(dir, "sluice.sock"))
	testenv.Eventually(t, "the proxy answers questions", func() bool { _, err := client.Status(ctx); return err == nil })
	return client, func() {
		cancel()
		check(t, <-ended)
	}
}

// awaitTests waits until the last self-tests of both families are as wanted, and returns the status.
func awaitTests(t *testing.T, client *inspect.Client, when string, want func(*inspect.SelfTest) bool) *inspect.Status {
	t.Helper()
	var status *inspect.Status
	for began := time.Now(); time.Since(began) < testenv.Patience; time.Sleep(50 * time.Millisecond) {
		var err error
		if status, err = client.Status(t.Context()); err != nil || len(status.SelfTest) < 2 {
			continue
		}
		if !slices.ContainsFunc(status.SelfTest, func(r inspect.SelfTest) bool { return !want(&r) }) {
			return status
		}
	}
	t.Fatalf("%s: the self-tests are %+v", when, status.SelfTest)
	return nil
}

func passed(r *inspect.SelfTest) bool { return r.Passed }

func dataplaneFindings(s *inspect.Status) (all []inspect.Finding) {
	return slices.DeleteFunc(slices.Clone(s.Findings), func(f inspect.Finding) bool { return f.Kind != "dataplane" })
}

// TestSelfTest_DroppedPacketsFound: in each family, the self-test passes, and there is a finding while a table of
// another process drops or rejects translated packets. The self-test is not among the Services.
func TestSelfTest_DroppedPacketsFound(t *testing.T) {
	if netnstest.Rerun(t) {
		return
	}
	addAddress(t)
	const reset = "reject with tcp reset"
	for _, mode := range testenv.Variants("nftables", "iptables", "iptables "+testenv.Settings(t, "iptables: {variant: legacy}")) {
		verdict := reset
		if mode == "nftables" {
			verdict = "drop"
		}
		client, stop := serveDemo(t, append([]string{"--proxy-mode"}, strings.Fields(mode)...)...)
		status := awaitTests(t, client, mode, passed)
		if len(dataplaneFindings(status)) > 0 || status.Services != 2 {
			t.Errorf("%s: %d Services, findings %+v", mode, status.Services, status.Findings)
		}
		tool(t, "nft add table inet other")
		tool(t, "nft add chain inet other out { type filter hook output priority 0 ; }")
		tool(t, "nft add rule inet other out tcp dport 10271 ct status dnat "+verdict)
		status = awaitTests(t, client, mode+", with a table that drops", func(r *inspect.SelfTest) bool { return !r.Passed })
		found := dataplaneFindings(status)
		if len(found) != 2 || found[0].About != "IPv4" || !strings.HasPrefix(found[0].Problem,
			"packets to 127.0.0.1:10270 do not arrive at 127.0.0.1:10271 although the rules are applied: ") || !status.Healthy {
			t.Errorf("%s: findings %+v", mode, found)
		}
		tool(t, "nft add rule inet other out tcp dport 10271 "+reset)
		awaitTests(t, client, mode+", without any connection", func(r *inspect.SelfTest) bool {
			return strings.HasPrefix(r.Problem, "this node cannot connect to itself")
		})
		tool(t, "nft delete table inet other")
		if status = awaitTests(t, client, mode+", without the table", passed); len(dataplaneFindings(status)) > 0 {
			t.Errorf("%s: findings %+v", mode, status.Findings)
		}
		stop()
	}
}

// TestSelfTest_PortsInUse: if a port is in use, the self-test and its rules use other ports; the next process uses the
// first ports if they are free. Without the self-test, there are no such rules, and no port is open.
func TestSelfTest_PortsInUse(t *testing.T) {
	if netnstest.Rerun(t) {
		return
	}
	addAddress(t)
	rules := func() string { return tool(t, "nft list ruleset") }
	taken, err := net.Listen("tcp6", "[::1]:10270")
	check(t, err)
	client, stop := serveDemo(t, "--proxy-mode", "nftables")
	awaitTests(t, client, "with a port in use", passed)
	if strings.Contains(rules(), "10270") {
		t.Error("the rules translate a port of another process")
	}
	check(t, taken.Close())
	stop()
	client, stop = serveDemo(t, "--proxy-mode", "nftables")
	awaitTests(t, client, "with free ports", passed)
	if !strings.Contains(rules(), "127.0.0.1 . tcp . 10270") || !strings.Contains(rules(), "::1 . tcp . 10270") {
		t.Error("the rules do not have the preferred ports")
	}
	stop()
	dir := t.TempDir()
	check(t, os.WriteFile(filepath.Join(dir, "manifests.yaml"), []byte(`apiVersion: v1
kind: Node
metadata: {name: demo}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {type: NodePort, clusterIP: 172.30.0.9, ports: [{port: 80, nodePort: 10271}]}
`), 0o600))
	client, stop = serveTested(t, dir, "--proxy-mode", "nftables")
	awaitTests(t, client, "with a port that is a node port", passed)
	if strings.Contains(rules(), "127.0.0.1 . 10271") {
		t.Error("the self-test uses the node port of a Service")
	}
	stop()
	_, stop = serveDemo(t, "--proxy-mode", "nftables", testenv.Settings(t, "selfTest: {enabled: false}"))
	if strings.Contains(rules(), "127.0.0.1") {
		t.Error("rules remain without the self-test")
	}
	if _, err := net.Dial("tcp", "127.0.0.1:10271"); err == nil {
		t.Error("a process listens without the self-test")
	}
	stop()
}
