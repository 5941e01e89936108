// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
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
	// refused counts connections that failed, made the others, and to their answers by endpoint.
	refused, made int
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
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, byte(10+c))}, Timeout: 20 * time.Second}
	conn, err := d.DialContext(ctx, "tcp", a.at)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.refused++
		a.problem = err
		return
	}
	a.made++
	_ = conn.SetReadDeadline(time.Now().Add(testenv.Patience))
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

// load makes connections from four clients, about 400 per second, until it is stopped. stop waits for the last ones.
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
					running.Go(func() { a.connect(a.t.Context(), c, false) })
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
	a.refused, a.made, a.to = 0, 0, map[string]int{}
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

// more waits until a number of connections were made since begin.
func (a *adaptive) more(count int) {
	a.t.Helper()
	testenv.Eventually(a.t, "more connections", func() bool { a.mu.Lock(); defer a.mu.Unlock(); return a.made >= count })
}

// TestAdaptive_FailingEndpointsAvoided: connections avoid an endpoint that refuses or is silent, and reach it again
// when it answers.
func TestAdaptive_FailingEndpointsAvoided(t *testing.T) {
	if netnstest.Rerun(t) {
		return
	}
	a := newAdaptive(t)
	a.describe("sluice.dev/outlier: passive", len(a.servers))
	for _, mode := range testenv.Variants("nftables", "iptables") {
		client, stop := serveTested(t, a.dir, "--proxy-mode", mode, testenv.Settings(t, "balancing: {observeConnections: demo}"))
		suspects := func(n int) func() bool { return func() bool { return len(a.suspects(client)) == n } }
		a.begin()
		end := a.load()
		testenv.Eventually(t, mode+": answers", func() bool { a.mu.Lock(); defer a.mu.Unlock(); return len(a.to) == 10 })
		a.more(100)
		if got := a.suspects(client); got != nil {
			t.Fatalf("%s: suspects before: %v", mode, got)
		}
		check(t, a.servers[3].Close())
		testenv.Eventually(t, mode+": suspect", suspects(1))
		a.settled(client)
		a.begin()
		a.more(1500)
		a.mu.Lock()
		// Each trial is one, or some on a busy machine, and comes after twice the pause of the one before. All endpoints would
		// get a tenth.
		if a.refused > a.made/30 {
			t.Errorf("%s: %d of %d connections failed while the endpoint was avoided", mode, a.refused, a.made)
		}
		a.mu.Unlock()
		a.listen(3)
		testenv.Eventually(t, mode+": it answers again", suspects(0))
		a.settled(client)
		a.begin()
		tool(t, "nft add table ip other")
		tool(t, "nft add chain ip other in { type filter hook input priority 0 ; }")
		tool(t, "nft add rule ip other in ip daddr "+endpointAt(5).Addr().String()+" drop")
		testenv.Eventually(t, mode+": silent", suspects(1))
		a.more(300)
		end() // those to the silent endpoint, too, are made
		if a.refused > 0 {
			t.Errorf("%s: %d failed: %v", mode, a.refused, a.problem)
		}
		end = a.load()
		tool(t, "nft delete table ip other")
		testenv.Eventually(t, mode+": it is heard again", suspects(0))
		end()
		stop()
	}
}

// settled waits until the kernel has what was observed.
func (a *adaptive) settled(client *inspect.Client) {
	a.t.Helper()
	testenv.Eventually(a.t, "applied", func() bool {
		d, err := client.Service(a.t.Context(), "demo", "ten")
		return err == nil && d.State == "applied"
	})
}

// share returns the part of new connections that an endpoint gets, once the kernel has it.
func (a *adaptive) share(client *inspect.Client, at netip.AddrPort) (share float64) {
	a.t.Helper()
	a.settled(client)
	list, err := client.Endpoints(a.t.Context(), "demo", "ten")
	check(a.t, err)
	for _, e := range list.Ports[0].Endpoints {
		if e.Address == at.String() {
			if share = e.Internal.Share; share == 0 {
				share = 1 / float64(len(list.Ports[0].Endpoints))
			}
		}
	}
	return share
}

// TestAdaptive_SlowStartLeastConnections: the share of a new endpoint grows, connections follow the shares, and an
// endpoint without open connections gets a larger share.
func TestAdaptive_SlowStartLeastConnections(t *testing.T) {
	if netnstest.Rerun(t) {
		return
	}
	a := newAdaptive(t)
	const ramp = "sluice.dev/slow-start: 20s" // a busy machine takes seconds for the first look at the share
	a.describe(ramp, 9)
	client, stop := serveTested(t, a.dir, "--proxy-mode", "nftables", testenv.Settings(t, "balancing: {observeConnections: demo}"))
	testenv.Eventually(t, "an answer", func() bool { a.connect(t.Context(), 0, false); return len(a.to) > 0 })
	const count = 2000
	got := func() float64 {
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
		if a.refused > 0 {
			t.Fatalf("%d failed: %v", a.refused, a.problem)
		}
		return float64(a.to["9"]) / count
	}
	a.describe(ramp, 10)
	at := endpointAt(9)
	testenv.Eventually(t, "a new endpoint", func() bool { return a.share(client, at) > 0 })
	first := 0.0
	for last := 0.0; last < 0.05; {
		before := a.share(client, at)
		part := got()
		last = a.share(client, at)
		t.Logf("%.3f of the connections, the share was %.3f and is %.3f", part, before, last)
		if part < before-0.03 || part > last+0.03 {
			t.Errorf("%.3f of the connections, the share was %.3f and is %.3f", part, before, last)
		}
		if first == 0 {
			first = before
		}
		if before > last+0.001 {
			t.Errorf("the share fell from %.3f to %.3f", before, last)
		}
	}
	if first > 0.04 {
		t.Errorf("the first share was %.3f", first)
	}
	// Nine endpoints have 40 connections each, and the tenth none.
	a.describe("sluice.dev/balancing: random", 9)
	testenv.Eventually(t, "nine endpoints in the kernel", func() bool { return a.share(client, at) == 0 && got() == 0 })
	a.begin()
	for i := range 360 {
		a.connect(t.Context(), i%4, true)
	}
	if a.refused > 0 || a.to["9"] > 0 {
		t.Fatalf("%d of 360 failed: %v; %v", a.refused, a.problem, a.to)
	}
	a.describe("sluice.dev/balancing: leastConnections", 10)
	testenv.Eventually(t, "a share of more than a fifth", func() bool { return a.share(client, at) > 0.2 })
	if part := got(); part < 0.17 {
		t.Errorf("the empty endpoint got %.3f of the connections", part)
	}
	stop()
}

// TestAdaptive_LostEntriesNoSuspects: no endpoint becomes a suspect when another program empties the connection table
// while clients hold connections. Connections that then reach another endpoint are reset, and the others go on.
func TestAdaptive_LostEntriesNoSuspects(t *testing.T) {
	if netnstest.Rerun(t) {
		return
	}
	a := newAdaptive(t)
	a.describe("sluice.dev/outlier: passive", 4)
	for _, mode := range testenv.Variants("nftables", "iptables") {
		client, stop := serveTested(t, a.dir, "--proxy-mode", mode, testenv.Settings(t, "balancing: {observeConnections: demo}"))
		a.begin()
		end := a.load()
		testenv.Eventually(t, mode+": answers", func() bool { a.mu.Lock(); defer a.mu.Unlock(); return len(a.to) == 4 })
		end()
		held := a.hold(120)
		flushConnections(t) // with nothing on its way, since a lost answer is nothing that its client would repeat
		end = a.load()
		alive := slices.DeleteFunc(slices.Clone(held), func(c net.Conn) bool { return !echoes(c) })
		a.begin()
		for n := 40; n <= 400; n += 40 { // for a second
			a.more(n)
			if got := a.suspects(client); got != nil {
				t.Fatalf("%s: suspects after the loss of the table: %v", mode, got)
			}
		}
		end()
		dead := len(slices.DeleteFunc(slices.Clone(alive), echoes))
		t.Logf("%s: %d of %d connections found their endpoint again", mode, len(alive), len(held))
		if len(alive) == 0 || len(alive) == len(held) || dead > 0 || a.refused > 0 {
			t.Errorf("%s: %d of %d went on, and %d of them died later; %d new ones failed: %v",
				mode, len(alive), len(held), dead, a.refused, a.problem)
		}
		stop()
	}
}

// hold opens connections, which are silent once the endpoint has said its number.
func (a *adaptive) hold(count int) (all []net.Conn) {
	a.t.Helper()
	for i := range count {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, byte(10+i%4))}, Timeout: testenv.Patience}
		c, err := d.DialContext(a.t.Context(), "tcp", a.at)
		check(a.t, err)
		a.t.Cleanup(func() { _ = c.Close() })
		var number [2]byte
		_, err = io.ReadFull(c, number[:])
		check(a.t, err)
		all = append(all, c)
	}
	return all
}

// echoes reports whether the endpoint of a silent connection repeats what its client says.
func echoes(c net.Conn) bool {
	_ = c.SetDeadline(time.Now().Add(testenv.Patience))
	var got [2]byte
	if _, err := c.Write([]byte("a\n")); err != nil {
		return false
	}
	_, err := io.ReadFull(c, got[:])
	return err == nil
}

// flushConnections empties the connection table of the network namespace, as conntrack -F does.
func flushConnections(t *testing.T) {
	t.Helper()
	const messageDelete = 2 // IPCTNL_MSG_CT_DELETE; without a tuple: all
	socket, err := netlink.Open(netlink.Config{Protocol: unix.NETLINK_NETFILTER})
	check(t, err)
	defer func() { check(t, socket.Close()) }()
	request, mark := netlink.BeginNetfilter(nil, unix.NFNL_SUBSYS_CTNETLINK, messageDelete, unix.NLM_F_ACK, unix.AF_UNSPEC)
	check(t, socket.Ask(t.Context(), netlink.Finish(request, mark), func(netlink.Message) error { return nil }))
}
