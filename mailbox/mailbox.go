// SPDX-License-Identifier: Apache-2.0

// Package mailbox has one generic type, Mailbox: it keeps the newest message per key and
// never blocks the sender. Actors, aggregators, the supervisor and conntrack use it.
package mailbox

import "sync"

// Mailbox keeps at most one waiting message per key, oldest key first.
//
// Concurrency: any number of goroutines may post; one goroutine takes. Posting
// never blocks beyond a short lock. A post under a waiting key replaces the message and
// keeps its place; the merge function combines the two. So a slow reader costs one
// message per key.
//
// If more distinct keys wait than its capacity, the mailbox drops its contents and turns
// stale: the next Take reports that, and the reader must read the current state.
//
// Invariant: 0 ≤ Len() ≤ capacity.
type Mailbox[K comparable, M any] struct {
	merge    func(older, newer M) M
	capacity int

	mu sync.Mutex
	// wake is nil until the first call of Wake: a reader that is woken otherwise needs
	// no channel.
	wake chan struct{}
	// waiting is in arrival order of the keys.
	waiting []Entry[K, M]
	// index has the positions of the keys once there are many; nil before.
	index  map[K]int
	stale  bool
	closed bool
}

// Entry is one waiting message.
type Entry[K comparable, M any] struct {
	Key     K
	Message M
}

// indexFrom is the number of waiting keys from which a map is faster than a walk. Most
// mailboxes never reach it and have no map.
const indexFrom = 16

// New makes a mailbox. The capacity counts distinct waiting keys. Merge combines a
// waiting message with a newer one for the same key; nil keeps the newer. Merge runs
// under the mailbox's lock: it must be quick and must not use the mailbox.
func New[K comparable, M any](capacity int, merge func(older, newer M) M) *Mailbox[K, M] {
	if capacity < 1 {
		panic("mailbox: capacity must be at least 1: it bounds the distinct keys that may wait")
	}
	return &Mailbox[K, M]{merge: merge, capacity: capacity}
}

// Post adds a message under a key. It reports false if the mailbox is closed.
func (b *Mailbox[K, M]) Post(key K, message M) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	if at, ok := b.find(key); ok {
		if b.merge != nil {
			message = b.merge(b.waiting[at].Message, message)
		}
		b.waiting[at].Message = message
		return true
	}
	if len(b.waiting) >= b.capacity {
		b.drop()
		b.stale = true
	} else {
		b.append(key, message)
	}
	b.signal()
	return true
}

// Take removes and returns all messages, oldest key first. Stale reports, once, that
// messages were dropped since the last call.
func (b *Mailbox[K, M]) Take() (entries []Entry[K, M], stale bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	entries, stale = b.waiting, b.stale
	b.drop()
	b.stale = false
	return entries, stale
}

// Wake fires when messages wait. It may fire once too often.
func (b *Mailbox[K, M]) Wake() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.wake == nil {
		b.wake = make(chan struct{}, 1)
		if len(b.waiting) > 0 || b.stale {
			b.signal()
		}
	}
	return b.wake
}

// MarkStale drops the waiting messages and turns the mailbox stale, for a reader that
// starts without any state.
func (b *Mailbox[K, M]) MarkStale() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drop()
	b.stale = true
	b.signal()
}

// Waits reports whether the reader has something to take: messages, or the notice that the mailbox is stale.
func (b *Mailbox[K, M]) Waits() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting) > 0 || b.stale
}

// Len returns the number of waiting keys.
func (b *Mailbox[K, M]) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting)
}

// Has reports whether a message waits under a key.
func (b *Mailbox[K, M]) Has(key K) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, waits := b.find(key)
	return waits
}

// Keys returns the waiting keys, the oldest first.
func (b *Mailbox[K, M]) Keys() []K {
	b.mu.Lock()
	defer b.mu.Unlock()
	keys := make([]K, len(b.waiting))
	for i := range b.waiting {
		keys[i] = b.waiting[i].Key
	}
	return keys
}

// CloseIfEmpty closes the mailbox unless messages wait, and reports whether it is closed
// now. It is atomic with Post: either the leaving reader sees the message, or the sender
// sees false.
func (b *Mailbox[K, M]) CloseIfEmpty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) > 0 || b.stale {
		return b.closed
	}
	b.closed = true
	return true
}

// Close rejects all further posts. Waiting messages can still be taken.
func (b *Mailbox[K, M]) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
}

// Closed reports whether the mailbox rejects posts.
func (b *Mailbox[K, M]) Closed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

func (b *Mailbox[K, M]) find(key K) (int, bool) {
	if b.index != nil {
		place, ok := b.index[key]
		return place, ok
	}
	for i := range b.waiting {
		if b.waiting[i].Key == key {
			return i, true
		}
	}
	return 0, false
}

func (b *Mailbox[K, M]) append(key K, message M) {
	b.waiting = append(b.waiting, Entry[K, M]{Key: key, Message: message})
	switch {
	case b.index != nil:
		b.index[key] = len(b.waiting) - 1
	case len(b.waiting) == indexFrom:
		b.index = make(map[K]int, 2*indexFrom)
		for i := range b.waiting {
			b.index[b.waiting[i].Key] = i
		}
	}
}

// drop forgets all waiting messages. It does not clear the entries: Take may have
// returned them.
func (b *Mailbox[K, M]) drop() {
	b.waiting, b.index = nil, nil
}

func (b *Mailbox[K, M]) signal() {
	select { // never ready without a channel
	case b.wake <- struct{}{}:
	default: // already signalled
	}
}
