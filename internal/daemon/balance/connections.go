package balance

import (
	"net/netip"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/conntrack"
	"github.com/sluice-proxy/sluice/service"
)

const (
	// connectionsMax bounds the connections that are followed, of about 300 bytes each, and serviceMax those of one
	// Service. Further ones are not counted.
	connectionsMax, serviceMax = 1 << 17, 1 << 14
	// patience is how long an endpoint has for its answer to the first packet.
	patience = 500 * time.Millisecond
)

// tuple is how a client names its connection.
type tuple struct {
	protocol uint8
	from, to netip.AddrPort
}

// connection is one that began, or that is open.
type connection struct {
	key      service.Key
	endpoint netip.AddrPort
	began    time.Time
	// replied is set once the endpoint answered, and judged once its silence counted.
	replied, judged bool
	// entry identifies it for deletion, unless it was there first.
	entry conntrack.Entry
}

// connections follows the connections to Services that are tracked.
type connections struct {
	open map[tuple]*connection
	// silent are those without an answer so far, in the order in which they began.
	silent []tuple
}

// find returns a tracked Service, nil if it is not.
func (w *worker) find(key service.Key) *tracked { return w.services[key] }

// handle takes one announcement.
func (w *worker) handle(a *announced) {
	t := w.find(a.key)
	if t == nil {
		return
	}
	of := tuple{a.event.Protocol, a.event.From, a.event.To}
	known := w.connections.open[of]
	switch {
	case a.event.Kind == conntrack.Began:
		w.begin(t, of, a)
	case known == nil:
	case a.event.Kind == conntrack.Changed && a.event.State == "SYN_RECV":
		w.answered(t, of, known, a.at)
	default: // it closes or is gone
		w.end(t, of, known, a)
	}
}

func (w *worker) begin(t *tracked, of tuple, a *announced) {
	e := t.endpoints[a.event.Answerer]
	if e == nil || len(w.connections.open) >= connectionsMax || t.followed >= serviceMax {
		return
	}
	if old := w.connections.open[of]; old != nil {
		w.drop(of, old)
	}
	e.open++
	t.followed++
	c := &connection{key: t.key, endpoint: a.event.Answerer, began: a.at, entry: a.event.Entry()}
	w.connections.open[of] = c
	if t.outliers == nil || of.protocol != service.TCP.Number() {
		c.replied = true
		return
	}
	w.connections.silent = append(w.connections.silent, of)
	w.judged(t, t.outliers.began(c.endpoint, a.at), a.at)
}

func (w *worker) answered(t *tracked, of tuple, c *connection, now time.Time) {
	if c.replied {
		return
	}
	c.replied = true
	if t.outliers != nil {
		w.judged(t, t.outliers.answered(of.from.Addr(), c.endpoint, now), now)
	}
	if !t.least {
		w.drop(of, c)
	}
}

// end handles the end of a connection. A reset in answer to the first packet ends it before it has an answer. If the
// kernel counts packets, a reset of the client itself shows.
func (w *worker) end(t *tracked, of tuple, c *connection, a *announced) {
	refused := a.event.Kind == conntrack.Ended && !c.replied && !a.event.Replied && a.event.State == "CLOSE" &&
		!(a.event.Accounted && a.event.Carried.PacketsOut == 0)
	if a.event.Replied {
		w.answered(t, of, c, a.at)
	}
	w.drop(of, c)
	if refused && !c.judged && t.outliers != nil {
		w.judged(t, t.outliers.failed(of.from.Addr(), c.endpoint, a.at), a.at)
	}
}

// drop forgets a connection.
func (w *worker) drop(of tuple, c *connection) {
	if w.connections.open[of] != c {
		return
	}
	delete(w.connections.open, of)
	if t := w.find(c.key); t != nil {
		t.followed--
		if e := t.endpoints[c.endpoint]; e != nil && e.open > 0 {
			e.open--
		}
	}
}

// silence judges the connections that have waited too long for an answer.
func (w *worker) silence(now time.Time) {
	all := w.connections.silent
	for len(all) > 0 {
		c := w.connections.open[all[0]]
		if c != nil && !c.replied && now.Sub(c.began) < patience {
			break
		}
		if c != nil && !c.replied && !c.judged {
			c.judged = true
			if t := w.find(c.key); t != nil && t.outliers != nil {
				w.judged(t, t.outliers.failed(all[0].from.Addr(), c.endpoint, now), now)
			}
		}
		all = all[1:]
	}
	if w.connections.silent = all; len(all) == 0 {
		w.connections.silent = nil
	}
}

// recount counts the open connections anew.
func (w *worker) recount(list func(each func(service.Family, conntrack.Connection)) error) error {
	w.connections = connections{open: map[tuple]*connection{}}
	for _, t := range w.services {
		t.followed = 0
		for _, e := range t.endpoints {
			e.open = 0
		}
	}
	return list(func(family service.Family, c conntrack.Connection) {
		of := tuple{c.Protocol, c.From, c.To}
		key, ok := w.owner(family, of)
		t := w.find(key)
		if !ok || t == nil || !t.least || c.State == "TIME_WAIT" || c.State == "CLOSE" || len(w.connections.open) >= connectionsMax || t.followed >= serviceMax {
			return
		}
		if e := t.endpoints[c.Answerer]; e != nil {
			e.open++
			t.followed++
			w.connections.open[of] = &connection{key: key, endpoint: c.Answerer, replied: true}
		}
	})
}
