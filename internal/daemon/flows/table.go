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
	// begunMax bounds the connections that are remembered, of about 200 bytes each, and pendingMax packets that may
	// not be served.
	begunMax, pendingMax = 1 << 16, 1 << 13
	// patience is how long after its first packet a connection has to exist. Packets that wait for the address of the
	// next hop take up to a second.
	patience = 1500 * time.Millisecond
)

// table has connections that began, and packets that may not have been served.
type table struct {
	begun   map[conntrack.Tuple]begun
	pending map[conntrack.Tuple]pending
	// blind is until when packets say nothing, because events were lost.
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

// remember remembers a connection. Without room, those that are older than the samples that wait are forgotten, and so
// the times at which they began; it returns false if there are too many new ones.
func (t *table) remember(of conntrack.Tuple, b begun, now time.Time) bool {
	if _, is := t.begun[of]; !is && len(t.begun) >= begunMax {
		maps.DeleteFunc(t.begun, func(_ conntrack.Tuple, old begun) bool { return now.Sub(old.start) > patience })
	}
	t.begun[of] = b
	return len(t.begun) <= begunMax
}

// forget is for lost events: what is remembered may be wrong.
func (t *table) forget(now time.Time) {
	clear(t.begun)
	clear(t.pending)
	t.blind = now.Add(patience)
}

// handle handles one announcement.
func (w *watcher) handle(a *announced) {
	t := &w.table
	known, is := t.begun[a.tuple]
	switch {
	case a.packet:
		w.packet(a, is)
	case a.event.Kind == conntrack.Began:
		delete(t.pending, a.tuple)
		if !t.remember(a.tuple, begun{start: a.at}, a.at) {
			t.forget(a.at)
			w.missed(1)
		}
	case a.event.Kind == conntrack.Changed && !known.recorded:
		w.closed(a, known.start)
		t.remember(a.tuple, begun{start: known.start, recorded: true}, a.at)
	case a.event.Kind == conntrack.Ended:
		// A connection that was closed before anyone listened has no record now.
		if late := !is && (a.event.State == "TIME_WAIT" || a.event.State == "CLOSE"); !known.recorded && !late {
			w.closed(a, known.start)
		}
		if is {
			known.recorded, known.ended = true, a.at
			t.begun[a.tuple] = known
		}
	}
}

func (w *watcher) packet(a *announced, begun bool) {
	t := &w.table
	p, is := t.pending[a.tuple]
	switch {
	case begun || a.at.Before(t.blind):
	case is:
		p.attempts++
		t.pending[a.tuple] = p
	case len(t.pending) >= pendingMax:
		w.missed(1)
	default:
		t.pending[a.tuple] = pending{a.key, a.at, 1}
	}
}

// closed makes the record of a connection. There is none of an untranslated connection to a node port: it went to
// another node, or to a process. Those to localhost may be forwarded by this process.
func (w *watcher) closed(a *announced, start time.Time) {
	e := &a.event
	if e.Answerer == e.To && !e.To.Addr().IsLoopback() && !w.has(a) {
		return
	}
	flow := w.flow(a, traffic.Closed)
	flow.Start, flow.End, flow.Counted = start, a.at, e.Accounted
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

// has reports whether the Service has the destination itself, rather than its port on addresses of the node.
func (w *watcher) has(a *announced) bool {
	f, _ := a.tuple.Frontend()
	return slices.Contains(frontends(a.event.Family, w.config.Snapshot(a.key).Spec), f)
}

func (w *watcher) flow(a *announced, verdict traffic.Verdict) traffic.Flow {
	f, _ := a.tuple.Frontend()
	port := ""
	if spec := w.config.Snapshot(a.key).Spec; spec != nil { // it may be deleted
		for _, p := range spec.Ports {
			if p.Protocol == f.Protocol && (p.Port == f.Port || p.NodePort == f.Port) {
				port = p.Name
				break
			}
		}
	}
	return traffic.Flow{
		Time: a.at, Verdict: verdict, Namespace: a.key.Namespace, Name: a.key.Name, Port: port,
		Protocol: f.Protocol.String(), Client: a.tuple.From, Frontend: a.tuple.To,
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
		a := announced{tuple: of, key: p.key, at: now}
		f, _ := of.Frontend()
		if views[p.key] == nil {
			views[p.key] = w.view(p.key)
		}
		verdict, reason := why(views[p.key], f, of.From.Addr())
		flow := w.flow(&a, verdict)
		flow.Reason, flow.Start, flow.Attempts = reason, p.first, p.attempts
		w.Put(&flow)
	}
	for of, b := range t.begun {
		if !b.ended.IsZero() && now.Sub(b.ended) > patience {
			delete(t.begun, of)
		}
	}
}
