// SPDX-License-Identifier: Apache-2.0

package events

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

func of(namespace string) entry {
	return entry{key: service.Key{Namespace: namespace, Name: "a"}, note: namespace}
}

// TestQueue_Bounded: the queue limits the events of a namespace and of all namespaces, reserves a share for the Node,
// and counts dropped events.
func TestQueue_Bounded(t *testing.T) {
	q := newQueue()
	for range shareMax + 5 {
		q.add(of("tenant"))
	}
	if waits, dropped := len(q.waiting), q.dropped.Load(); waits != shareMax || dropped != 5 {
		t.Errorf("%d events of one namespace wait, %d were dropped; want %d and 5", waits, dropped, shareMax)
	}
	for i := range queueMax {
		q.add(of(fmt.Sprint("tenant-", i)))
	}
	if waits, dropped := len(q.waiting), q.dropped.Load(); waits != queueMax || dropped != 5+shareMax {
		t.Errorf("%d events wait, %d were dropped; want %d and %d", waits, dropped, queueMax, 5+shareMax)
	}
	for range shareMax + 1 {
		q.add(entry{key: service.Node})
	}
	if waits, dropped := len(q.waiting), q.dropped.Load(); waits != queueMax+shareMax || dropped != 5+shareMax+1 {
		t.Errorf("with the Node's %d events wait, %d were dropped; want %d and %d", waits, dropped, queueMax+shareMax, 5+shareMax+1)
	}
	// What leaves makes room.
	for range shareMax {
		if e, found, _ := q.next(time.Now()); !found || e.key != service.Node {
			t.Fatalf("%v, %v comes first, want the Node", e.key, found)
		}
	}
	if e, _, _ := q.next(time.Now()); e.note != "tenant" {
		t.Errorf("%q comes next, want the oldest", e.note)
	}
	q.add(of("tenant"))
	if dropped := q.dropped.Load(); dropped != 5+shareMax+1 {
		t.Errorf("%d were dropped although there was room", dropped-5-shareMax-1)
	}
	for range queueMax {
		if _, found, _ := q.next(time.Now()); !found {
			t.Fatal("an event is lost")
		}
	}
	if _, found, _ := q.next(time.Now()); found || len(q.shares) != 0 {
		t.Errorf("an empty queue has an event: %v, or shares: %v", found, q.shares)
	}
}

// TestQueue_WaitsUntilDue: the queue returns events in the order in which they are due, and none before.
func TestQueue_WaitsUntilDue(t *testing.T) {
	q, now := newQueue(), time.Now()
	late, later := of("late"), of("later")
	late.due, later.due = now.Add(time.Second), now.Add(2*time.Second)
	q.add(later)
	q.add(late)
	if e, found, wait := q.next(now); found || wait != time.Second {
		t.Errorf("%v %v, wait %v; want nothing for 1s", e.key, found, wait)
	}
	q.add(of("now"))
	for i, want := range []string{"now", "late"} {
		if e, found, _ := q.next(now.Add(time.Duration(i) * time.Second)); !found || e.note != want {
			t.Errorf("%q %v, want %q", e.note, found, want)
		}
	}
}

// TestRecorder_OneNodeReports: only the node that Reporter names reports an event that follows from API objects alone.
// Until Reporter names a node, the event waits for a limited time.
func TestRecorder_OneNodeReports(t *testing.T) {
	node := ""
	r := &Recorder{queue: newQueue(), config: Config{Node: "node-1", Reporter: func(service.Key) string { return node }}}
	now := time.Now()
	e := of("ns")
	if !r.reports(e) {
		t.Error("an event about this node alone waits for another node")
	}
	e.shared, e.expires = true, now.Add(reporterWait)
	if r.reports(e) || len(r.queue.waiting) != 1 {
		t.Fatalf("without endpoints the event must wait; %d wait", len(r.queue.waiting))
	}
	if _, found, wait := r.queue.next(now); found || wait < reporterRetry/2 || wait > reporterRetry+time.Minute {
		t.Errorf("found %v, wait %v; want about %v", found, wait, reporterRetry)
	}
	e, found, _ := r.queue.next(now.Add(reporterRetry + time.Minute))
	node = "node-2"
	if !found || r.reports(e) || len(r.queue.waiting) != 0 {
		t.Error("this node reports what another one does")
	}
	if node = "node-1"; !r.reports(e) {
		t.Error("this node must report")
	}
	if dropped := r.Dropped(); dropped != 0 {
		t.Errorf("%d counted as dropped", dropped)
	}
	node, e.expires = "", now
	if r.reports(e) || len(r.queue.waiting) != 0 || r.Dropped() != 1 {
		t.Errorf("an event without a reporting node must be dropped in the end; %d wait, %d dropped", len(r.queue.waiting), r.Dropped())
	}
}
