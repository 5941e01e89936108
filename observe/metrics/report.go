package metrics

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/service"
)

// Report is what /debug/actors shows: the domains, and the actors, those in trouble first. It is
// for people and their scripts, and is a copy.
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
	actorState
	Revision string `json:"revision"`
	// Draining counts the endpoints that keep the connections they have, over both families.
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
	Service  string `json:"service"`
	Revision string `json:"revision"`
	rejection
}

// rejection is why a Service is in quarantine.
type rejection struct {
	Class  string    `json:"class"`
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
}

func rejectionOf(q *aggregator.QuarantinedKey) rejection {
	class := reasonClass(q.Reason)
	if q.Cause == aggregator.DoesNotLand {
		class = "does_not_land"
	}
	return rejection{class, q.Reason, q.Since.UTC()}
}

// Report returns the state of the domains and of up to limit actors; 0 means all.
func (m *Metrics) Report(limit int) Report {
	rows := m.records.copy(func(service.Key) bool { return true })
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(a.health(), b.health()), a.key.Compare(b.key))
	})
	r := Report{
		Abandoned: m.actors.abandoned.Load(), Timestamp: time.Now().UTC(),
		Domains: []DomainReport{}, Actors: []ActorReport{},
	}
	r.Running, r.Waiting, r.Parked = m.actors.states(len(rows))
	if limit > 0 && len(rows) > limit {
		r.Omitted = len(rows) - limit
		rows = rows[:limit]
	}
	for i := range rows {
		l := &rows[i]
		r.Actors = append(r.Actors, ActorReport{
			Service: l.key.String(), actorState: l.actorState(), Revision: l.revision.String(),
			Draining: l.draining[service.IPv4] + l.draining[service.IPv6],
		})
	}
	for _, s := range m.status() {
		r.Domains = append(r.Domains, reportOf(&s))
	}
	return r
}

// health orders actors: those that are parked, those that wait, those that have failed before, the
// others.
func (r *record) health() int {
	switch state := r.state(); {
	case state == StateParked:
		return 0
	case state == StateWaiting:
		return 1
	case r.failures != nil:
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
			QuarantineItem{q.Key.String(), q.Revision.String(), rejectionOf(&q)})
	}
	return made
}

// moment returns nil for the zero time.
func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// serviceJSON is one Service in the JSON form of /metrics/services.
type serviceJSON struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Revision is "incarnation.sequence" of the newest one in the kernel.
	Revision           string                  `json:"revision"`
	Commits            uint32                  `json:"commits"`
	LastCommit         *time.Time              `json:"lastCommit,omitempty"`
	Programming        *latency                `json:"programming,omitempty"`
	NetworkProgramming *latency                `json:"networkProgramming,omitempty"`
	Actor              actorState              `json:"actor"`
	Quarantined        []quarantine            `json:"quarantined,omitempty"`
	Endpoints          map[string]endpointJSON `json:"endpoints,omitempty"`
	FlowsDeleted       uint32                  `json:"conntrackEntriesDeleted"`
	// Traffic is by family, in modes in which the kernel counts it.
	Traffic map[string]Counters `json:"traffic,omitempty"`
	// Relayed is by family, in userspace mode.
	Relayed map[string]*Relayed `json:"relayed,omitempty"`
}

// actorState is the state of one actor.
type actorState struct {
	State    string `json:"state"`
	Restarts uint32 `json:"restarts"`
	Failures uint32 `json:"failures"`
	// LastFailure is nil for an actor that has never failed.
	LastFailure *lastFailure `json:"lastFailure,omitempty"`
	ParkedUntil *time.Time   `json:"parkedUntil,omitempty"`
}

type lastFailure struct {
	Kind  string    `json:"kind"`
	Error string    `json:"error"`
	At    time.Time `json:"at"`
}

type endpointJSON struct {
	endpointCounts
	Draining int `json:"draining,omitempty"`
}

func (a *answer) toJSON(r *row) serviceJSON {
	made := serviceJSON{
		Namespace: r.key.Namespace, Name: r.key.Name,
		Revision: r.revision.String(), Commits: r.commits, Actor: r.actorState(),
		Quarantined: a.quarantined[r.key], FlowsDeleted: r.flowsDeleted,
	}
	if r.received.measured() {
		made.Programming = &r.received
	}
	if r.triggered.measured() {
		made.NetworkProgramming = &r.triggered
	}
	if r.committed != 0 {
		made.LastCommit = moment(time.Unix(0, r.committed))
	}
	for _, family := range service.Families {
		if !r.served[family] {
			continue
		}
		if made.Endpoints == nil {
			made.Endpoints = map[string]endpointJSON{}
		}
		made.Endpoints[family.String()] = endpointJSON{r.endpoints[family], r.draining[family]}
	}
	a.eachCounted(r.key, func(family string, c Counters) {
		if made.Traffic == nil {
			made.Traffic = map[string]Counters{}
		}
		made.Traffic[family] = c
	})
	relayedOf(func(of *Relayed, family string, _ sampleFunc) {
		if made.Relayed == nil {
			made.Relayed = map[string]*Relayed{}
		}
		made.Relayed[family] = of
	})(a, r, nil)
	return made
}

func (r *record) actorState() actorState {
	made := actorState{State: r.state(), Restarts: r.restarts}
	if f := r.failures; f != nil {
		made.Failures, made.ParkedUntil = f.count, moment(f.parkedUntil)
		if f.count > 0 {
			made.LastFailure = &lastFailure{f.kind, f.text, f.at.UTC()}
		}
	}
	return made
}

// writeJSON writes the answer Service by Service, so that a long one is never in memory as a whole.
func (a *answer) writeJSON(to io.Writer) {
	w := bufio.NewWriterSize(to, 64<<10)
	defer func() { _ = w.Flush() }() // an error means that the client has gone

	// The buffer remembers its first error.
	_, _ = fmt.Fprintf(w, "{\"omitted\":%d,\"services\":[", a.omitted)
	for i := range a.rows {
		if i > 0 {
			_ = w.WriteByte(',')
		}
		text, err := json.Marshal(a.toJSON(&a.rows[i]))
		if err != nil {
			panic(fmt.Sprintf("metrics: plain values that JSON cannot express: %v", err))
		}
		_, _ = w.Write(text)
	}
	_, _ = w.WriteString("]}\n")
}

// reasonClasses sort the errors of the kernel and its tools into a few classes, which can be values
// of a label. The first that matches counts. The texts are those of strerror(3), iptables-restore
// and nf_tables.
var reasonClasses = []struct {
	class string
	texts []string
}{
	{"unsupported", []string{"not supported", "missing kernel module", "no chain/target/match by that name", "unknown option", "couldn't load"}},
	{"address_in_use", []string{"address already in use"}},
	{"not_found", []string{"no such file", "does not exist"}},
	{"exists", []string{"file exists", "already exists"}},
	{"no_memory", []string{"cannot allocate memory", "out of memory"}},
	{"no_space", []string{"no space left", "no buffer space", "message too long", "too many", "table full"}},
	{"not_permitted", []string{"not permitted", "permission denied"}},
	{"busy", []string{"resource busy", "temporarily unavailable"}},
	{"invalid", []string{"invalid argument", "bad argument", "out of range"}},
}

// reasonClass returns the class of a reason, or "other".
func reasonClass(reason string) string {
	reason = strings.ToLower(reason)
	for _, c := range reasonClasses {
		for _, text := range c.texts {
			if strings.Contains(reason, text) {
				return c.class
			}
		}
	}
	return "other"
}
