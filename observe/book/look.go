// SPDX-License-Identifier: Apache-2.0

package book

import (
	"fmt"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/observe/state"
	"github.com/sluice-proxy/sluice/service"
)

// Look reads records, and adds the quarantines and shadows as of its creation. Make one for each response.
type Look struct {
	book        *Book
	quarantined map[service.Key][]state.Quarantine
	shadowed    map[service.Key]bool
	// leaving has each Service's number of draining endpoints.
	leaving service.PerFamily[map[service.Key]int]
}

// Look makes a look.
func (b *Book) Look() *Look {
	l := &Look{book: b, quarantined: map[service.Key][]state.Quarantine{}, shadowed: map[service.Key]bool{}}
	for _, a := range b.Affected(Shadowed) {
		l.shadowed[a.Key] = true
	}
	for i := range b.Domains {
		if d := &b.Domains[i]; d.Leaving != nil {
			l.leaving[d.Family] = d.Leaving()
		}
	}
	for _, s := range b.Status() {
		for i := range s.Quarantined {
			q := &s.Quarantined[i]
			l.quarantined[q.Key] = append(l.quarantined[q.Key], QuarantineOf(s.Domain, q))
		}
	}
	return l
}

// Service returns the state of a Service. If the Service has no actor yet, it returns a pending record and false.
func (l *Look) Service(key service.Key) (state.Record, bool) {
	s := l.book.locked(key)
	known := s.records[key]
	if known == nil {
		s.mu.Unlock()
		return state.Record{Key: key, State: state.Pending}, false
	}
	row := Row{key, *known, s.rare[key], l}
	s.mu.Unlock()
	return row.Record(), true
}

// Row is a copy of the book's record of one Service.
type Row struct {
	Key    service.Key
	record record
	rare   *rare
	look   *Look
}

// Each returns copies of the wanted records, in no order.
func (l *Look) Each(wanted func(service.Key) bool) (rows []Row) {
	var some []Row
	for i := range l.book.shards {
		s := &l.book.shards[i]
		some = some[:0] // so that a long list never grows under a lock
		s.mu.Lock()
		for key, known := range s.records {
			if wanted(key) {
				some = append(some, Row{key, *known, s.rare[key], l})
			}
		}
		s.mu.Unlock()
		rows = append(rows, some...)
	}
	return rows
}

// Rank orders Services by severity: quarantined ones first, then shadowed ones.
func (r *Row) Rank() int {
	switch {
	case r.look.quarantined[r.Key] != nil:
		return 0
	case r.look.shadowed[r.Key]:
		return 1
	default:
		return 2
	}
}

// Longest is the longest time from the receipt of a change until it was applied, in seconds; negative if none is known.
func (r *Row) Longest() float32 { return r.record.received.Longest }

// Record returns the state of the Service.
func (r *Row) Record() state.Record {
	of, x := &r.record, r.rare.copy()
	made := state.Record{
		Key: r.Key, Families: of.families, Revision: of.revision, Changes: int(of.commits), Restarts: int(of.restarts),
		FlowsDeleted: int(of.flowsDeleted), Quarantines: r.look.quarantined[r.Key], Shadowed: r.look.shadowed[r.Key],
		Actor: state.Actor{State: of.state(r.rare), Restarts: int(of.restarts), Failures: int(x.failures),
			ParkedUntil: x.parkedUntil.UTC(), TooLarge: x.large.Reason},
	}
	if x.failures > 0 {
		made.Actor.LastFailure, made.Actor.FailedAt = x.kind+": "+x.text, x.at.UTC()
	}
	if of.committed != 0 {
		made.LastChange = time.Unix(0, of.committed).UTC()
	}
	made.LastMicros, made.LongestMicros = of.received.micros()
	made.CauseLastMicros, made.CauseLongestMicros = of.triggered.micros()
	for family := range made.Families {
		f := &made.Families[family]
		f.Draining = uint32(r.look.leaving[family][r.Key])
		made.Endpoints += int(f.Local + f.Remote)
		made.Local += int(f.Local)
		made.Draining += int(f.Draining)
	}
	made.State = stateOf(&made)
	return made
}

// stateOf returns the gravest state that applies to a record.
func stateOf(r *state.Record) state.State {
	switch {
	case r.Actor.State != state.ActorRunning:
		return state.Failing
	case r.Quarantines != nil:
		return r.Quarantines[0].State()
	case r.Shadowed:
		return state.Shadowed
	case r.Changes == 0:
		return state.Pending
	case r.Actor.TooLarge != "":
		return state.TooLarge
	default:
		return state.Applied
	}
}

// micros returns a latency in microseconds; nil before the first measurement.
func (l *latency) micros() (last, longest *int64) {
	if l.Longest < 0 {
		return nil, nil
	}
	micros := func(seconds float32) int64 {
		return time.Duration(float64(seconds) * float64(time.Second)).Microseconds()
	}
	both := [2]int64{micros(l.Last), micros(l.Longest)}
	return &both[0], &both[1]
}

// Kind is a kind of problem of Services. The kinds of health findings have the same names.
type Kind = string

// The kinds.
const (
	Parked      Kind = "parked"
	Stuck       Kind = "stuck"
	TooLarge    Kind = "too-large"
	Shadowed    Kind = "shadowed"
	Quarantined Kind = "quarantined"
)

// Affected returns the Services with a kind of problem, in no order. A Service occurs once for each stuck
// incarnation of its actor, and once for each domain that quarantines it.
func (b *Book) Affected(kind Kind) (all []state.Affected) {
	add := func(key service.Key, a state.Affected) {
		a.Key, a.Service = key, key.String()
		all = append(all, a)
	}
	switch kind {
	case Quarantined:
		for _, s := range b.Status() {
			for _, q := range s.Quarantined {
				add(q.Key, state.Affected{Since: q.Since, Reason: q.Reason})
			}
		}
	case Parked:
		b.eachRare(func(x *rare) state.Affected { return x.parked }, add)
	case TooLarge:
		b.eachRare(func(x *rare) state.Affected { return x.large }, add)
	case Stuck:
		b.mu.Lock()
		defer b.mu.Unlock()
		for at, a := range b.stuck {
			add(at.key, a)
		}
	case Shadowed:
		for key, a := range b.shadowed() {
			add(key, a)
		}
	}
	return all
}

// eachRare adds the Services for which of returns a problem. It holds the lock of their shard.
func (b *Book) eachRare(of func(*rare) state.Affected, add func(service.Key, state.Affected)) {
	for i := range b.shards {
		s := &b.shards[i]
		s.mu.Lock()
		for key, x := range s.rare {
			if a := of(x); !a.Since.IsZero() {
				add(key, a)
			}
		}
		s.mu.Unlock()
	}
}

// Unfollowed returns the Services whose changes are not applied, or not for all their frontends, and service.Node for
// rules of the node itself.
func (b *Book) Unfollowed() map[service.Key]state.Affected {
	all := map[service.Key]state.Affected{}
	for _, kind := range []Kind{Stuck, Parked, TooLarge, Quarantined} {
		for _, a := range b.Affected(kind) {
			all[a.Key] = a
		}
	}
	return all
}

// shadowed returns the Services that request frontends of other Services.
func (b *Book) shadowed() map[service.Key]state.Affected {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := map[service.Key]state.Affected{}
	for at, how := range b.shadows {
		a := state.Affected{Since: how.since, Reason: fmt.Sprintf("%s serves %d of its frontends", at.by, how.frontends)}
		if other, twice := found[at.key]; twice {
			a.Since = dataplane.Earliest(a.Since, other.Since)
			a.Reason = min(a.Reason, other.Reason) + ", and there are others"
		}
		found[at.key] = a
	}
	return found
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

// reasonClasses sort the errors of the kernel and its tools into a few classes, which can be values
// of a label. The first class with a matching text applies. The texts are those of strerror(3),
// iptables-restore and nf_tables.
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
