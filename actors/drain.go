package actors

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

const (
	// drainDeadline is the default of Output.DrainDeadline.
	drainDeadline = 15 * time.Minute
	// lookMin is the time from an endpoint's leaving to the first question about its
	// connections. The pause doubles while connections are left, up to lookMax.
	lookMin = time.Second
	lookMax = 10 * time.Second
	// drainingMax bounds the endpoints of one Service that drain in one domain.
	drainingMax = 1000
	// heldMax is how long Held is asked again after its first failure. Meanwhile a Service
	// stays as its former actor left it, and its changes wait. The kernel answers
	// one question after the other: 10,000 take 10 s on a machine that has nothing else to do.
	heldMax   = time.Minute
	heldPause = 100 * time.Millisecond
)

// drain holds the endpoints of one Service that have left in one domain, as long as
// they have connections there. It is a part of the machine and pure: it puts
// questions, takes answers, and decides who stays.
//
// It ends with its incarnation; only the kernel remembers. A successor asks which
// endpoints the kernel holds before its first fragment.
type drain struct {
	key    service.Key
	output *Output
	// view is the newest that was taken. shown is view with what drains, and view
	// itself if nothing does.
	view, shown *service.View
	// ports are those of view, kept apart: view is the machine's and changes.
	ports []service.PortView
	// limit is that of view.
	limit service.Drain
	// leavers are in the order in which they left.
	leavers []leaver
	// changed is set if shown does not match leavers.
	changed bool
	// asking says which questions are open; port is the position of the next port
	// to ask Held about. asked is set once Held has been asked. failed is the time of its
	// first failure, and again is set while it is asked again.
	asking asking
	port   int
	asked  bool
	failed time.Time
	again  bool
	// doubted is set if the last question had no answer.
	doubted bool
	// cut collects the endpoints dropped by bound since the last event about it.
	cut []service.Endpoint
	// told is the number of draining endpoints in the last event.
	told   int
	events []Event
}

type asking uint8

const (
	asksNothing asking = iota
	asksHeld
	asksBusy
)

// ConnectionQuery is one that only the kernel can answer: whether connections to Endpoint
// are left (Drainer.Busy), or which endpoints a port holds (Drainer.Held).
type ConnectionQuery struct {
	View     *service.View
	Port     *service.PortView
	Endpoint service.Endpoint
	held     bool
	// pause is the time to wait before the question is put.
	pause  time.Duration
	leaver int
}

// Answer is what a Drainer returned.
type Answer struct {
	Held []service.Endpoint
	Busy bool
	Err  error
}

// leaver is an endpoint that drains.
type leaver struct {
	// port is the position of its service port in the view.
	port     int
	endpoint service.Endpoint
	// from are the sides that it has left; none if it is about to be dropped.
	from  sides
	since time.Time
	// next is the time of the next question, pause the time since the last one.
	next  time.Time
	pause time.Duration
}

func (d *drain) idle() bool { return len(d.leavers) == 0 }

// take makes a view the newest one. Endpoints that have left since the one before
// start to drain, those that are back stop, and those of a service port that is gone
// are dropped.
func (d *drain) take(view *service.View, now time.Time) {
	before := d.ports
	d.view, d.ports, d.limit = view, view.Ports[d.output.Family], view.Drain
	if !d.asked && len(d.ports) > 0 {
		d.asked, d.asking, d.port = true, asksHeld, 0
	}
	at := make([]int, len(before))
	for i := range before {
		at[i] = survivor(d.ports, i, &before[i])
	}
	d.follow(at)
	var index map[leaverKey]int
	for i := range before {
		if at[i] < 0 {
			continue
		}
		for s := range sideCount {
			for _, e := range departed(s, &before[i], &d.ports[at[i]]) {
				if index == nil {
					index = d.index()
				}
				d.leave(index, leaverKey{at[i], e.AddrPort}, e, s, now)
			}
		}
	}
	d.bound()
}

// follow moves leavers along with their service ports, and drops those that are back
// or whose side of the port is gone.
func (d *drain) follow(at []int) {
	if d.idle() {
		return
	}
	for i := range d.leavers {
		l := &d.leavers[i]
		if l.port = at[l.port]; l.port < 0 {
			l.from = 0
			continue
		}
		port := &d.ports[l.port]
		for s := range sideCount {
			if !s.drains(port) || !keeps(port, l.endpoint) || holds(s.targets(port), l.endpoint) {
				l.from &^= s.bit()
			}
		}
	}
	d.sweep()
}

// hold takes what the kernel holds behind a service port of the newest view. If some
// frontend is for local endpoints only, each endpoint counts as local, as it did when
// that frontend got it.
func (d *drain) hold(port int, held []service.Endpoint, now time.Time) {
	index := d.index()
	p := &d.ports[port]
	for _, e := range held {
		e.Local = p.UsesLocal()
		for s := range sideCount {
			if s.drains(p) && keeps(p, e) && !holds(s.targets(p), e) {
				d.leave(index, leaverKey{port, e.AddrPort}, e, s, now)
			}
		}
	}
	d.bound()
}

// leave lets an endpoint drain on one side.
func (d *drain) leave(index map[leaverKey]int, at leaverKey, e service.Endpoint,
	from trafficSide, now time.Time) {
	d.changed = true
	if i, known := index[at]; known {
		d.leavers[i].from |= from.bit()
		return
	}
	index[at] = len(d.leavers)
	d.leavers = append(d.leavers, leaver{
		port: at.port, endpoint: e, from: from.bit(), since: now, next: now.Add(lookMin), pause: lookMin,
	})
}

// bound drops the oldest if there are too many.
func (d *drain) bound() {
	for i := range max(0, len(d.leavers)-drainingMax) {
		d.cut = append(d.cut, d.leavers[i].endpoint)
		d.leavers[i].from = 0
	}
	d.sweep()
}

// look drops the endpoints that are past their deadline, and opens the questions that
// are due. While the kernel does not have the newest fragment it puts them off: new
// connections to a draining endpoint may still begin.
func (d *drain) look(now time.Time, applied bool) {
	var cut []service.Endpoint
	for i := range d.leavers {
		switch l := &d.leavers[i]; {
		case !now.Before(l.since.Add(d.deadline())):
			cut = append(cut, l.endpoint)
			l.from = 0
		case !applied && !l.next.After(now):
			l.next = now.Add(lookMin)
		}
	}
	if cut != nil {
		d.sweep()
		d.tell(DrainCut{Key: d.key, Domain: d.output.Name, Endpoints: cut,
			Deadline: d.deadline()})
	}
	if applied {
		d.asking = asksBusy
	}
}

// question returns the next open question. Draining endpoints wait while there is
// news.
func (d *drain) question(now time.Time, news bool) (ConnectionQuery, bool) {
	switch {
	case d.asking == asksHeld:
		for ; d.port < len(d.ports); d.port++ {
			if port := &d.ports[d.port]; inside.drains(port) {
				q := ConnectionQuery{View: d.view, Port: port, held: true}
				if d.again {
					q.pause = heldPause
				}
				return q, true
			}
		}
	case d.asking == asksBusy && !news:
		due := func(l leaver) bool { return l.from != 0 && !l.next.After(now) }
		if i := slices.IndexFunc(d.leavers, due); i >= 0 {
			l := &d.leavers[i]
			port := &d.shown.Ports[d.output.Family][l.port]
			return ConnectionQuery{View: d.shown, Port: port, Endpoint: l.endpoint, leaver: i}, true
		}
	}
	d.asking = asksNothing
	return ConnectionQuery{}, false
}

// answer takes the answer to the last question. Held is asked again while there may be an
// answer later, for heldMax in all. Then, and after any other error, the other ports are
// not asked about: they would fare no better, and the fragment waits. An endpoint without
// an answer about Busy counts as busy.
func (d *drain) answer(q ConnectionQuery, a Answer, now time.Time) {
	if q.held && a.Err != nil && d.failed.IsZero() {
		d.failed = now
	}
	d.again = q.held && mayPass(a.Err) && now.Before(d.failed.Add(heldMax))
	switch {
	case d.again:
	case q.held && a.Err != nil:
		d.asking = asksNothing
		d.tell(HeldUnknown{Key: d.key, Domain: d.output.Name, Err: a.Err})
	case q.held:
		d.hold(d.port, a.Held, now)
		d.port++
	default:
		if a.Err != nil && !d.doubted {
			d.tell(DrainUnknown{Key: d.key, Domain: d.output.Name, Endpoint: q.Endpoint, Err: a.Err})
		}
		d.doubted = a.Err != nil
		l := &d.leavers[q.leaver]
		if !a.Busy && a.Err == nil {
			l.from, d.changed = 0, true
			return
		}
		l.pause = min(2*l.pause, lookMax)
		l.next = now.Add(l.pause)
	}
}

// mayPass reports whether the same question may have an answer later.
func mayPass(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, dataplane.ErrBusy)
}

func (d *drain) tell(e Event) { d.events = append(d.events, e) }

// deadline returns how long endpoints drain.
func (d *drain) deadline() time.Duration { return d.limit.Or(d.output.DrainDeadline) }

// due returns the time of the next look; zero if nothing drains.
func (d *drain) due() (at time.Time) {
	for i := range d.leavers {
		l := &d.leavers[i]
		for _, t := range [...]time.Time{l.next, l.since.Add(d.deadline())} {
			if at.IsZero() || t.Before(at) {
				at = t
			}
		}
	}
	return at
}

// show returns the newest view with what drains, and reports changes.
func (d *drain) show() *service.View {
	d.sweep()
	if d.cut != nil {
		d.tell(DrainCut{Key: d.key, Domain: d.output.Name, Endpoints: d.cut, Bound: drainingMax})
		d.cut = nil
	}
	if n := len(d.leavers); n != d.told {
		d.told = n
		d.tell(Drains{Key: d.key, Domain: d.output.Name, Family: d.output.Family, Endpoints: n})
	}
	d.shown, d.changed = d.view, false
	if d.idle() {
		return d.shown
	}
	with := *d.view
	ports := slices.Clone(d.ports)
	for _, l := range d.leavers {
		ports[l.port].Draining = append(ports[l.port].Draining, l.endpoint)
	}
	for i := range ports {
		slices.SortFunc(ports[i].Draining, service.Endpoint.Compare)
		// Two service ports may have become one.
		ports[i].Draining = slices.CompactFunc(ports[i].Draining, func(a, b service.Endpoint) bool {
			return a.AddrPort == b.AddrPort
		})
	}
	with.Ports[d.output.Family] = ports
	d.shown = &with
	return d.shown
}

// sweep removes the leavers that have no side left.
func (d *drain) sweep() {
	before := len(d.leavers)
	d.leavers = slices.DeleteFunc(d.leavers, func(l leaver) bool { return l.from == 0 })
	d.changed = d.changed || len(d.leavers) != before
	if d.idle() {
		d.leavers = nil // idle Services keep no room for it
	}
}
