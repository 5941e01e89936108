package iptables

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// canaryTool knows which tables have a canary.
type canaryTool struct {
	scriptedTool
	canaries map[Table]bool
	err      error
	looks    int
}

func (m *canaryTool) HasChain(_ context.Context, table Table, chain string) (bool, error) {
	m.looks++
	return m.canaries[table] && chain == chainCanary, m.err
}

// runWatch runs a test while Watch checks the canaries once a second. A step of the test changes
// something in the kernel, lets Watch check once, and returns the number of reports.
func runWatch(t *testing.T, tool Tool, body func(step func(change func()) (reports int))) {
	t.Helper()
	runWatchIn(t, OwnTerritory(), tool, body)
}

func runWatchIn(t *testing.T, territory Territory, tool Tool, body func(step func(change func()) (reports int))) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w := NewWriter(service.IPv4, tool, WriterConfig{WatchInterval: time.Second, Territory: territory})
		reports := 0
		ended := make(chan error)
		go func() { ended <- w.Watch(ctx, func(dataplane.Stranger) { reports++ }) }()
		synctest.Wait() // the first look is at once
		body(func(change func()) int {
			// Watch waits for the turn with the tool.
			if err := w.acquire(ctx); err != nil {
				t.Fatal(err)
			}
			reports = 0
			change()
			w.release()
			time.Sleep(time.Second)
			synctest.Wait()
			return reports
		})
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Watch ended with %v", err)
		}
	})
}

func noChange() {}

func inAllTables(there bool) map[Table]bool {
	return map[Table]bool{Mangle: there, Filter: there, NAT: there}
}

func TestWatchTellsOfEachTable(t *testing.T) {
	m := &canaryTool{canaries: inAllTables(false)}
	runWatch(t, m, func(step func(func()) int) {
		expect := func(when string, want int, change func()) {
			t.Helper()
			if got := step(change); got != want {
				t.Errorf("%s: reported %d times, want %d", when, got, want)
			}
		}
		expect("before the first write", 0, noChange)
		expect("after the first write", 0, func() { m.canaries = inAllTables(true) })
		expect("unchanged", 0, noChange)
		for _, table := range []Table{Mangle, Filter, NAT} {
			expect("flushed "+string(table), 1, func() { m.canaries[table] = false })
			expect("not yet written again", 0, noChange)
			expect("written again", 0, func() { m.canaries[table] = true })
		}
		expect("flushed, lock held", 0, func() { m.canaries, m.err = inAllTables(false), errors.New("the lock is held") })
		expect("lock free again", 3, func() { m.err = nil })
	})
}

func TestWatchByListingWhereNothingBetterIsOffered(t *testing.T) {
	full := map[Table]string{}
	for _, name := range []Table{Mangle, Filter, NAT} {
		full[name] = savedTable(name, ":"+chainCanary+" - [0:0]")
	}
	tool := &scriptedTool{saves: full}
	runWatch(t, tool, func(step func(func()) int) {
		if got := step(noChange); got != 0 {
			t.Errorf("reported %d times of nothing", got)
		}
		got := step(func() {
			tool.saves = map[Table]string{Mangle: full[Mangle], Filter: savedTable(Filter, ":INPUT ACCEPT [0:0]")}
		})
		if got != 2 {
			t.Errorf("reported %d times of two flushed tables", got)
		}
	})
}

func TestWatchWaitsForItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		m := &canaryTool{}
		w := NewWriter(service.IPv4, m, WriterConfig{})
		if err := w.acquire(ctx); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error)
		go func() { ended <- w.Watch(ctx, func(dataplane.Stranger) {}) }()
		time.Sleep(time.Minute)
		synctest.Wait()
		if m.looks != 0 {
			t.Errorf("looked %d times while the tool was in use", m.looks)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Watch ended with %v", err)
		}
	})
}

// TestAuthors covers the orders in which a process can start, be announced and end.
func TestAuthors(t *testing.T) {
	a := newAuthors()
	now := time.Unix(1000, 0)
	foreign := func(port uint32, after time.Duration, want bool) {
		t.Helper()
		if got := a.foreign(port, dataplane.Stranger{PID: int(port)}, now.Add(after)); got != want {
			t.Errorf("port %d after %v: foreign %v, want %v", port, after, got, want)
		}
	}
	end := func(want ...dataplane.Stranger) {
		t.Helper()
		if got := a.end(now); !slices.Equal(got, want) {
			t.Errorf("strangers during the write: %v, want %v", got, want)
		}
	}
	foreign(7, 0, true) // nothing is written
	a.started(8)        // a process that does not write
	foreign(8, 0, true)

	a.begin()
	foreign(9, 0, false) // heard before it is known to be ours
	a.started(9)
	a.started(10)
	end()
	foreign(9, ownAfterwards-1, false)
	foreign(10, ownAfterwards-1, false)
	foreign(10, ownAfterwards, true) // by now the ID may belong to another program

	a.begin()
	a.started(11)
	foreign(11, 0, false)
	foreign(12, 0, false) // said at the end
	end(dataplane.Stranger{PID: 12})
	foreign(12, 0, true)

	a.begin()
	if a.missed() {
		t.Error("a loss during a write is reported before the write ends")
	}
	end(dataplane.Stranger{})
	a.begin()
	end()
	if !a.missed() {
		t.Error("a loss is not reported")
	}
	now = now.Add(time.Minute)
	a.begin()
	end()
	if len(a.own) != 0 || len(a.heard) != 0 {
		t.Errorf("it remembers %v and %v", a.own, a.heard)
	}
}
