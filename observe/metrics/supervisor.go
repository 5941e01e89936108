package metrics

import (
	"errors"
	"time"

	"github.com/sluice-proxy/sluice/actors"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/supervisor"
)

// The kinds of failure of an actor.
const (
	failPanic = "panic"
	failError = "error"
	failStuck = "stuck"
)

// Supervisor counts what happens to actors. A Service is in the roster from the
// first start of its actor until its end: nothing else makes or removes a record.
func (m *Metrics) Supervisor(event supervisor.Event[service.Key]) {
	switch e := event.What.(type) {
	case supervisor.Started:
		m.running.Add(1)
		if m.roster.start(event.Child) {
			m.own.restarts.Inc()
		}
	case supervisor.Failed:
		kind := failError
		if _, panicked := errors.AsType[*supervisor.PanicError](e.Err); panicked {
			kind = failPanic
		}
		m.failed(event.Child, kind, e.Err.Error())
	case supervisor.Stuck:
		m.abandoned.Store(int64(e.Abandoned))
		m.failed(event.Child, failStuck, "stuck with one message for "+e.For.Round(time.Millisecond).String())
	case supervisor.Parked:
		m.parked.Add(1)
		m.own.parks.Inc()
		m.roster.update(event.Child, func(r *record) { r.inTrouble().parkedUntil = e.Until })
	case supervisor.Unparked:
		m.parked.Add(-1)
		m.roster.update(event.Child, func(r *record) { r.inTrouble().parkedUntil = time.Time{} })
	case supervisor.Ended:
		m.running.Add(-1)
		m.ended(event.Child)
	case supervisor.Returned:
		m.abandoned.Store(int64(e.Abandoned))
	}
}

func (m *Metrics) failed(child service.Key, kind, words string) {
	m.running.Add(-1)
	m.own.failures.WithLabelValues(kind).Inc()
	now := time.Now()
	m.roster.update(child, func(r *record) { r.failed(now, kind, words) })
}

// ended takes a Service out of the roster, and out of the sums that it was part of.
func (m *Metrics) ended(key service.Key) {
	m.owners.end(key)
	last, known := m.roster.end(key)
	if !known {
		return
	}
	for _, family := range service.Families {
		m.unserved[family].replace(last.unserved[family], unserved{})
	}
}

// Actors counts what happens in the directory and to actors.
func (m *Metrics) Actors(event actors.Event) {
	switch e := event.(type) {
	case actors.Refused:
		m.own.refused.Inc()
	case actors.Drains:
		m.roster.drains(e.Key, e.Family, e.Endpoints)
	}
}
