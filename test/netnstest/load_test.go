// SPDX-License-Identifier: Apache-2.0

package netnstest

import (
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/test/testenv"
)

// noted collects exchanges.
type noted struct {
	mu  sync.Mutex
	all []Exchange
}

func (n *noted) note(e Exchange) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, e)
}

func (n *noted) count(is func(Exchange) bool) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(slices.DeleteFunc(slices.Clone(n.all), func(e Exchange) bool { return !is(e) }))
}

// TestLoad_ReportsLosses: a load reports each kind of exchange that fails.
func TestLoad_ReportsLosses(t *testing.T) {
	host := New(t, "n")
	at := netip.MustParseAddrPort("127.0.0.1:8080")
	b, err := StartBackend(host, "b", at)
	if err != nil {
		t.Fatal(err)
	}
	var seen noted
	config := LoadConfig{
		Client: host, Targets: []Target{{"tcp", at}, {"udp", at}},
		Pause: time.Millisecond, TalkPause: time.Millisecond, Patience: time.Second, Note: seen.note,
	}
	load, err := StartLoad(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	// Every kind of exchange goes well, fails, and goes well again.
	kinds := []func(Exchange) bool{
		func(e Exchange) bool { return e.Target == 0 && !e.Session },
		func(e Exchange) bool { return e.Target == 0 && e.Session },
		func(e Exchange) bool { return e.Target == 1 },
	}
	await := func(fits func(Exchange) bool) {
		t.Helper()
		for _, kind := range kinds {
			testenv.Eventually(t, "an exchange of each kind", func() bool {
				return seen.count(func(e Exchange) bool { return kind(e) && fits(e) }) > 0
			})
		}
	}
	await(func(e Exchange) bool { return e.Err == nil && e.Answer.Backend == "b" })
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	await(func(e Exchange) bool { return e.Err != nil })
	again := time.Now()
	Serve(t, host, "b", at)
	await(func(e Exchange) bool { return e.Err == nil && e.Began.After(again) })
	load.Stop()
	total := seen.count(func(Exchange) bool { return true })
	time.Sleep(10 * time.Millisecond)
	if now := seen.count(func(Exchange) bool { return true }); now != total {
		t.Errorf("%d exchanges after the load was stopped", now-total)
	}
	config.Targets = []Target{{"tcp", netip.MustParseAddrPort("127.0.0.1:1")}}
	if _, err := StartLoad(t.Context(), config); err == nil {
		t.Error("the load started without a session")
	}
}
