package metrics

import (
	"cmp"
	"slices"
	"time"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/service"
)

// Report is what /debug/actors shows: the domains, and the actors, those in trouble
// first. It is made for people and their scripts, and is a copy.
type Report struct {
	Running int64 `json:"running"`
	Waiting int64 `json:"waiting"`
	Parked  int64 `json:"parked"`
	// Abandoned counts the goroutines of stuck actors that have not returned.
	Abandoned int64          `json:"abandoned"`
	Domains   []DomainReport `json:"domains"`
	Actors    []ActorReport  `json:"actors"`
	Omitted   int            `json:"omittedActors"`
	Timestamp time.Time      `json:"timestamp"`
}

// ActorReport is one actor; the node's own is called "node".
type ActorReport struct {
	Service string `json:"service"`
	actorJSON
	Revision string `json:"revision"`
	// Draining counts the endpoints that keep the connections they have, over
	// both families.
	Draining int `json:"draining,omitempty"`
}

// DomainReport is the state of one domain; see aggregator.Status.
type DomainReport struct {
	Name          string           `json:"name"`
	Open          bool             `json:"open"`
	Missing       int              `json:"missing"`
	Waiting       int              `json:"waitingFragments"`
	OldestPending *time.Time       `json:"oldestPending,omitempty"`
	LastWrite     *time.Time       `json:"lastWrite,omitempty"`
	Failures      int              `json:"failedWritesInARow"`
	LastError     string           `json:"lastError,omitempty"`
	NodeAtFault   bool             `json:"nodeAtFault"`
	Services      int              `json:"services"`
	Objects       int              `json:"objects"`
	Dirty         int              `json:"dirtyObjects"`
	Pending       int              `json:"pendingServices"`
	Shadowed      int              `json:"shadowedClaims"`
	Quarantined   []QuarantineItem `json:"quarantined"`
}

// QuarantineItem is one Service that a domain holds back.
type QuarantineItem struct {
	Service  string    `json:"service"`
	Revision string    `json:"revision"`
	Class    string    `json:"class"`
	Reason   string    `json:"reason"`
	Since    time.Time `json:"since"`
}

// Report gives the state of the domains and of up to limit actors; 0 gives all.
func (m *Metrics) Report(limit int) Report {
	lines := m.roster.copy(func(service.Key) bool { return true })
	slices.SortFunc(lines, func(a, b line) int {
		return cmp.Or(cmp.Compare(a.health(), b.health()), a.key.Compare(b.key))
	})
	running, parked := m.running.Load(), m.parked.Load()
	r := Report{
		Running: running, Parked: parked, Abandoned: m.abandoned.Load(), Waiting: max(0, int64(len(lines))-running-parked),
		Domains: []DomainReport{}, Actors: []ActorReport{}, Timestamp: time.Now().UTC(),
	}
	if limit > 0 && len(lines) > limit {
		r.Omitted = len(lines) - limit
		lines = lines[:limit]
	}
	for i := range lines {
		l := &lines[i]
		r.Actors = append(r.Actors, ActorReport{
			Service: l.key.String(), actorJSON: l.actor(), Revision: l.revision.String(),
			Draining: l.draining[service.IPv4] + l.draining[service.IPv6],
		})
	}
	if asked := m.sources.Load(); asked != nil {
		for _, s := range asked.status() {
			r.Domains = append(r.Domains, reportOf(&s))
		}
	}
	return r
}

// health orders actors: the parked ones, those that wait, those that have failed
// before, the others.
func (r *record) health() int {
	switch state := r.state(); {
	case state == stateParked:
		return 0
	case state == stateWaiting:
		return 1
	case r.trouble != nil:
		return 2
	default:
		return 3
	}
}

func reportOf(s *aggregator.Status) DomainReport {
	made := DomainReport{
		Name: s.Domain, Open: s.Open, Missing: s.Missing, Waiting: s.Waiting,
		OldestPending: moment(s.OldestPending), LastWrite: moment(s.LastWrite),
		Failures: s.Failures, LastError: s.LastError, NodeAtFault: s.NodeAtFault,
		Services: s.Ledger.Keys, Objects: s.Ledger.Objects, Dirty: s.Ledger.Dirty,
		Pending: s.Ledger.Pending, Shadowed: s.Ledger.Shadowed, Quarantined: []QuarantineItem{},
	}
	for _, q := range s.Quarantined {
		made.Quarantined = append(made.Quarantined,
			QuarantineItem{q.Key.String(), q.Revision.String(), reasonClass(q.Reason), q.Reason, q.Since.UTC()})
	}
	return made
}

// moment gives nil for no time.
func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
