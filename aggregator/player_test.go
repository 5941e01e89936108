// SPDX-License-Identifier: Apache-2.0

package aggregator

import (
	"context"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/mailbox"
	"github.com/sluice-proxy/sluice/service"
)

// player drives a machine on a model kernel as Aggregator does, but without goroutines, timers or a
// real clock. Its Aggregator is nil.
type player struct {
	*fixture
	machine *machine
	writer  dataplane.Writer
	inbox   *mailbox.Mailbox[service.Key, *dataplane.Fragment]
	// ahead is how long a read ahead lasts.
	ahead time.Duration
	// now is the virtual time, wake when the machine wants to be called.
	now, wake time.Time
	// running is the job in flight, from began to ends; nil for none.
	running     *job
	began, ends time.Time
	// cut is set if the job in flight was told to end.
	cut bool
}

func newPlayer(m *model, w dataplane.Writer, config Config) *player {
	p := &player{fixture: &fixture{model: m}, writer: w, inbox: mailbox.New[service.Key](1<<20, newerFragment),
		now: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)}
	p.clock = func() time.Time { return p.now }
	config.Domain, config.Writer = "model", w
	config = config.withDefaults()
	p.machine = newMachine(&config)
	p.machine.jitter = func() float64 { return 0 }
	p.step()
	return p
}

// step passes inputs to the machine, and does what it returns.
func (p *player) step(inputs ...input) {
	for {
		r := p.machine.step(p.now, inputs...)
		for _, t := range r.told {
			if t.event != nil {
				p.event(t.event)
			} else {
				p.ack(t.ack)
			}
		}
		if r.begin != nil {
			p.begin(r.begin)
		}
		p.wake = r.wake
		if r.cut {
			p.cut = true
			p.ends = p.now
		}
		switch {
		case r.take:
			var fragments taken
			entries, _ := p.inbox.Take()
			for _, e := range entries {
				fragments = append(fragments, e.Message)
			}
			inputs = []input{fragments}
			continue
		}
		return
	}
}

func (p *player) begin(j *job) {
	if p.running != nil {
		panic("two jobs in flight")
	}
	p.running, p.began, p.ends, p.cut = j, p.now, p.now, false
	switch j.purpose {
	case ahead:
		p.note("reading ahead")
		p.ends = p.now.Add(p.ahead)
	case audit:
	default:
		p.ends = p.now.Add(p.took)
	}
}

// finish carries out the job in flight, which takes effect at its end.
func (p *player) finish() {
	r := result{job: *p.running, began: p.began}
	switch r.purpose {
	case ahead:
		p.note("read ahead")
	case audit:
		r.objects, r.err = p.writer.Read(context.Background())
	default:
		took := p.took
		p.took = 0 // it has passed
		if p.cut {
			p.fail = append([]failure{{outcome: dataplane.Busy}}, p.fail...)
		}
		r.receipt = p.writer.Write(context.Background(), r.batch)
		p.took = took
		r.receipt.Took = p.now.Sub(p.began)
	}
	p.running = nil
	p.step(r)
}

// run lets time pass.
func (p *player) run(until time.Time) {
	for {
		switch {
		case p.running != nil && !p.ends.After(until) && (p.wake.IsZero() || !p.wake.Before(p.ends)):
			p.now = p.ends
			p.finish()
		case !p.wake.IsZero() && !p.wake.After(until):
			p.now = laterOf(p.now, p.wake)
			p.step()
		default:
			p.now = until
			return
		}
	}
}

func (p *player) submitAll(all []*dataplane.Fragment) {
	for _, f := range all {
		p.inbox.Post(f.Key, f)
	}
	p.step(arrived{})
}

func (p *player) Status() Status {
	status := p.machine.status()
	status.Waiting = p.inbox.Len()
	return status
}
