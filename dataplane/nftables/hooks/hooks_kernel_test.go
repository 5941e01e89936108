// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// world is a node whose rules translate and masquerade connections to an address, and open connections from outside and
// from the node.
type world struct {
	*testing.T
	node     *netns.Namespace
	sessions []*netnstest.Session
}

func newWorld(t *testing.T, family service.Family) *world {
	t.Helper()
	server := netip.MustParseAddrPort(service.PerFamily[string]{"10.244.1.2:8080", "[fd00:10:244:1::2]:8080"}[family])
	at := netip.MustParseAddrPort(service.PerFamily[string]{"172.30.0.50:80", "[fd30::50]:80"}[family])
	network := netnstest.Build(t, netnstest.NodePlan(netnstest.Server{Name: "pod", At: server}))
	w := &world{T: t, node: network.Hosts["node"]}
	w.check(w.node.AddLinkRoute(netip.PrefixFrom(at.Addr(), at.Addr().BitLen()), "to-client"))
	h := service.PerFamily[string]{"ip", "ip6"}[family]
	dnat := fmt.Sprintf("%s daddr %s tcp dport %d dnat to %s", h, at.Addr(), at.Port(), server)
	w.nft(fmt.Sprintf("table %s t {\nchain p { type nat hook prerouting priority -100\n%s\n}\nchain o { type nat hook output priority -100\n%s\n}\n"+
		"chain s { type nat hook postrouting priority 100\nct status dnat masquerade\n}\n}", h, dnat, dnat))
	const perHost = 30
	for _, from := range []*netns.Namespace{network.Hosts["client"], w.node} {
		for range perHost {
			s, err := netnstest.Connect(t.Context(), from, at)
			w.check(err)
			t.Cleanup(func() { _ = s.Reset() })
			w.sessions = append(w.sessions, s)
		}
	}
	return w
}

func (w *world) check(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// nft runs commands in the node, and returns what they print.
func (w *world) nft(commands string) string {
	w.Helper()
	nft := exec.Command("nft", "-f", "-")
	nft.Stdin = strings.NewReader(commands)
	out, err := netnstest.Output(w.node, nft)
	if err != nil {
		w.Fatalf("nft: %v: %s", err, out)
	}
	return string(out)
}

// tables returns the names of the tables of this package.
func (w *world) tables() (all []string) {
	w.Helper()
	for _, line := range strings.Split(w.nft("list tables"), "\n") {
		if words := strings.Fields(line); len(words) == 3 && strings.HasPrefix(words[2], tablePrefix) {
			all = append(all, words[2])
		}
	}
	return all
}

// alive returns the number of sessions that still get answers.
func (w *world) alive(within time.Duration) int {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), within)
	defer cancel()
	var running sync.WaitGroup
	var n atomic.Int64
	for _, s := range w.sessions {
		running.Go(func() {
			if s.Echo(ctx, "line") == nil {
				n.Add(1)
			}
		})
	}
	running.Wait()
	return int(n.Load())
}

func (w *world) keep(h *Holder, family service.Family) {
	w.Helper()
	w.check(w.node.Do(func() error { return h.Keep(w.Context(), []service.Family{family}) }))
}

// TestKernelHolder_FlushBreaksNoConnection: while a process holds its table, which no other process can remove, open
// connections continue without any rule. A second process may hold one as well, as in a takeover, and a table is
// removed with its process.
func TestKernelHolder_FlushBreaksNoConnection(t *testing.T) {
	for _, family := range testenv.Variants(service.IPv4, service.IPv6) {
		t.Run(family.String(), func(t *testing.T) {
			w := newWorld(t, family)
			var first, second Holder
			w.keep(&first, family)
			for step, change := range []func(){
				func() {}, func() { w.keep(&second, family) }, func() { w.check(first.Close()) }, func() { w.keep(&first, family) },
			} {
				change()
				w.nft("flush ruleset")
				if n := w.alive(testenv.Patience); n != len(w.sessions) {
					t.Fatalf("step %d: %d of %d connections are alive after a flush", step, n, len(w.sessions))
				}
			}
			if all := w.tables(); len(all) != 2 {
				t.Errorf("two processes have the tables %v", all)
			}
			w.check(first.Close())
			w.check(second.Close())
			if left := w.nft("list ruleset"); left != "" {
				t.Errorf("left: %s", left)
			}
			// The control: without a table, the first packet shows that the kernel translates no more.
			w.sessions = w.sessions[:1]
			if n := w.alive(100 * time.Millisecond); n > 0 {
				t.Error("connections are alive without a table: this test proves nothing")
			}
		})
	}
}

// TestKernelHolder_LostTableAddedAgain: Keep adds a lost table again, and leaves an existing one.
func TestKernelHolder_LostTableAddedAgain(t *testing.T) {
	w := newWorld(t, service.IPv4)
	var h Holder
	w.keep(&h, service.IPv4)
	before := w.tables()
	w.keep(&h, service.IPv4)
	if now := w.tables(); !slices.Equal(now, before) {
		t.Errorf("tables %v, before %v", now, before)
	}
	lost := *h.tables[service.IPv4]
	w.check(lost.Close())
	if now := w.tables(); len(now) > 0 {
		t.Errorf("tables %v without their socket", now)
	}
	w.keep(&h, service.IPv4)
	if now := w.tables(); len(now) != 1 {
		t.Errorf("tables %v", now)
	}
	w.check(h.Close())
}
