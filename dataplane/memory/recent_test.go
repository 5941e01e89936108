package memory

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// sticky has two endpoints and ClientIP affinity of 10 seconds.
const sticky = `*nat
:SVC - [0:0]
:SEP-A - [0:0]
:SEP-B - [0:0]
-A PREROUTING -j SVC
-A SVC -m recent --name A --rcheck --seconds 10 --reap -j SEP-A
-A SVC -m recent --name B --rcheck --seconds 10 --reap -j SEP-B
-A SVC -m statistic --mode random --probability 0.5 -j SEP-A
-A SVC -j SEP-B
-A SEP-A -m recent --name A --set -m tcp -p tcp -j DNAT --to-destination 10.1.0.1:1
-A SEP-B -m recent --name B --set -m tcp -p tcp -j DNAT --to-destination 10.1.0.2:1
COMMIT
`

func stickyKernel(t *testing.T) (*Kernel, *fixedClock) {
	t.Helper()
	k := restored(t, sticky)
	clock := &fixedClock{at: time.Unix(1000, 0)}
	k.SetClock(clock.now)
	return k, clock
}

var client = tcp("10.0.0.1", "10.9.9.9:1", "a")

func certain(float64) bool { return true }

func TestChoiceIsRememberedForTheTimeout(t *testing.T) {
	k, clock := stickyKernel(t)
	if got := len(k.Outcomes(client)); got != 2 {
		t.Fatalf("before the first connection: %d outcomes, want 2", got)
	}
	for range 5 { // each connection begins the timeout again
		if got := k.Trace(client, certain).To.String(); got != "10.1.0.1:1" {
			t.Fatalf("went to %s, want 10.1.0.1:1", got)
		}
		clock.at = clock.at.Add(10 * time.Second)
		if outcomes := k.Outcomes(client); len(outcomes) != 1 || outcomes[0].To.String() != "10.1.0.1:1" {
			t.Fatalf("within the timeout: %+v, want the endpoint of before", outcomes)
		}
	}
	clock.at = clock.at.Add(time.Nanosecond)
	if got := len(k.Outcomes(client)); got != 2 {
		t.Errorf("after the timeout: %d outcomes, want 2", got)
	}
}

func TestOutcomesRememberNothing(t *testing.T) {
	k, _ := stickyKernel(t)
	k.Outcomes(client)
	if got := len(k.Outcomes(client)); got != 2 {
		t.Errorf("%d outcomes after asking for outcomes, want 2", got)
	}
}

func TestClientsAreRememberedApart(t *testing.T) {
	k, _ := stickyKernel(t)
	k.Trace(client, certain)
	if got := len(k.Outcomes(tcp("10.0.0.2", "10.9.9.9:1", "a"))); got != 2 {
		t.Errorf("another client: %d outcomes, want 2", got)
	}
}

func TestMemoryOutlivesRewritingItsRules(t *testing.T) {
	k, _ := stickyKernel(t)
	k.Trace(client, certain)
	again := strings.ReplaceAll(sticky, "-A PREROUTING -j SVC\n", "")
	if err := k.Restore(context.Background(), []byte(again)); err != nil {
		t.Fatal(err)
	}
	if got := len(k.Outcomes(client)); got != 1 {
		t.Errorf("after rewriting the chains: %d outcomes, want 1", got)
	}
}

func TestMemoryEndsWithItsLastRule(t *testing.T) {
	k, _ := stickyKernel(t)
	k.Trace(client, certain)
	for _, input := range []string{"*nat\n:SVC - [0:0]\n:SEP-A - [0:0]\n:SEP-B - [0:0]\nCOMMIT\n",
		strings.ReplaceAll(sticky, "-A PREROUTING -j SVC\n", "")} {
		if err := k.Restore(context.Background(), []byte(input)); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(k.Outcomes(client)); got != 2 {
		t.Errorf("after a moment without rules: %d outcomes, want 2", got)
	}
}

func TestListHoldsAHundredClients(t *testing.T) {
	book := newRecentBook()
	at := time.Unix(1000, 0)
	addr := func(i int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf("10.0.%d.%d", i/256, i%256)) }
	for i := range 100 {
		book.remember("L", addr(i), at)
	}
	book.remember("L", addr(0), at) // moves to the end
	book.remember("L", addr(100), at)
	for i, want := range map[int]bool{0: true, 1: false, 2: true, 100: true} {
		if got := book.seen("L", addr(i), at); got != want {
			t.Errorf("client %d: seen %v, want %v", i, got, want)
		}
	}
}

func TestReapForgetsTheOldest(t *testing.T) {
	book := newRecentBook()
	at := time.Unix(1000, 0)
	old, young := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	book.remember("L", old, at)
	book.remember("L", young, at.Add(time.Minute))
	forked := book.fork()
	for range 3 {
		forked.reap("L", at.Add(time.Second))
	}
	if forked.seen("L", old, time.Time{}) || !forked.seen("L", young, time.Time{}) {
		t.Error("reaping should forget the old client and keep the young one")
	}
	if !book.seen("L", old, time.Time{}) {
		t.Error("reaping a fork reached the original")
	}
}

func TestFlushForgetsLists(t *testing.T) {
	k, _ := stickyKernel(t)
	k.Trace(client, certain)
	k.Flush()
	if len(k.recent.lists) != 0 || len(k.names) != 0 {
		t.Errorf("lists %v, counts %v; want none", k.recent.lists, k.names)
	}
	if got := k.Trace(client, certain).Verdict; got != Untouched {
		t.Errorf("after the flush: %v, want untouched", got)
	}
}
