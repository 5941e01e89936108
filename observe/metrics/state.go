package metrics

import (
	"time"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/observe/state"
	"github.com/sluice-proxy/sluice/service"
)

// Lookup returns the states of Services, with the quarantines and shadows of the moment at which it
// was made. Unlike the rest of the state, these are not recorded here.
type Lookup struct {
	records     *records
	quarantined map[service.Key][]state.Quarantine
	shadowed    map[service.Key]bool
}

// Lookup makes a look-up. It serves one answer.
func (m *Metrics) Lookup() *Lookup {
	l := &Lookup{records: m.records, quarantined: map[service.Key][]state.Quarantine{}}
	for _, s := range m.status() {
		for i := range s.Quarantined {
			q := &s.Quarantined[i]
			l.quarantined[q.Key] = append(l.quarantined[q.Key], QuarantineOf(s.Domain, q))
		}
	}
	if m.config.Shadowed != nil {
		l.shadowed = m.config.Shadowed()
	}
	return l
}

// QuarantineOf describes a quarantine of a domain.
func QuarantineOf(domain string, q *aggregator.QuarantinedKey) state.Quarantine {
	class := state.ClassDoesNotLand
	if q.Cause != aggregator.DoesNotLand {
		class = reasonClass(q.Reason)
	}
	return state.Quarantine{
		Namespace: q.Key.Namespace, Name: q.Key.Name, Revision: q.Revision.String(), Reason: q.Reason,
		Since: q.Since.UTC(), Domain: domain, Class: class,
	}
}

// Record returns the state of a Service. It reports false for one without an actor, which waits.
func (l *Lookup) Record(key service.Key) (state.Record, bool) {
	r, known := l.records.row(key)
	if !known {
		return state.Record{Key: key, State: state.Pending}, false
	}
	return l.record(&r), true
}

// record returns the state of a Service by the copy of its record.
func (l *Lookup) record(r *row) state.Record {
	made := state.Record{
		Key: r.key, Actor: r.actor(), Revision: r.revision, Changes: int(r.commits), Restarts: int(r.restarts),
		FlowsDeleted: int(r.flowsDeleted), Quarantines: l.quarantined[r.key], Shadowed: l.shadowed[r.key],
	}
	if r.committed != 0 {
		made.LastChange = time.Unix(0, r.committed).UTC()
	}
	made.LastMicros, made.LongestMicros = r.received.micros()
	made.CauseLastMicros, made.CauseLongestMicros = r.triggered.micros()
	for family, e := range r.endpoints {
		f := state.FamilyEndpoints{
			Served: r.served[family], Local: int(e.Local), Remote: int(e.Remote),
			Established: int(e.Established), Draining: r.draining[family],
		}
		made.Families[family] = f
		made.Endpoints += f.Local + f.Remote
		made.Local += f.Local
		made.Draining += f.Draining
	}
	made.State = stateOf(&made)
	return made
}

// stateOf returns the gravest state that a record has.
func stateOf(r *state.Record) state.State {
	switch {
	case r.Actor.TooLarge != "":
		return state.TooLarge
	case r.Actor.State == StateParked, r.Actor.State == StateRestarting:
		return state.Failing
	case r.Quarantines != nil:
		return r.Quarantines[0].State()
	case r.Shadowed:
		return state.Shadowed
	case r.Changes == 0:
		return state.Pending
	default:
		return state.Applied
	}
}

func (r *record) actor() state.Actor {
	made := state.Actor{State: r.state(), Restarts: int(r.restarts)}
	if f := r.failures; f != nil {
		made.Failures, made.ParkedUntil, made.TooLarge = int(f.count), f.parkedUntil.UTC(), f.large
		if f.count > 0 {
			made.LastFailure, made.FailedAt = f.kind+": "+f.text, f.at.UTC()
		}
	}
	return made
}

// micros returns a latency in microseconds; nil before the first that was measured.
func (l *latency) micros() (last, longest *int64) {
	if !l.measured() {
		return nil, nil
	}
	both := [2]int64{seconds(l.Last).Microseconds(), seconds(l.Longest).Microseconds()}
	return &both[0], &both[1]
}

func seconds(s float32) time.Duration { return time.Duration(float64(s) * float64(time.Second)) }
