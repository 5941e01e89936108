// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
)

func newest(older, newer int) int { return newer }

// TestMailbox_PostReplacesInPlace: a message for the same key merges with the waiting one and keeps its place.
func TestMailbox_PostReplacesInPlace(t *testing.T) {
	b := New[string](8, func(older, newer int) int { return older*10 + newer })
	b.Post("a", 1)
	b.Post("b", 2)
	b.Post("a", 3)
	if !b.Has("a") || b.Has("c") {
		t.Error("Has does not tell what waits")
	}
	entries, stale := b.Take()
	if stale || len(entries) != 2 {
		t.Fatalf("got %v, stale %v", entries, stale)
	}
	if entries[0] != (Entry[string, int]{"a", 13}) || entries[1] != (Entry[string, int]{"b", 2}) {
		t.Fatalf("merged or ordered wrongly: %v", entries)
	}
}

// TestMailbox_MessagesKeepOrder: Take returns messages in the order in which their keys were first posted, with few and
// many keys.
func TestMailbox_MessagesKeepOrder(t *testing.T) {
	for _, count := range []int{5, indexFrom + 5} {
		b := New[int](100, newest)
		for round := range 2 { // the second one has what the first one left
			for i := range count {
				b.Post(i, i)
			}
			b.Post(4, 40)
			entries, _ := b.Take()
			if len(entries) != count || entries[4] != (Entry[int, int]{4, 40}) || entries[count-1].Key != count-1 {
				t.Fatalf("count %d, round %d: %v", count, round, entries)
			}
		}
	}
}

// TestMailbox_OverCapacityTurnsStale: a mailbox over its capacity drops its messages and becomes stale. It does not
// close as empty, and Take reports the staleness once.
func TestMailbox_OverCapacityTurnsStale(t *testing.T) {
	b := New[int](4, newest)
	for i := range 5 {
		b.Post(i, i)
	}
	if b.Len() != 0 {
		t.Fatalf("%d messages kept past the capacity", b.Len())
	}
	if b.CloseIfEmpty() {
		t.Fatal("a stale mailbox has something to say and must not close as empty")
	}
	b.Post(7, 7)
	entries, stale := b.Take()
	if !stale || len(entries) != 1 {
		t.Fatalf("got %v, stale %v", entries, stale)
	}
	if _, stale := b.Take(); stale {
		t.Fatal("staleness reported twice")
	}
}

// TestMailbox_CloseIfEmptyAtomicWithPost: when Post and CloseIfEmpty run at the same time, exactly one of them
// succeeds.
func TestMailbox_CloseIfEmptyAtomicWithPost(t *testing.T) {
	for range 500 {
		b := New[int](4, newest)
		var accepted, closed bool
		var both sync.WaitGroup
		both.Go(func() { accepted = b.Post(1, 1) })
		both.Go(func() { closed = b.CloseIfEmpty() })
		both.Wait()
		if accepted == closed {
			t.Fatalf("accepted %v and closed %v: sender and owner missed each other", accepted, closed)
		}
	}
}

// TestMailbox_WakeForEachReason: Wake fires once for waiting messages and once for staleness, and not after Take
// emptied the mailbox.
func TestMailbox_WakeForEachReason(t *testing.T) {
	b := New[int](4, newest)
	woken := func() bool {
		select {
		case <-b.Wake():
			return true
		default:
			return false
		}
	}
	if woken() {
		t.Fatal("woken by nothing")
	}
	b.Post(1, 1)
	b.Post(2, 2)
	if !woken() || woken() {
		t.Fatal("two posts must fire once")
	}
	if b.Take(); woken() {
		t.Fatal("nothing is left to take")
	}
	b.MarkStale()
	if !woken() {
		t.Fatal("staleness must fire")
	}
}

// TestMailbox_ReaderEndsWithNewestPerKey: with several senders, a reader ends with the newest message of every key and
// never sees an older one after a newer one.
func TestMailbox_ReaderEndsWithNewestPerKey(t *testing.T) {
	for round := range 50 {
		b := New[string](64, newest)
		const senders, posts, keys = 4, 200, 30
		seen := map[string]int{}
		done := make(chan struct{})
		var sending sync.WaitGroup
		for s := range senders {
			sending.Go(func() {
				random := rand.New(rand.NewPCG(uint64(round), uint64(s)))
				for i := range posts {
					// One sender per key, as in the pipeline: its order counts.
					b.Post(fmt.Sprintf("%d/%d", s, random.IntN(keys/senders)), i)
				}
			})
		}
		go func() { sending.Wait(); close(done) }()
		take := func() {
			entries, _ := b.Take()
			for _, e := range entries {
				if last, ok := seen[e.Key]; ok && e.Message < last {
					t.Errorf("round %d: key %s went back from %d to %d", round, e.Key, last, e.Message)
				}
				seen[e.Key] = e.Message
			}
		}
		for running := true; running || b.Len() > 0; {
			select {
			case <-b.Wake():
			case <-done:
				running = false
			}
			take()
		}
		for s := range senders {
			random := rand.New(rand.NewPCG(uint64(round), uint64(s)))
			want := map[string]int{}
			for i := range posts {
				want[fmt.Sprintf("%d/%d", s, random.IntN(keys/senders))] = i
			}
			for key, value := range want {
				if seen[key] != value {
					t.Fatalf("round %d: key %s: saw %d, newest is %d", round, key, seen[key], value)
				}
			}
		}
	}
}
