// SPDX-License-Identifier: Apache-2.0

package balance

import (
	"net/netip"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/conntrack"
	"github.com/sluice-proxy/sluice/service"
)

const (
	// connectionsMax bounds the open connections that count, of about 300 bytes each, and serviceMax those of one Service.
	// With more, a sample counts: see sample.go.
	connectionsMax, serviceMax = 1 << 17, 1 << 14
	// waitingMax bounds the connections without an answer, and serviceWaitingMax those of one Service. At the limit, those
	// whose silence was judged are dropped; if that is not enough, new ones are not judged.
	waitingMax, serviceWaitingMax = 1 << 16, 1 << 13
	// patience is how long an endpoint has to answer the first packet.
	patience = 500 * time.Millisecond
)

// connection is one that began, or that is open.
type connection struct {
	at       netip.AddrPort
	endpoint *endpoint
	began    time.Time
	// replied is set once the endpoint answered, and judged once its silence counted.
	replied, judged bool
	// counts is set if it is one of the open connections that count.
	counts bool
	// entry identifies it for deletion. It is not set if the connection was found in the table.
	entry conntrack.Description
}

// waiting is a connection that had no answer when it began.
type waiting struct {
	of conntrack.Tuple
	by *tracked
	c  *connection
}

// handle handles one event.
func (w *worker) handle(e *conntrack.TableEvent) {
	t := w.services[e.Key]
	if t == nil || !t.follows() {
		return
	}
	of := e.Tuple()
	known := t.open[of]
	switch {
	case e.Kind == conntrack.Began:
		w.begin(t, of, e)
	case known == nil:
	case e.Kind == conntrack.Changed && !e.Closed():
		w.answered(t, of, known, e.At)
	default: // it closes or is gone
		w.end(t, of, known, e)
	}
}

// follow remembers a connection that counts, or that has no answer yet.
func (w *worker) follow(t *tracked, of conntrack.Tuple, c *connection) bool {
	w.drop(t, of)
	if c.endpoint = t.endpoints[c.at]; c.endpoint == nil {
		return false
	}
	c.counts = t.least && w.inSample(t, of)
	if !c.counts && (c.replied || !w.roomToWait(t)) {
		return false
	}
	if t.open[of] = c; c.counts {
		c.endpoint.open++
		t.counted++
		w.counted++
	} else {
		t.waiting++
		w.waiting++
	}
	return true
}

// roomToWait reports whether one more connection may wait for its answer.
func (w *worker) roomToWait(t *tracked) bool {
	if t.waiting >= serviceWaitingMax && t.silenced > t.waiting/4 {
		w.relieve(t)
	}
	if w.waiting >= waitingMax && !w.relieved {
		w.relieved = true // at most once between two ticks
		for _, other := range w.services {
			w.relieve(other)
		}
	}
	if t.waiting >= serviceWaitingMax || w.waiting >= waitingMax {
		w.partly(t)
		return false
	}
	return true
}

// relieve drops the connections whose silence was judged, so that connections of forged clients do not prevent the
// judgment of others.
func (w *worker) relieve(t *tracked) {
	for of, c := range t.open {
		if c.judged && !c.counts {
			w.drop(t, of)
		}
	}
	t.silenced = 0
}

func (w *worker) begin(t *tracked, of conntrack.Tuple, e *conntrack.TableEvent) {
	// A connection that the kernel picks up in the middle, for example because its entry was lost, may reach an endpoint
	// that does not know it. Its reset is no evidence against the endpoint, and no event reports an answer.
	judges := t.outliers != nil && of.Protocol == service.TCP.Number() && e.State == "SYN_SENT"
	if !judges && !t.least {
		return
	}
	c := &connection{at: e.Answerer, began: e.At, entry: e.Identity, replied: !judges}
	if !w.follow(t, of, c) || !judges {
		return
	}
	w.silent = append(w.silent, waiting{of, t, c})
	w.judged(t, t.outliers.began(c.at, e.At), e.At)
}

func (w *worker) answered(t *tracked, of conntrack.Tuple, c *connection, now time.Time) {
	if c.replied {
		return
	}
	c.replied = true
	if t.outliers != nil {
		w.judged(t, t.outliers.answered(of.From.Addr(), c.at, now), now)
	}
	if !c.counts {
		w.drop(t, of)
	}
}

// end handles the end of a connection. A reset in response to the first packet ends it without an answer. If the
// kernel counts packets and saw none from the endpoint, the client itself sent the reset.
func (w *worker) end(t *tracked, of conntrack.Tuple, c *connection, e *conntrack.TableEvent) {
	refused := e.Kind == conntrack.Ended && !c.replied && !e.Replied && e.State == "CLOSE" &&
		!(e.Accounted && e.Carried.PacketsOut == 0)
	if e.Replied {
		w.answered(t, of, c, e.At)
	}
	w.drop(t, of)
	if refused && !c.judged && t.outliers != nil {
		w.judged(t, t.outliers.failed(of.From.Addr(), c.at, e.At), e.At)
	}
}

// drop forgets a connection.
func (w *worker) drop(t *tracked, of conntrack.Tuple) {
	c := t.open[of]
	switch {
	case c == nil:
		return
	case c.counts:
		w.uncount(t, c)
	default:
		t.waiting--
		w.waiting--
	}
	delete(t.open, of)
}

func (w *worker) uncount(t *tracked, c *connection) {
	c.counts = false
	c.endpoint.open--
	t.counted--
	w.counted--
}

// abandon forgets the connections of a Service, and forget those of all Services.
func (w *worker) abandon(t *tracked) {
	for of := range t.open {
		w.drop(t, of)
	}
	t.thinned, t.silenced, t.complete, w.stale = 0, 0, false, true
	w.wholly(t)
}

func (w *worker) forget() {
	for _, t := range w.services {
		w.abandon(t)
	}
	w.silent = nil
}

// silence judges the connections that have waited too long for an answer. After a delay of this goroutine, it waits
// until patience has passed again, because events with answers may not have been handled yet.
func (w *worker) silence(now time.Time) {
	for len(w.silent) > 0 {
		next := w.silent[0]
		t, c := next.by, next.c
		if t.open[next.of] == c && !c.replied {
			if now.Sub(c.began) < patience || now.Sub(w.resumed) < patience {
				return
			}
			t.silenced++
			if c.judged = true; t.outliers != nil {
				w.judged(t, t.outliers.failed(next.of.From.Addr(), c.at, now), now)
				w.purgeLate(t, c.at)
			}
		}
		w.silent = w.silent[1:]
	}
	w.silent = nil
}

// found counts an open connection of the table that began before its events were received.
func (w *worker) found(key service.Key, c *conntrack.Connection) {
	of := c.Tuple()
	if t := w.services[key]; t != nil && t.least && t.open[of] == nil && c.State != "TIME_WAIT" && c.State != "CLOSE" {
		w.follow(t, of, &connection{at: c.Answerer, replied: true})
	}
}
