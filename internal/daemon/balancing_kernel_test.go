// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// talk exchanges lines on an open connection until stop is closed, and counts them.
func talk(conn net.Conn, lines *atomic.Int64, stop <-chan struct{}) error {
	in := bufio.NewReader(conn)
	if _, err := in.ReadString('\n'); err != nil { // the number of the endpoint
		return err
	}
	for i := 0; ; i++ {
		select {
		case <-stop:
			return nil
		case <-time.After(50 * time.Millisecond):
		}
		if err := conn.SetDeadline(time.Now().Add(testenv.Patience)); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(conn, "%d\n", i); err != nil {
			return err
		}
		line, err := in.ReadString('\n')
		if err != nil {
			return err
		}
		if line != fmt.Sprintln(i) {
			return fmt.Errorf("got %q, want %d", line, i)
		}
		lines.Add(1)
	}
}

// talkers opens connections that exchange lines until stop is called, which returns the problems.
func (a *adaptive) talkers(count int, lines *atomic.Int64) (stop func() []error) {
	end := make(chan struct{})
	var running sync.WaitGroup
	var mu sync.Mutex
	var problems []error
	for i := range count {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, byte(10+i%4))}, Timeout: testenv.Patience}
		conn, err := d.DialContext(a.t.Context(), "tcp", a.at)
		check(a.t, err)
		a.t.Cleanup(func() { _ = conn.Close() })
		running.Go(func() {
			if err := talk(conn, lines, end); err != nil {
				mu.Lock()
				problems = append(problems, err)
				mu.Unlock()
			}
		})
	}
	return func() []error { close(end); running.Wait(); return problems }
}

// placed writes the node, which is in zone a, and gives every second endpoint a hint for that zone.
func (a *adaptive) placed() {
	a.t.Helper()
	a.zones = true
	node := "apiVersion: v1\nkind: Node\nmetadata: {name: demo, labels: {topology.kubernetes.io/zone: a}}\n"
	check(a.t, os.WriteFile(filepath.Join(a.dir, "node.yaml"), []byte(node), 0o600))
}

// TestBalancing_ChangesKeepConnections: changes of balancing break no connection. 200 connections stay open and about
// 400 per second are made while the annotations change 14 times, or 40. A packet whose evaluation meets a change of
// nf_tables can miss the old elements, and its connection is refused: at most one per change (docs/balancing.md).
func TestBalancing_ChangesKeepConnections(t *testing.T) {
	if netnstest.Rerun(t) {
		return
	}
	const open = 200
	changes := testenv.Variants(14, 40)
	a := newAdaptive(t)
	a.placed()
	a.describe("", len(a.servers))
	client, stop := serveTested(t, a.dir, "--proxy-mode", "nftables", testenv.Settings(t, "balancing: {observeConnections: demo}"))
	testenv.Eventually(t, "an answer", func() bool { a.connect(t.Context(), 0, false); return len(a.to) > 0 })
	a.begin()
	var lines atomic.Int64
	hangUp := a.talkers(open, &lines)
	end := a.load()
	others := []string{
		"sluice.dev/slow-start: 2s", "sluice.dev/zone-share: \"70\"", "sluice.dev/outlier: passive", "sluice.dev/zone-min-endpoints: \"9\"",
		"sluice.dev/outlier: \"off\"", "sluice.dev/zone-share: \"30\", sluice.dev/slow-start: 5s, sluice.dev/outlier: passive", "",
	}
	for i := range changes[len(changes)-1] {
		by := service.Balancing((i + 1) % len(service.Balancings())).String()
		n := len(a.servers) - i%3 // an endpoint that returns is new
		a.describe(strings.TrimSuffix("sluice.dev/balancing: "+by+", "+others[i%len(others)], ", "), n)
		testenv.Eventually(t, by, func() bool {
			d, err := client.Service(t.Context(), "demo", "ten")
			return err == nil && d.Balancing == by && d.State == "applied"
		})
		a.mu.Lock()
		made := a.made
		a.mu.Unlock()
		a.more(made + 100)
	}
	end()
	broken := hangUp()
	a.mu.Lock()
	t.Logf("%d lines on %d connections; new connections by endpoint %v", lines.Load(), open, a.to)
	if len(broken) > 0 || a.refused > changes[len(changes)-1] {
		t.Errorf("%d open connections broke: %v; %d new ones failed: %v", len(broken), broken, a.refused, a.problem)
	}
	if len(a.to) != len(a.servers) || lines.Load() < 10*open {
		t.Errorf("%d lines, new connections by endpoint: %v", lines.Load(), a.to)
	}
	a.mu.Unlock()
	stop()
}
