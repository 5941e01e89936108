// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/daemon/feed"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/test/apitest"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// TestHandover_LeavesNothing: no server, goroutine or descriptor of a previous configuration remains, regardless of the
// number of reloads.
func TestHandover_LeavesNothing(t *testing.T) {
	if netnstest.Rerun(t) {
		return
	}
	handOverOften(t)
}

// census is what a process holds.
type census struct {
	servers                       int64
	goroutines, descriptors, heap int
}

// most returns the larger numbers, and the later heap.
func (c census) most(later census) census {
	return census{max(c.servers, later.servers), max(c.goroutines, later.goroutines), max(c.descriptors, later.descriptors), later.heap}
}

// succession counts the servers of one process.
type succession struct {
	file string
	// made, running and freed count servers: assembled, begun to serve, and collected.
	made, running, freed atomic.Int64
}

func handOverOften(t *testing.T) {
	const early, often = 7, 20
	lender := httptest.NewTLSServer(nil)
	lender.Close()
	api, err := apitest.New(func(network, address string) (net.Listener, error) { // as in every cluster
		return tls.Listen(network, address, &tls.Config{Certificates: lender.TLS.Certificates, NextProtos: []string{"h2"}})
	})
	check(t, err)
	defer api.Stop() // the process ends
	api.Set(apitest.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "demo"}})
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	check(t, os.WriteFile(kubeconfig, fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: c,
contexts: [{name: c, context: {cluster: k}}], clusters: [{name: k, cluster: {server: "https://%s", insecure-skip-tls-verify: true}}]}`, api.Address()), 0o600))
	s := &succession{file: filepath.Join(dir, "config.yaml")}
	s.configure(t, kubeconfig, 0)

	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	o := &Options{Options: setup.Options{Flags: config.BindProxy(flags)}}
	check(t, flags.Parse([]string{"--config", s.file, "--hostname-override", "demo", testenv.Settings(t, "log: {level: error}"),
		"--sluice-state-dir", filepath.Join(dir, "state")}))
	check(t, o.Load())
	o.Ready = func(config.Mode) { s.running.Add(1) }
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, o, s.counted(feed.Cluster)) }()

	var before census
	for n := 1; n <= often; n++ {
		testenv.Eventually(t, "the server runs", func() bool { return s.running.Load() == int64(n) })
		if n == early-1 || n == early {
			before = before.most(s.census(t)) // a busy machine may rest before a server has opened everything
		}
		s.configure(t, kubeconfig, n)
	}
	testenv.Eventually(t, "the last server runs", func() bool { return s.running.Load() == often+1 })
	var after census
	for deadline := time.Now().Add(testenv.Patience); ; time.Sleep(50 * time.Millisecond) {
		// The previous server may still close descriptors. A leak stays.
		after = s.census(t)
		settled := after.servers <= 1 && after.goroutines <= before.goroutines+5 && after.descriptors <= before.descriptors+2
		if settled || time.Now().After(deadline) {
			break
		}
	}
	t.Logf("after %d hand-overs %+v, after %d %+v", early-1, before, often, after)
	if after.servers > 1 {
		t.Errorf("%d servers are held but do not serve", after.servers-1)
	}
	if after.goroutines > before.goroutines+5 {
		t.Errorf("%d more goroutines", after.goroutines-before.goroutines)
	}
	if after.descriptors > before.descriptors+2 {
		t.Errorf("%d more descriptors", after.descriptors-before.descriptors)
	}
	// A timer keeps the buffers of a closed HTTP/2 connection for up to 90 s, 35 KB per
	// server; a server is 250 KB.
	if perServer := (after.heap - before.heap) / (often - early); perServer > 100<<10 {
		t.Errorf("each hand-over costs %d bytes", perServer)
	}
	if t.Failed() {
		_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1) // to find the reason
	}
	cancel()
	check(t, <-ended)
}

// configure writes a file that needs a successor: the masquerade bit alternates, and the
// mode changes now and then.
func (s *succession) configure(t *testing.T, kubeconfig string, n int) {
	t.Helper()
	mode, bit := config.ModeNFTables, 14+n%2
	if n%10 == 5 {
		mode = config.ModeIPTables
	}
	text := fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: %s
nftables: {masqueradeBit: %d}
clientConnection: {kubeconfig: %s}
conntrack: {maxPerCore: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
`, mode, bit, kubeconfig)
	check(t, os.WriteFile(s.file+".new", []byte(text), 0o600))
	check(t, os.Rename(s.file+".new", s.file))
}

// counted is a feed whose servers are counted as they are made and collected: each server has one
// feed, which is collected with it.
func (s *succession) counted(open feed.Opener) feed.Opener {
	return func(o *setup.Options) (*feed.Feed, error) {
		from, err := open(o)
		if err == nil {
			s.made.Add(1)
			runtime.AddCleanup(from, func(freed *atomic.Int64) { freed.Add(1) }, &s.freed)
		}
		return from, err
	}
}

// census counts what is left once the numbers stay for a second: the last server still opens descriptors, and the one before
// it closes some.
func (s *succession) census(t *testing.T) census {
	t.Helper()
	var last census
	for quiet, deadline := 0, time.Now().Add(testenv.Patience); quiet < 20 && time.Now().Before(deadline); quiet++ {
		runtime.GC()
		time.Sleep(50 * time.Millisecond) // cleanups run, connections close
		var memory runtime.MemStats
		runtime.ReadMemStats(&memory)
		descriptors, err := os.ReadDir("/proc/self/fd")
		check(t, err)
		now := census{s.made.Load() - s.freed.Load(), runtime.NumGoroutine(), len(descriptors), int(memory.HeapAlloc)}
		if now.servers != last.servers || now.goroutines != last.goroutines || now.descriptors != last.descriptors {
			quiet = 0
		} else {
			now.heap = min(now.heap, last.heap)
		}
		last = now
	}
	return last
}
