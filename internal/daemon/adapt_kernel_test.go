package daemon

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

// adaptive is a Service with ten endpoints in the namespace of a test, and clients of it.
type adaptive struct {
	t       *testing.T
	dir     string
	at      string
	servers [10]net.Listener
	// zones gives endpoints hints for the zones a and b in turn.
	zones bool
	mu    sync.Mutex
	// refused and late count connections that failed, and that took longer than a second; to counts answers.
	refused, late int
	slowest       time.Duration
	problem       error
	to            map[string]int
}

func endpointAt(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 244, 1, byte(i + 1)}), 8080)
}

const adaptiveAt = "172.30.0.50:80"

func newAdaptive(t *testing.T) *adaptive {
	t.Helper()
	addAddress(t)
	a := &adaptive{t: t, dir: t.TempDir(), at: adaptiveAt, to: map[string]int{}}
	tool(t, "ip link set lo up")
	tool(t, "ip route add 172.30.0.0/16 dev lo")
	for i := range a.servers {
		tool(t, fmt.Sprintf("ip addr add %s/32 dev lo", endpointAt(i).Addr()))
	}
	for c := range 4 {
		tool(t, fmt.Sprintf("ip addr add 192.0.2.1%d/24 dev veth0", c))
	}
	for i := range a.servers {
		a.listen(i)
	}
	t.Cleanup(func() {
		for i := range a.servers {
			_ = a.servers[i].Close()
		}
	})
	return a
}

// listen starts an endpoint, which says its number to each client, and repeats what the client says.
func (a *adaptive) listen(i int) {
	a.t.Helper()
	l, err := net.Listen("tcp", endpointAt(i).String())
	check(a.t, err)
	a.servers[i] = l
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = fmt.Fprintf(c, "%d\n", i)
				_, _ = io.Copy(c, c)
				_ = c.Close()
			}()
		}
	}()
}

// describe writes the manifests, with the annotations and the first n endpoints.
func (a *adaptive) describe(annotations string, n int) {
	a.t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, `apiVersion: v1
kind: Service
metadata: {namespace: demo, name: ten, annotations: {%s}}
spec: {clusterIP: 172.30.0.50, clusterIPs: [172.30.0.50], ipFamilies: [IPv4], ports: [{name: web, port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: demo, name: ten, labels: {kubernetes.io/service-name: ten}, annotations: {endpoints.kubernetes.io/last-change-trigger-time: %q}}
addressType: IPv4
ports: [{name: web, port: 8080}]
endpoints:
`, annotations, time.Now().UTC().Format(time.RFC3339Nano))
	for i := range n {
		hints := ""
		if a.zones {
			hints = fmt.Sprintf(", hints: {forZones: [{name: %s}]}", []string{"a", "b"}[i%2])
		}
		fmt.Fprintf(&b, "- {addresses: [%s], conditions: {ready: true}%s}\n", endpointAt(i).Addr(), hints)
	}
	next := filepath.Join(a.t.TempDir(), "next")
	check(a.t, os.WriteFile(next, []byte(b.String()), 0o600))
	check(a.t, os.Rename(next, filepath.Join(a.dir, "ten.yaml")))
}

// connect makes one connection of a client. hold leaves it open until the end of the test.
func (a *adaptive) connect(ctx context.Context, c int, hold bool) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, byte(10+c))}, Timeout: 10 * time.Second}
	began := time.Now()
	conn, err := d.DialContext(ctx, "tcp", a.at)
	took := time.Since(began)
	if ctx.Err() != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.slowest = max(a.slowest, took)
	if err != nil {
		a.refused++
		a.problem = err
		return
	}
	if took > time.Second/2 {
		a.late++
	}
	_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	var text [1]byte
	if _, err := io.ReadFull(conn, text[:]); err == nil {
		a.to[string(text[:])]++
	}
	if !hold {
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
		return
	}
	a.t.Cleanup(func() { _ = conn.Close() })
}

// load makes connections from four clients, about 400 per second, until it is stopped.
func (a *adaptive) load() (stop func()) {
	ctx, cancel := context.WithCancel(a.t.Context())
	var running sync.WaitGroup
	for c := range 4 {
		running.Go(func() {
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
					running.Go(func() { a.connect(ctx, c, false) })
				}
			}
		})
	}
	return func() { cancel(); running.Wait() }
}

// begin resets the counts.
func (a *adaptive) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refused, a.late, a.slowest, a.to = 0, 0, 0, map[string]int{}
}

// suspects returns the addresses with the rule suspect.
func (a *adaptive) suspects(client *inspect.Client) (all []string) {
	list, err := client.Endpoints(a.t.Context(), "demo", "ten")
	check(a.t, err)
	for _, p := range list.Ports {
		for _, e := range p.Endpoints {
			if e.Internal.Rule == "suspect" {
				all = append(all, e.Address)
			}
		}
	}
	return all
}

// await waits until a condition holds.
func await(t *testing.T, what string, limit time.Duration, is func() bool) {
	t.Helper()
	for began := time.Now(); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > limit {
			t.Fatalf("%s: not within %v", what, limit)
		}
	}
}

// TestFailingEndpointsAreAvoided: an endpoint that refuses costs a few connections, and one that is silent delays a few. Both
// get connections again when they answer.
func TestFailingEndpointsAreAvoided(t *testing.T) {
	if netnstest.Rerun(t) {
		return
	}
	a := newAdaptive(t)
	a.describe("sluice.dev/outlier: passive", len(a.servers))
	for _, mode := range []string{"nftables", "iptables"} {
		client, stop := serveTested(t, a.dir, "--proxy-mode", mode)
		end := a.load()
		await(t, mode+": answers", 10*time.Second, func() bool { a.mu.Lock(); defer a.mu.Unlock(); return len(a.to) == 10 })
		time.Sleep(time.Second)
		if got := a.suspects(client); got != nil {
			t.Fatalf("%s: suspects before: %v", mode, got)
		}
		a.begin()
		check(t, a.servers[3].Close())
		await(t, mode+": suspect", 3*time.Second, func() bool { return len(a.suspects(client)) == 1 })
		time.Sleep(2 * time.Second)
		a.mu.Lock()
		t.Logf("%s: an endpoint refuses: %d of %v connections failed", mode, a.refused, a.to)
		if a.refused > 40 { // usually three in a row; a busy machine takes longer, and the load would be 80 by now
			t.Errorf("%s: %d connections failed", mode, a.refused)
		}
		a.mu.Unlock()
		a.listen(3)
		await(t, mode+": it answers again", 15*time.Second, func() bool { return len(a.suspects(client)) == 0 })
		a.begin()
		tool(t, "nft add table ip other")
		tool(t, "nft add chain ip other in { type filter hook input priority 0 ; }")
		tool(t, "nft add rule ip other in ip daddr "+endpointAt(5).Addr().String()+" drop")
		await(t, mode+": silent", 3*time.Second, func() bool { return len(a.suspects(client)) == 1 })
		time.Sleep(2 * time.Second)
		a.mu.Lock()
		t.Logf("%s: an endpoint is silent: %d failed, %d late of %v; the slowest took %v", mode, a.refused, a.late, a.to, a.slowest)
		if a.refused > 0 || a.slowest > 2500*time.Millisecond {
			t.Errorf("%s: %d failed, the slowest took %v", mode, a.refused, a.slowest)
		}
		a.mu.Unlock()
		tool(t, "nft delete table ip other")
		await(t, mode+": it is heard again", 15*time.Second, func() bool { return len(a.suspects(client)) == 0 })
		end()
		stop()
	}
}

// TestSlowStartAndLeastConnections: the shares of connections follow the ramp of a new endpoint, and the open connections.
func TestSlowStartAndLeastConnections(t *testing.T) {
	if netnstest.Rerun(t) {
		return
	}
	a := newAdaptive(t)
	a.describe("sluice.dev/slow-start: 10s", 9)
	_, stop := serveTested(t, a.dir, "--proxy-mode", "nftables")
	await(t, "an answer", 10*time.Second, func() bool { a.connect(t.Context(), 0, false); return len(a.to) > 0 })
	const count = 2000
	share := func() float64 {
		a.begin()
		var running sync.WaitGroup
		for c := range 4 {
			running.Go(func() {
				for range count / 4 {
					a.connect(t.Context(), c, false)
				}
			})
		}
		running.Wait()
		return float64(a.to["9"]) / count * 10 // 1 is a full share, nearly
	}
	if share(); a.refused > 0 {
		t.Fatalf("%d failed", a.refused)
	}
	added := time.Now()
	a.describe("sluice.dev/slow-start: 10s", 10)
	await(t, "a connection to the new endpoint", 10*time.Second, func() bool { a.connect(t.Context(), 0, false); return a.to["9"] > 0 })
	for {
		from := time.Since(added)
		got := share()
		middle := (from + time.Since(added)) / 2
		ramp := min(1, 0.1+0.9*middle.Seconds()/10)
		want := 10 * ramp / (9 + ramp)
		t.Logf("after %v: %.2f of a full share, want %.2f", middle.Round(100*time.Millisecond), got, want)
		if got < want-0.3 || got > want+0.3 {
			t.Errorf("after %v: %.2f of a full share, want %.2f", middle, got, want)
		}
		if a.refused > 0 {
			t.Errorf("%d failed", a.refused)
		}
		if from > 11*time.Second {
			break
		}
		time.Sleep(2 * time.Second)
	}
	// Nine endpoints have 100 connections each, and the tenth none.
	a.describe("sluice.dev/balancing: random", 9)
	time.Sleep(time.Second)
	a.begin()
	for i := range 900 {
		a.connect(t.Context(), i%4, true)
	}
	if a.refused > 0 {
		t.Fatalf("%d of 900 failed: %v; %v", a.refused, a.problem, a.to)
	}
	a.describe("sluice.dev/balancing: leastConnections", 10)
	time.Sleep(5 * time.Second)
	a.begin()
	for i := range 300 {
		a.connect(t.Context(), i%4, true)
	}
	t.Logf("300 connections of which the tenth endpoint got %d: %v", a.to["9"], a.to)
	if a.to["9"] < 60 || a.refused > 0 {
		t.Errorf("the empty endpoint got %d of 300 connections; %d failed: %v", a.to["9"], a.refused, a.problem)
	}
	stop()
}
