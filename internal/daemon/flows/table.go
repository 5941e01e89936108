// SPDX-License-Identifier: Apache-2.0

package flows

import (
	"maps"
	"slices"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/conntrack"
	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/service"
)

const (
	// begunMax bounds the connections that are remembered, of about 200 bytes each, and pendingMax the packets that may
	// not have been served.
	begunMax, pendingMax = 1 << 16, 1 << 13
	// patience is the time after a first packet within which its connection must begin. Resolving the next hop's address
	// can take up to a second of it.
	patience = 1500 * time.Millisecond
)

// table contains connections that began, and packets that may not have been served.
type table struct {
	begun   map[conntrack.Tuple]begun
	pending map[conntrack.Tuple]pending
	// blind is the time until which packets are ignored, because events were lost.
	blind time.Time
}

type begun struct {
	start time.Time
	// recorded is set once there is a record. ended is when the connection ended.
	recorded bool
	ended    time.Time
}

type pending struct {
	key      service.Key
	first    time.Time
	attempts int
}

func newTable() table {
	return table{begun: map[conntrack.Tuple]begun{}, pending: map[conntrack.Tuple]pending{}}
}

// remember remembers a connection. If there is no room, it forgets the connections that are older than any pending
// packet, and with them their start times. It returns false if there are still too many.
func (t *table) remember(of conntrack.Tuple, b begun, now time.Time) bool {
	if _, is := t.begun[of]; !is && len(t.begun) >= begunMax {
		maps.DeleteFunc(t.begun, func(_ conntrack.Tuple, old begun) bool { return now.Sub(old.start) > patience })
	}
	t.begun[of] = b
	return len(t.begun) <= begunMax
}

// forget clears the table after events were lost, because its content may be wrong.
func (t *table) forget(now time.Time) {
	clear(t.begun)
	clear(t.pending)
	t.blind = now.Add(patience)
}

// lost handles a loss of events.
func (w *watcher) lost(now time.Time) {
	w.table.forget(now)
	w.missed(1)
}

// handle handles one event.
func (w *watcher) handle(e *conntrack.TableEvent) {
	t, of := &w.table, e.Tuple()
	known, is := t.begun[of]
	switch {
	case e.Kind == conntrack.Began:
		delete(t.pending, of)
		if !t.remember(of, begun{start: e.At}, e.At) {
			w.lost(e.At)
		}
	case e.Kind == conntrack.Changed && e.Closed() && !known.recorded:
		w.closed(e, known.start)
		t.remember(of, begun{start: known.start, recorded: true}, e.At)
	case e.Kind == conntrack.Ended:
		// A connection that closed before the watcher subscribed gets no record.
		if late := !is && e.Closed(); !known.recorded && !late {
			w.closed(e, known.start)
		}
		if is {
			known.recorded, known.ended = true, e.At
			t.begun[of] = known
		}
	}
}

// packet handles a packet to a Service.
func (w *watcher) packet(e *conntrack.TableEvent) {
	t, of := &w.table, e.Tuple()
	_, begun := t.begun[of]
	p, is := t.pending[of]
	switch {
	case begun || e.At.Before(t.blind):
	case is:
		p.attempts++
		t.pending[of] = p
	case len(t.pending) >= pendingMax:
		w.missed(1)
	default:
		t.pending[of] = pending{e.Key, e.At, 1}
	}
}

// closed makes the record of a connection. An untranslated connection to a node port gets none, because it went to
// another node or to another process, except on localhost, where this process may forward it.
func (w *watcher) closed(e *conntrack.TableEvent, start time.Time) {
	if e.Answerer == e.To && !e.To.Addr().IsLoopback() && !w.has(e) {
		return
	}
	flow := w.flow(e, traffic.Closed)
	flow.Start, flow.End, flow.Counted = start, e.At, e.Accounted
	flow.PacketsIn, flow.PacketsOut, flow.BytesIn, flow.BytesOut = e.Carried.PacketsIn, e.Carried.PacketsOut, e.Carried.BytesIn, e.Carried.BytesOut
	if e.Answerer != e.To {
		flow.Endpoint = e.Answerer
	}
	switch {
	case e.Replied:
	case e.State == "CLOSE":
		flow.Reason = traffic.EndpointRefused
	default:
		flow.Reason = traffic.Unanswered
	}
	w.Put(&flow)
}

// has reports whether the destination is an address and port of the Service, rather than its node port.
func (w *watcher) has(e *conntrack.TableEvent) bool {
	f, _ := e.Tuple().Frontend()
	return slices.Contains(frontends(e.Family, w.config.Snapshot(e.Key).Spec), f)
}

func (w *watcher) flow(e *conntrack.TableEvent, verdict traffic.Verdict) traffic.Flow {
	f, _ := e.Tuple().Frontend()
	port := ""
	if spec := w.config.Snapshot(e.Key).Spec; spec != nil { // it may be deleted
		for _, p := range spec.Ports {
			if p.Protocol == f.Protocol && (p.Port == f.Port || p.NodePort == f.Port) {
				port = p.Name
				break
			}
		}
	}
	return traffic.Flow{
		Time: e.At, Verdict: verdict, Namespace: e.Key.Namespace, Name: e.Key.Name, Port: port,
		Protocol: f.Protocol.String(), Client: e.From, Frontend: e.To,
	}
}

// unserved makes records of packets after which no connection began, and forgets connections that have ended. It resolves
// each Service once, however many packets there are.
func (w *watcher) unserved(now time.Time) {
	t, views := &w.table, map[service.Key]*service.View{}
	for of, p := range t.pending {
		if now.Sub(p.first) < patience {
			continue
		}
		delete(t.pending, of)
		e := conntrack.TableEvent{Connection: conntrack.Connection{Protocol: of.Protocol, From: of.From, To: of.To}, Key: p.key, At: now}
		f, _ := of.Frontend()
		if views[p.key] == nil {
			views[p.key] = w.view(p.key)
		}
		verdict, reason := why(views[p.key], f, of.From.Addr())
		flow := w.flow(&e, verdict)
		flow.Reason, flow.Start, flow.Attempts = reason, p.first, p.attempts
		w.Put(&flow)
	}
	for of, b := range t.begun {
		if !b.ended.IsZero() && now.Sub(b.ended) > patience {
			delete(t.begun, of)
		}
	}
}
