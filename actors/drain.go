package actors

import (
	"slices"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// Numbers of draining.
const (
	// drainDeadline is the default of Output.DrainDeadline.
	drainDeadline = 15 * time.Minute
	// lookMin is how long after an endpoint has left its connections are asked
	// about first; the pause doubles with each answer that some are left, up to
	// lookMax.
	lookMin = time.Second
	lookMax = 10 * time.Second
	// drainingMax bounds the endpoints of one Service that drain in one domain.
	drainingMax = 1000
)

// drain holds the endpoints of one Service that have left in one domain, for as
// long as they have connections there. It is part of the machine: it belongs to
// one incarnation and one goroutine, and reads no clock.
//
// What it forgets with its incarnation the kernel remembers: a successor is told
// by Drainer.Held before its first fragment.
type drain struct {
	family   service.Family
	deadline time.Duration
	// asked is set once the kernel has been asked for what it holds.
	asked bool
	// view is the newest that was taken; shown is view with what drains, and
	// view itself when nothing does.
	view, shown *service.View
	// ports are those of view, kept apart: view is the machine's and is changed
	// under us.
	ports []service.PortView
	// leavers are in the order in which they left.
	leavers []leaver
	// changed is set when shown is not what leavers say any more.
	changed bool
	// doubted is set when the last question got no answer.
	doubted bool
	// told is how many drain by what has been announced.
	told int
}

// leaver is an endpoint that drains.
type leaver struct {
	// port is the position of its service port in the view.
	port     int
	endpoint service.Endpoint
	// from are the sides that it has left; none when it is to be dropped.
	from  sides
	since time.Time
	// next is when to look for its connections again, pause what was waited for
	// that.
	next  time.Time
	pause time.Duration
}

func (d *drain) idle() bool { return len(d.leavers) == 0 }

// take makes a view the newest one: what has left it since the one before drains
// from now on, what has come back does not any more, and with a service port that
// is gone everything is dropped that drained behind it. It gives the endpoints that
// drain no more because there are too many, the oldest.
func (d *drain) take(view *service.View, now time.Time) (cut []service.Endpoint) {
	before := d.ports
	d.view, d.ports = view, view.Ports[d.family]
	at := make([]int, len(before))
	for i := range before {
		at[i] = survivor(d.ports, i, &before[i])
	}
	d.follow(at)
	var index map[place]int
	for i := range before {
		if at[i] < 0 {
			continue
		}
		for s := range sideCount {
			for _, e := range left(s, &before[i], &d.ports[at[i]]) {
				if index == nil {
					index = d.index()
				}
				d.leave(index, place{at[i], e.AddrPort}, e, s, now)
			}
		}
	}
	return d.bound()
}

// follow moves what drains to where the service ports have moved, and drops what
// has come back or has nothing to drain behind any more.
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

// hold takes what the kernel holds behind a service port of the newest view, beyond
// what is wanted there. Where some frontend is for local endpoints alone, each is
// taken for one, as it was when that frontend got it.
func (d *drain) hold(port int, held []service.Endpoint, now time.Time) (cut []service.Endpoint) {
	index := d.index()
	p := &d.ports[port]
	for _, e := range held {
		e.Local = p.UsesLocal()
		for s := range sideCount {
			if s.drains(p) && keeps(p, e) && !holds(s.targets(p), e) {
				d.leave(index, place{port, e.AddrPort}, e, s, now)
			}
		}
	}
	return d.bound()
}

// leave lets an endpoint drain on one side.
func (d *drain) leave(index map[place]int, at place, e service.Endpoint, from side, now time.Time) {
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

// bound drops the oldest that are too many.
func (d *drain) bound() (cut []service.Endpoint) {
	for i := range max(0, len(d.leavers)-drainingMax) {
		cut = append(cut, d.leavers[i].endpoint)
		d.leavers[i].from = 0
	}
	if cut != nil {
		d.sweep()
	}
	return cut
}

// expire drops what drains past its deadline.
func (d *drain) expire(now time.Time) (cut []service.Endpoint) {
	for i := range d.leavers {
		if l := &d.leavers[i]; !now.Before(l.since.Add(d.deadline)) {
			cut = append(cut, l.endpoint)
			l.from = 0
		}
	}
	if cut != nil {
		d.sweep()
	}
	return cut
}

// question gives the endpoint that should be asked about next, as a number for
// answer. There is none before its time.
func (d *drain) question(now time.Time) (number int, due bool) {
	number = slices.IndexFunc(d.leavers, func(l leaver) bool { return l.from != 0 && !l.next.After(now) })
	return number, number >= 0
}

// asks gives the service port, as shown, and the endpoint of a question.
func (d *drain) asks(number int) (*service.PortView, service.Endpoint) {
	l := &d.leavers[number]
	return &d.shown.Ports[d.family][l.port], l.endpoint
}

// answer takes what is known about a question: whether connections are left. What
// could not be found out counts as busy, until the deadline. Numbers hold until
// show.
func (d *drain) answer(number int, busy bool, now time.Time) {
	l := &d.leavers[number]
	if !busy {
		l.from = 0
		d.changed = true
		return
	}
	l.pause = min(2*l.pause, lookMax)
	l.next = now.Add(l.pause)
}

// postpone puts every question off that is due: what is shown is not in the kernel
// yet, where new connections may still begin.
func (d *drain) postpone(now time.Time) {
	for i := range d.leavers {
		if l := &d.leavers[i]; !l.next.After(now) {
			l.next = now.Add(lookMin)
		}
	}
}

// due is when something is to be done next; zero when nothing drains.
func (d *drain) due() (at time.Time) {
	for i := range d.leavers {
		l := &d.leavers[i]
		for _, t := range [...]time.Time{l.next, l.since.Add(d.deadline)} {
			if at.IsZero() || t.Before(at) {
				at = t
			}
		}
	}
	return at
}

// show gives the newest view with what drains.
func (d *drain) show() *service.View {
	d.sweep()
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
		ports[i].Draining = slices.CompactFunc(ports[i].Draining, func(a, b service.Endpoint) bool { return a.AddrPort == b.AddrPort })
	}
	with.Ports[d.family] = ports
	d.shown = &with
	return d.shown
}

// sweep takes out what is to be dropped.
func (d *drain) sweep() {
	before := len(d.leavers)
	d.leavers = slices.DeleteFunc(d.leavers, func(l leaver) bool { return l.from == 0 })
	d.changed = d.changed || len(d.leavers) != before
	if d.idle() {
		d.leavers = nil // idle Services keep no room for it
	}
}
