package metrics

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/actors"
	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/conntrack"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/supervisor"
)

func TestRecordsLiveAsLongAsTheirActors(t *testing.T) {
	r := newRecords()
	key := serviceKey(1)
	r.update(key, func(*record) { t.Error("a Service without an actor has a record") })
	if r.start(key) {
		t.Error("the first start counts as a restart")
	}
	r.update(key, func(l *record) { l.failed(time.Now(), failError, "x") })
	if !r.start(key) {
		t.Error("a start after a failure does not count as a restart")
	}
	if last, known := r.end(key); !known || last.restarts != 1 || r.len() != 0 {
		t.Errorf("ended: %+v, %t; %d are left", last, known, r.len())
	}
	if r.start(key) {
		t.Error("a Service that was gone counts as restarted")
	}
	if _, known := r.end(serviceKey(2)); known {
		t.Error("a Service ended that was never started")
	}
}

func TestLateEventsDoNotBringAServiceBack(t *testing.T) {
	m := listedMetrics(t, 1)
	m.Supervisor(supervisor.Event[service.Key]{Child: serviceKey(0), What: supervisor.Ended{}})
	view := service.View{Key: serviceKey(0)}
	view.Ports[service.IPv4] = []service.PortView{{HasAny: true, InternalLocal: true}}
	m.Programmed(context.Background(), service.IPv4, view)
	m.Aggregator(aggregator.Applied{Domain: domain4, At: time.Now(), Contribution: dataplane.Contribution{Key: serviceKey(0)}})
	m.Conntrack(conntrack.Swept{Services: map[service.Key]int{serviceKey(0): 3}})
	if m.records.len() != 0 || m.unserved[service.IPv4].internal.Load() != 0 {
		t.Errorf("%d records, %d ports without local endpoints", m.records.len(), m.unserved[service.IPv4].internal.Load())
	}
}

func TestRecordKeepsTheLongestAndTheNewest(t *testing.T) {
	r := newRecord()
	at := time.Unix(1000, 0)
	r.applied(at, service.Revision{Incarnation: 2, Sequence: 1}, unknown, 3*time.Second)
	r.applied(at.Add(time.Second), service.Revision{Incarnation: 1, Sequence: 9}, unknown, time.Second)
	if r.triggered.measured() || r.received != (latency{Last: 1, Longest: 3}) || r.commits != 2 {
		t.Errorf("%+v", r)
	}
	if r.revision != (service.Revision{Incarnation: 2, Sequence: 1}) || r.committed != at.Add(time.Second).UnixNano() {
		t.Errorf("%+v", r)
	}
}

func TestCopiesOfARecordStayAsTheyAre(t *testing.T) {
	r := newRecord()
	r.failed(time.Now(), failPanic, strings.Repeat("ä", failureMax))
	copied := *r
	r.ownFailures().parkedUntil = time.Now()
	r.failed(time.Now(), failError, "again")
	if copied.failures.count != 1 || !copied.failures.parkedUntil.IsZero() || copied.state() != StateRestarting || r.state() != StateParked {
		t.Errorf("copied: %+v, now %+v", copied.failures, r.failures)
	}
	if words := copied.failures.text; len(words) > failureMax || words != strings.Repeat("ä", len(words)/2) {
		t.Errorf("%d bytes are kept: %q", len(words), words)
	}
}

func TestEndpointsAreCountedByKind(t *testing.T) {
	end := func(text string, local bool) service.Endpoint {
		return service.Endpoint{AddrPort: mustAddrPort(text), Local: local}
	}
	ports := []service.PortView{{
		Cluster: []service.Endpoint{end("10.0.0.1:80", true), end("10.0.0.2:80", false)},
		Local:   []service.Endpoint{end("10.0.0.1:80", true)},
	}, {
		Local:   []service.Endpoint{end("10.0.0.3:53", true)},
		Serving: []service.Endpoint{end("10.0.0.3:53", true), end("10.0.0.4:53", false), end("10.0.0.5:53", false)},
	}}
	got, _ := countEndpoints(ports)
	if want := (endpointCounts{Local: 2, Remote: 1, Established: 2}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// All methods are safe for concurrent use.
func TestEverythingAtOnce(t *testing.T) {
	m := listedMetrics(t, 50)
	m.Attach(func() []aggregator.Status { return []aggregator.Status{{Domain: domain4}} }, noEvents)
	var running sync.WaitGroup
	for i := range 4 {
		running.Go(func() {
			for n := range 200 {
				key := serviceKey(n % 50)
				switch i {
				case 0:
					m.Aggregator(aggregator.Applied{Domain: domain4, At: time.Now(), Contribution: dataplane.Contribution{Key: key, Received: time.Now()}})
				case 1:
					m.Supervisor(supervisor.Event[service.Key]{Child: key, What: supervisor.Ended{}})
					m.Supervisor(supervisor.Event[service.Key]{Child: key, What: supervisor.Started{Again: true}})
				case 2:
					view := service.View{Key: key, Balancing: service.Balancing(n % 3)}
					view.Ports[service.IPv4] = []service.PortView{{HasAny: true, InternalLocal: n%2 == 0}}
					m.Programmed(context.Background(), service.IPv4, view)
				case 3:
					if n%20 == 0 {
						gathered(t, m)
						askText(t, m, "top=5")
					}
				}
			}
		})
	}
	running.Wait()
	for n := range 50 {
		m.Supervisor(supervisor.Event[service.Key]{Child: serviceKey(n), What: supervisor.Ended{}})
	}
	if left := m.unserved[service.IPv4].internal.Load(); left != 0 || m.records.len() != 0 {
		t.Errorf("all Services have ended, and %d ports of %d Services are left", left, m.records.len())
	}
	for by := range m.balanced {
		if left := m.balanced[by].Load(); left != 0 {
			t.Errorf("all Services have ended, and %v has %d", service.Balancing(by), left)
		}
	}
}

// TestDrainingEndpointsAreShown: a restart begins with none.
func TestDrainingEndpointsAreShown(t *testing.T) {
	inWorld(t, func(w *world) {
		w.cache.SetSpec(spec(1))
		w.cache.SetSlice(slice4(1, 1, 1, 2))
		w.prime()
		name := sampleOf(1, "sluice_service_endpoints", `ip_family="IPv4"`, `kind="draining"`)
		expect := func(when string, want int) {
			t.Helper()
			value, known := askText(t, w.Metrics, "")[name]
			if known != (want > 0) || value != float64(want) {
				t.Errorf("%s: %v %v, want %d", when, value, known, want)
			}
		}
		expect("before", 0)
		w.Actors(actors.Drains{Key: serviceKey(1), Domain: domain4, Family: service.IPv4, Endpoints: 3})
		w.Actors(actors.Drains{Key: serviceKey(9), Domain: domain4, Family: service.IPv4, Endpoints: 3}) // it has no actor
		expect("reported", 3)
		w.records.start(serviceKey(1))
		expect("started again", 0)
		for _, n := range []int{2, 0} {
			w.Actors(actors.Drains{Key: serviceKey(1), Domain: domain4, Family: service.IPv4, Endpoints: n})
			expect("changed", n)
		}
		w.Actors(actors.Drains{Key: serviceKey(1), Domain: domain4, Family: service.IPv4, Endpoints: 1})
		w.records.end(serviceKey(1))
		for i := range w.records.shards {
			if left := w.records.shards[i].draining; len(left) > 0 {
				t.Errorf("%v is remembered", left)
			}
		}
	})
}

func TestReasonsHaveClasses(t *testing.T) {
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
