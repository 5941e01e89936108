// SPDX-License-Identifier: Apache-2.0

package book

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/actors"
	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/observe/state"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/supervisor"
)

// newBook makes a book with a domain and some Services.
func newBook(services int) *Book {
	b := New(Config{Domains: []Domain{{Name: domain4}}})
	for n := range services {
		b.Supervisor(about(n, supervisor.Started{}))
	}
	return b
}

const domain4 = "iptables/IPv4"

// serviceKey names a Service of the tests, and about is an event about its actor.
func serviceKey(n int) service.Key {
	return service.Key{Namespace: fmt.Sprintf("ns%d", n%3), Name: fmt.Sprintf("s%d", n)}
}

func about(n int, what supervisor.Change) supervisor.Event[service.Key] {
	return supervisor.Event[service.Key]{Child: serviceKey(n), Incarnation: 1, What: what}
}

func all(service.Key) bool { return true }

// TestBook_RecordLifetimeFollowsActor: a Service has a record exactly as long as it has an actor.
func TestBook_RecordLifetimeFollowsActor(t *testing.T) {
	b := newBook(0)
	b.update(serviceKey(1), func(*record) { t.Error("a Service without an actor has a record") })
	for range 2 {
		for _, what := range []supervisor.Change{supervisor.Started{}, supervisor.Failed{Err: errors.New("x")}, supervisor.Started{}} {
			b.Supervisor(about(1, what))
		}
		if r, known := b.Look().Service(serviceKey(1)); !known || r.Restarts != 1 || r.Actor.Failures != 1 {
			t.Errorf("%+v, %t", r, known)
		}
		b.Supervisor(about(1, supervisor.Ended{}))
		b.Supervisor(about(2, supervisor.Ended{}))
		if rows := b.Look().Each(all); len(rows) > 0 {
			t.Errorf("left: %+v", rows)
		}
	}
}

// TestBook_LateEventsDoNotReviveService: events that arrive after the end of a Service's actor create no record.
func TestBook_LateEventsDoNotReviveService(t *testing.T) {
	b := newBook(1)
	b.Supervisor(about(0, supervisor.Ended{}))
	view := service.View{Key: serviceKey(0)}
	view.Ports[service.IPv4] = []service.PortView{{HasAny: true, InternalLocal: true}}
	b.Programmed(t.Context(), service.IPv4, view)
	b.Aggregator(aggregator.Applied{Domain: domain4, At: time.Now(), Contribution: dataplane.Contribution{Key: serviceKey(0)}})
	b.FlowsDeleted(map[service.Key]int{serviceKey(0): 3})
	b.Actors(actors.TooLarge{Key: serviceKey(0)})
	b.Supervisor(about(0, supervisor.Parked{}))
	if rows, totals := b.Look().Each(all), b.Totals(); len(rows) > 0 || totals.Internal[service.IPv4] != 0 || len(b.Unfollowed()) > 0 {
		t.Errorf("%+v; %+v; %v", rows, totals, b.Unfollowed())
	}
}

// TestRecord_KeepsLongestAndNewest: a record contains the longest and the last duration, and the newest revision and
// commit.
func TestRecord_KeepsLongestAndNewest(t *testing.T) {
	r := newRecord()
	at := time.Unix(1000, 0)
	r.applied(at, service.Revision{Incarnation: 2, Sequence: 1}, unknown, 3*time.Second)
	r.applied(at.Add(time.Second), service.Revision{Incarnation: 1, Sequence: 9}, unknown, time.Second)
	if last, _ := r.triggered.micros(); last != nil || r.received != (latency{Last: 1, Longest: 3}) || r.commits != 2 {
		t.Errorf("%+v", r)
	}
	if r.revision != (service.Revision{Incarnation: 2, Sequence: 1}) || r.committed != at.Add(time.Second).UnixNano() {
		t.Errorf("%+v", r)
	}
}

// TestRecord_CopyUnaffectedByLaterEvents: later events do not change a copied record.
func TestRecord_CopyUnaffectedByLaterEvents(t *testing.T) {
	b := newBook(1)
	b.Supervisor(about(0, supervisor.Failed{Err: &supervisor.PanicError{Value: strings.Repeat("ä", failureMax)}}))
	copied := b.Look().Each(all)[0]
	b.Supervisor(about(0, supervisor.Parked{Until: time.Now()}))
	b.Supervisor(about(0, supervisor.Failed{Err: errors.New("again")}))
	before, now := copied.Record().Actor, b.Look().Each(all)[0]
	if after := now.Record().Actor; before.Failures != 1 || !before.ParkedUntil.IsZero() || before.State != state.ActorRestarting ||
		after.State != state.ActorParked || after.Failures != 2 || after.LastFailure != "error: again" {
		t.Errorf("copied: %+v, now %+v", before, after)
	}
	if words, _ := strings.CutPrefix(before.LastFailure, "panic: panic: "); len(words) > failureMax || words != strings.Repeat("ä", len(words)/2) || words == "" {
		t.Errorf("%d bytes are kept: %q", len(words), words)
	}
}

// TestCountEndpoints_ByKind: endpoints are counted as local, remote or established.
func TestCountEndpoints_ByKind(t *testing.T) {
	end := func(text string, local bool) service.Endpoint {
		return service.Endpoint{AddrPort: netip.MustParseAddrPort(text), Local: local}
	}
	ports := []service.PortView{{
		Cluster: []service.Endpoint{end("10.0.0.1:80", true), end("10.0.0.2:80", false)},
		Local:   []service.Endpoint{end("10.0.0.1:80", true)},
	}, {
		Local:   []service.Endpoint{end("10.0.0.3:53", true)},
		Serving: []service.Endpoint{end("10.0.0.3:53", true), end("10.0.0.4:53", false), end("10.0.0.5:53", false)},
	}}
	got, _ := countEndpoints(ports)
	if want := (state.FamilyEndpoints{Served: true, Local: 2, Remote: 1, Established: 2}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestReasonClass: each error message of the kernel belongs to a class.
func TestReasonClass(t *testing.T) {
	for reason, want := range map[string]string{
		"iptables-restore v1.8.9 (nf_tables): line 4: RULE_APPEND failed (Invalid argument): rule in chain X": "invalid",
		"netlink: no such file or directory":                 "not_found",
		"iptables-restore: RULE_INSERT failed (File exists)": "exists",
		"operation not supported":                            "unsupported",
		"Warning: Extension nfacct revision 0 not supported, missing kernel module?\nInvalid argument": "unsupported",
		"cannot allocate memory":    "no_memory",
		"no buffer space available": "no_space",
		"Operation not permitted":   "not_permitted",
		"device or resource busy":   "busy",
		"cannot listen on tcp/127.0.0.1:30080: address already in use: pid 7 (x) has it": "address_in_use",
		"something else": "other",
		"":               "other",
	} {
		if got := reasonClass(reason); got != want {
			t.Errorf("%q is %s, want %s", reason, got, want)
		}
	}
}

// TestBook_DrainingCountedByWriters: the book takes the number of draining endpoints from the writers.
func TestBook_DrainingCountedByWriters(t *testing.T) {
	b := newBook(1)
	leaving := map[service.Key]int{}
	b.Domains = []Domain{{Family: service.IPv6}, {Family: service.IPv4, Leaving: func() map[service.Key]int { return leaving }}}
	for _, n := range []int{3, 0} {
		leaving[serviceKey(0)] = n
		r, _ := b.Look().Service(serviceKey(0))
		if r.Draining != n || int(r.Families[service.IPv4].Draining) != n || r.Families[service.IPv6].Draining != 0 {
			t.Errorf("want %d: %+v", n, r)
		}
	}
}
