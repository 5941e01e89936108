package actors

import (
	"context"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// askMax bounds one question to a Drainer. It is well below the time in which an
// actor has to be done with a message.
const askMax = 2 * time.Second

// prepareDrains tells the machine which domains drain. In all others nothing here
// costs anything.
func (a *actor) prepareDrains() {
	for i := range a.directory.config.Outputs {
		if domain := &a.directory.config.Outputs[i]; domain.Drain != nil {
			a.machine.drainIn(i, domain.Family, domain.DrainDeadline)
		}
	}
}

// alarmed fires when it is time to look at what drains; never, when nothing does.
func (a *actor) alarmed() <-chan time.Time {
	if a.alarm == nil {
		return nil
	}
	return a.alarm.C
}

// setAlarm sets the alarm to when the machine has to look next.
func (a *actor) setAlarm() {
	at := a.machine.due()
	switch {
	case !at.IsZero() && a.alarm == nil:
		a.alarm = time.NewTimer(time.Until(at))
	case !at.IsZero():
		a.alarm.Reset(time.Until(at))
	case a.alarm != nil:
		a.alarm.Stop()
		a.alarm = nil
	}
}

// withDrains gives the view that a domain is to render: the newest one, with what
// drains there.
func (a *actor) withDrains(ctx context.Context, i int, view *service.View) *service.View {
	d := a.machine.drain(i)
	if d == nil {
		return view
	}
	cut := d.take(view, time.Now())
	if !d.asked && len(d.ports) > 0 {
		d.asked = true
		cut = append(cut, a.hold(ctx, i, d)...)
	}
	if len(cut) > 0 {
		a.tell(DrainCut{Key: a.key, Domain: a.domain(i).Name, Endpoints: cut, Bound: drainingMax})
	}
	return a.show(i, d)
}

// hold asks what the kernel holds that is not wanted any more, from before this
// incarnation.
func (a *actor) hold(ctx context.Context, i int, d *drain) (cut []service.Endpoint) {
	for port := range d.ports {
		if !inside.drains(&d.ports[port]) {
			continue
		}
		a.lease.Begin() // each question has a message's time
		limited, cancel := context.WithTimeout(ctx, askMax)
		held, err := a.domain(i).Drain.Held(limited, d.view, &d.ports[port])
		cancel()
		if err != nil {
			if ctx.Err() == nil {
				a.tell(HeldUnknown{Key: a.key, Domain: a.domain(i).Name, Err: err})
			}
			return cut // the others would fare no better, and whoever waits would wait longer
		}
		cut = append(cut, d.hold(port, held, time.Now())...)
	}
	return cut
}

// look asks about the endpoints whose time has come, and renders anew for the
// domains in which some have no connections left or are past their deadline.
func (a *actor) look(ctx context.Context) error {
	a.lease.Begin()
	defer a.lease.End()
	for i := range a.machine.drains {
		d := a.machine.drain(i)
		if d == nil || d.idle() {
			continue
		}
		if cut := d.expire(time.Now()); len(cut) > 0 {
			a.tell(DrainCut{Key: a.key, Domain: a.domain(i).Name, Endpoints: cut, Deadline: d.deadline})
		}
		a.ask(ctx, i, d)
		if ctx.Err() != nil {
			break
		}
		if d.changed && !a.submit(i, a.show(i, d), a.machine.facts) {
			break
		}
	}
	return ctx.Err()
}

// ask puts the questions whose time has come. It stops when there is news, which
// goes first; what is left is asked right after that.
func (a *actor) ask(ctx context.Context, i int, d *drain) {
	if !a.machine.inForce(i) {
		d.postpone(time.Now())
		return
	}
	for ctx.Err() == nil {
		number, due := d.question(time.Now())
		if !due {
			return
		}
		a.lease.Begin() // each question has a message's time
		port, e := d.asks(number)
		limited, cancel := context.WithTimeout(ctx, askMax)
		busy, err := a.domain(i).Drain.Busy(limited, d.shown, port, e)
		cancel()
		if err != nil && !d.doubted && ctx.Err() == nil {
			a.tell(DrainUnknown{Key: a.key, Domain: a.domain(i).Name, Endpoint: e, Err: err})
		}
		d.doubted = err != nil
		d.answer(number, busy || err != nil, time.Now())
		if a.mailbox.Len() > 0 {
			return
		}
	}
}

// show gives the view with what drains, and tells how much that is.
func (a *actor) show(i int, d *drain) *service.View {
	before := d.told
	shown := d.show()
	if d.told = len(d.leavers); d.told != before {
		a.tell(Drains{Key: a.key, Domain: a.domain(i).Name, Family: d.family, Endpoints: d.told})
	}
	return shown
}

// tell passes an event on, unless the actor has been given up.
func (a *actor) tell(e Event) {
	if !a.lease.Fenced() {
		a.directory.config.Listen(e)
	}
}

func (a *actor) domain(i int) *Output { return &a.directory.config.Outputs[i] }
