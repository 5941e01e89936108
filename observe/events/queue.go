// SPDX-License-Identifier: Apache-2.0

package events

import (
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-proxy/sluice/service"
)

// entry is an event that waits to be sent.
type entry struct {
	// key is the Service that the event is about, service.Node for the Node.
	key service.Key
	// related is a second object; it may be nil.
	related                    runtime.Object
	kind, reason, action, note string
	// shared is set if every node finds the same, so that only one reports it.
	shared bool
	// due is when to look at the event, and expires when to give up the search for the node that
	// reports it.
	due, expires time.Time
}

const (
	// queueMax and shareMax bound the waiting events about Services: all together, and of one namespace. The Node has a
	// separate share.
	queueMax = 250
	shareMax = 25
)

// queue holds the events that wait. It never blocks the caller of add: it drops events beyond its bounds.
//
// Concurrency: add may be called by anyone, next by one goroutine.
type queue struct {
	mu      sync.Mutex
	waiting []entry
	shares  map[string]int // by namespace; "" for the Node

	dropped atomic.Uint64
	// added gets a value, if there is room, after an entry was added.
	added chan struct{}
}

func newQueue() *queue {
	return &queue{shares: map[string]int{}, added: make(chan struct{}, 1)}
}

// add appends an entry, or drops and counts it.
func (q *queue) add(e entry) {
	if !q.put(e) {
		q.dropped.Add(1)
		return
	}
	select {
	case q.added <- struct{}{}:
	default:
	}
}

func (q *queue) put(e entry) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	share := e.key.Namespace
	full := share != "" && len(q.waiting)-q.shares[""] >= queueMax
	if full || q.shares[share] >= shareMax {
		return false
	}
	q.shares[share]++
	q.waiting = append(q.waiting, e)
	return true
}

// next takes the oldest entry that is due; those about the Node come first. Without one it returns
// how long to wait for the next.
func (q *queue) next(now time.Time) (e entry, found bool, wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	at, wait := -1, time.Hour
	for i := range q.waiting {
		w := &q.waiting[i]
		if left := w.due.Sub(now); left > 0 {
			wait = min(wait, left)
			continue
		}
		if w.key == service.Node {
			at = i
			break
		}
		if at < 0 {
			at = i
		}
	}
	if at < 0 {
		return entry{}, false, wait
	}
	e = q.waiting[at]
	copy(q.waiting[at:], q.waiting[at+1:])
	q.waiting[len(q.waiting)-1] = entry{} // so that nothing holds its texts
	q.waiting = q.waiting[:len(q.waiting)-1]
	if q.shares[e.key.Namespace]--; q.shares[e.key.Namespace] == 0 {
		delete(q.shares, e.key.Namespace)
	}
	return e, true, 0
}
