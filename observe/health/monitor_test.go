// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/actors"
	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ledger"
	"github.com/sluice-proxy/sluice/observe/book"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/supervisor"
)

// TestMonitor_UnhealthyAfterTwiceSyncPeriod: a change that is pending for twice the sync period makes the node
// unhealthy.
func TestMonitor_UnhealthyAfterTwiceSyncPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		domains := []DomainStatus{{Status: aggregator.Status{Domain: "d", Open: true, OldestPending: time.Now()}}}
		m := NewMonitor(Config{
			Domains: func() []DomainStatus { return domains }, Node: func() *service.NodeObject { return fine }, SyncPeriod: 5 * time.Second,
		})
		time.Sleep(10*time.Second - 1)
		if !m.Healthy() {
			t.Error("unhealthy before twice the period")
		}
		time.Sleep(time.Nanosecond)
		if m.Healthy() {
			t.Error("healthy after twice the period")
		}
	})
}

// TestMonitor_HangingStopUnhealthy: a stop that hangs makes the process unhealthy although nothing is pending, because
// changes are no longer applied.
func TestMonitor_HangingStopUnhealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stopping time.Time
		m := NewMonitor(Config{
			Domains: func() []DomainStatus {
				return []DomainStatus{{Status: aggregator.Status{Domain: "d", Open: true}}}
			},
			Node: func() *service.NodeObject { return fine }, SyncPeriod: 30 * time.Second,
			Stopping: func() time.Time { return stopping },
		})
		time.Sleep(time.Hour)
		stopping = time.Now()
		time.Sleep(time.Minute - 1)
		if !m.Healthy() || kinds(m) != "" {
			t.Errorf("unhealthy, %q, before twice the sync period", kinds(m))
		}
		time.Sleep(time.Nanosecond)
		if m.Healthy() || kinds(m) != "stop-hangs" {
			t.Errorf("healthy %t, findings %q, after twice the sync period", m.Healthy(), kinds(m))
		}
	})
}

// key names a Service of the tests.
func key(name string) service.Key { return service.Key{Namespace: "ns1", Name: name} }

// event is an event of the supervisor about a Service's actor.
func event(name string, incarnation uint64, what supervisor.Change) supervisor.Event[service.Key] {
	return supervisor.Event[service.Key]{Child: key(name), Incarnation: incarnation, What: what}
}

// kinds lists the kinds of what is found, in short.
func kinds(m *Monitor) string {
	var all []string
	report := m.Report()
	for _, f := range report.Findings {
		all = append(all, string(f.Kind))
	}
	return strings.Join(all, " ")
}

// TestMonitor_FailingActorsListedUntilRecovery: failing actors are listed until they recover, and never make the node
// unhealthy.
func TestMonitor_FailingActorsListedUntilRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		m := f.monitor
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			f.book.Supervisor(event(name, 1, supervisor.Started{}))
		}
		steps := []struct {
			event any
			want  string
		}{
			{event("a", 1, supervisor.Failed{Err: errors.New("once")}), ""},
			{event("a", 1, supervisor.Parked{}), "parked"},
			{event("b", 1, supervisor.Parked{Err: errors.New("words")}), "parked"},
			{event("a", 1, supervisor.Unparked{Nudged: true}), "parked"},
			{event("b", 1, supervisor.Unparked{}), ""},
			{event("b", 1, supervisor.Parked{}), "parked"},
			{event("b", 1, supervisor.Ended{}), ""},
			{event("c", 3, supervisor.Stuck{}), "stuck"},
			{event("c", 4, supervisor.Stuck{}), "stuck"},
			{event("c", 5, supervisor.Started{Again: true}), "stuck"},
			{event("c", 3, supervisor.Returned{}), "stuck"},
			{event("c", 4, supervisor.Returned{}), ""},
			{actors.TooLarge{Key: key("d")}, "too-large"},
			{event("d", 1, supervisor.Started{}), ""},
			{actors.TooLarge{Key: key("e")}, "too-large"},
			{actors.Fits{Key: key("d")}, "too-large"},
			{actors.Fits{Key: key("e")}, ""},
		}
		for i, step := range steps {
			switch e := step.event.(type) {
			case supervisor.Event[service.Key]:
				f.book.Supervisor(e)
			case actors.Event:
				f.book.Actors(e)
			}
			if got := kinds(m); got != step.want {
				t.Errorf("step %d, %+v: got %q, want %q", i, step.event, got, step.want)
			}
			if time.Sleep(time.Hour); !m.Healthy() {
				t.Errorf("step %d: unhealthy", i)
			}
		}
	})
}

// TestMonitor_DriftOnlyByOthers: only differences that other programs caused are drift, not those that the previous run
// or a failed write left.
func TestMonitor_DriftOnlyByOthers(t *testing.T) {
	some := ledger.Drift{Missing: 1}
	tests := []struct {
		name   string
		before aggregator.Status
		audits []aggregator.AuditDone
		want   string
	}{
		{"the first audit adopts", aggregator.Status{}, []aggregator.AuditDone{{Drift: some}}, ""},
		{"the second finds damage", aggregator.Status{}, []aggregator.AuditDone{{Drift: some}, {Drift: some}}, "drift"},
		{"none after one that failed", aggregator.Status{}, []aggregator.AuditDone{{Err: errors.New("words")}, {Drift: some}}, ""},
		{"no damage", aggregator.Status{}, []aggregator.AuditDone{{}, {}, {}}, ""},
		{"writes fail", aggregator.Status{Failures: 1}, []aggregator.AuditDone{{}, {Drift: some}}, "write-failing"},
		{"something is to be written", aggregator.Status{Ledger: ledger.Stats{Dirty: 1}}, []aggregator.AuditDone{{}, {Drift: some}}, ""},
		{"the last audit failed", aggregator.Status{}, []aggregator.AuditDone{{}, {Err: errors.New("words")}}, "audit-failing"},
		{"it works again", aggregator.Status{}, []aggregator.AuditDone{{Err: errors.New("words")}, {}}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				tt.before.Domain, tt.before.Open = "d/IPv4", true
				f.domains[0].Status = tt.before
				for _, a := range tt.audits {
					a.Domain = "d/IPv4"
					f.book.Aggregator(a)
				}
				if got := kinds(f.monitor); got != tt.want {
					t.Errorf("got %q, want %q", got, tt.want)
				}
			})
		})
	}
}

// TestMonitor_AuditWithoutDriftIsSuccess: an audit without drift counts as a success, because it shows that the proxy
// of a quiet node works.
func TestMonitor_AuditWithoutDriftIsSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		start := time.Now()
		time.Sleep(time.Hour)
		updated := func() time.Duration { s := f.monitor.State(); return s.Instances[0].Updated.Sub(start) }
		if got := updated(); got != 0 {
			t.Errorf("nothing has happened, but updated %v after the start", got)
		}
		f.book.Aggregator(aggregator.AuditDone{Domain: "d/IPv4"})
		if got := updated(); got != time.Hour {
			t.Errorf("after an audit: updated %v after the start", got)
		}
		time.Sleep(time.Hour)
		f.book.Aggregator(aggregator.AuditDone{Domain: "d/IPv4", Drift: ledger.Drift{Missing: 1}})
		f.book.Aggregator(aggregator.AuditDone{Domain: "d/IPv4", Err: errors.New("words")})
		if got := updated(); got != time.Hour {
			t.Errorf("after audits that were no success: updated %v after the start", got)
		}
	})
}

// kernel is a writer whose outcomes the test sets.
type kernel struct {
	mu      sync.Mutex
	objects map[dataplane.ID]*dataplane.Object
	// outcome, if set, decides about each batch.
	outcome func(*dataplane.Batch) dataplane.Outcome
	// hold is how long writes take.
	hold time.Duration
}

func (k *kernel) Write(_ context.Context, b *dataplane.Batch) dataplane.Receipt {
	k.mu.Lock()
	defer k.mu.Unlock()
	time.Sleep(k.hold)
	if k.outcome != nil {
		if o := k.outcome(b); o != dataplane.Landed {
			r := dataplane.Receipt{Outcome: o, Err: errors.New("kernel says " + o.String()), Certain: map[dataplane.ID]*dataplane.Object{}}
			for _, c := range b.Changes {
				r.Certain[c.ID] = k.objects[c.ID]
			}
			return r
		}
	}
	for _, c := range b.Changes {
		if k.objects[c.ID] = c.After; c.After == nil {
			delete(k.objects, c.ID)
		}
	}
	return dataplane.Receipt{}
}

func (k *kernel) Read(context.Context) ([]dataplane.Object, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var all []dataplane.Object
	for _, o := range k.objects {
		all = append(all, *o)
	}
	return all, nil
}

// behave changes what the kernel does.
func (k *kernel) behave(outcome func(*dataplane.Batch) dataplane.Outcome) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.outcome = outcome
}

// watched is a real aggregator with a monitor on it.
type watched struct {
	*aggregator.Aggregator
	*kernel
	monitor  *Monitor
	sequence uint64
}

// newWatched starts an aggregator; the scaffold is in the kernel on return.
func newWatched(t *testing.T) *watched {
	t.Helper()
	w := &watched{kernel: &kernel{objects: map[dataplane.ID]*dataplane.Object{}}}
	var err error
	remembered := book.New(book.Config{Status: func() []aggregator.Status { return []aggregator.Status{w.Status()} }})
	w.monitor = NewMonitor(Config{
		Book:    remembered,
		Domains: func() []DomainStatus { return []DomainStatus{{Status: w.Status()}} },
		Node:    func() *service.NodeObject { return fine }, SyncPeriod: 30 * time.Second,
	})
	w.Aggregator, err = aggregator.New(aggregator.Config{Domain: "d", Writer: dataplane.Writer{Write: w.kernel.Write, Read: w.kernel.Read}, Listen: remembered.Aggregator})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	w.Prime([]service.Key{service.Node})
	w.submit(service.Node, "scaffold")
	time.Sleep(time.Second)
	return w
}

// submit wants one object with a body for a key.
func (w *watched) submit(key service.Key, body string) {
	w.sequence++
	f := dataplane.NewFragment(key, []dataplane.Object{{ID: dataplane.ID{Name: key.Name}, Body: body}})
	f.Revision = service.Revision{Incarnation: 1, Sequence: w.sequence}
	w.Submit(f)
}

// busy makes every write fail; rejects makes those fail that have an object with the text poison.
func busy(*dataplane.Batch) dataplane.Outcome { return dataplane.Busy }
func rejects(poison string) func(*dataplane.Batch) dataplane.Outcome {
	return func(b *dataplane.Batch) dataplane.Outcome {
		if slices.ContainsFunc(b.Changes, func(c dataplane.Change) bool { return c.After != nil && strings.Contains(c.After.Body, poison) }) {
			return dataplane.Rejected
		}
		return dataplane.Landed
	}
}

var good, bad = key("good"), key("bad")

// TestMonitor_BadServiceKeepsNodeHealthy: a Service that changes all the time and is rejected each time never makes the
// node unhealthy, although other Services change, too.
func TestMonitor_BadServiceKeepsNodeHealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatched(t)
		w.behave(rejects("poison"))
		for i := range 3000 { // ten minutes
			w.submit(bad, fmt.Sprint("poison ", i))
			if i%7 == 0 {
				w.submit(good, fmt.Sprint(i))
			}
			time.Sleep(200 * time.Millisecond)
			if !w.monitor.Healthy() {
				t.Fatalf("unhealthy after %d changes: %+v", i, w.monitor.Report())
			}
		}
		time.Sleep(time.Hour)
		report := w.monitor.Report()
		if len(report.Findings) != 1 || report.Findings[0].Kind != Quarantined || len(report.Findings[0].Services) != 1 ||
			report.Findings[0].Services[0].Service != "ns1/bad" || !report.Healthy() {
			t.Errorf("found %+v", report.Findings)
		}
		w.submit(bad, "cured")
		time.Sleep(5 * time.Second)
		if got := kinds(w.monitor); got != "" {
			t.Errorf("after it is cured: %s", got)
		}
	})
}

// TestMonitor_FailingWritesUnhealthy: failing writes make the node unhealthy after twice the sync period and until the
// first success, even if they are repairs for which no Service waits.
func TestMonitor_FailingWritesUnhealthy(t *testing.T) {
	tests := []struct {
		name  string
		start func(*watched)
		want  Kind
	}{
		{"a change cannot be written", func(w *watched) { w.behave(busy); w.submit(good, "new") }, WriteFailing},
		{"the scaffold is rejected", func(w *watched) {
			w.behave(func(*dataplane.Batch) dataplane.Outcome { return dataplane.Rejected })
			w.submit(service.Node, "other scaffold")
		}, NodeAtFault},
		{"a repair cannot be written", func(w *watched) {
			w.behave(busy)
			w.mu.Lock()
			clear(w.objects) // another program has flushed the tables
			w.mu.Unlock()
			w.AuditSoon(dataplane.ForeignProcess{})
		}, WriteFailing},
		{"a repair of the scaffold is rejected", func(w *watched) {
			w.behave(rejects("scaffold"))
			w.mu.Lock()
			clear(w.objects)
			w.mu.Unlock()
			w.AuditSoon(dataplane.ForeignProcess{})
		}, NodeAtFault},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWatched(t)
				time.Sleep(time.Hour)
				tt.start(w)
				for range 59 {
					time.Sleep(time.Second)
					if !w.monitor.Healthy() {
						t.Fatalf("unhealthy before its time: %+v", w.monitor.Report())
					}
				}
				if got := kinds(w.monitor); !strings.Contains(got, string(tt.want)) {
					t.Errorf("while it is healthy: %q, want %q", got, tt.want)
				}
				time.Sleep(time.Second)
				if w.monitor.Healthy() {
					t.Errorf("healthy after a minute: %+v", w.monitor.Report())
				}
				time.Sleep(10 * time.Minute)
				if w.monitor.Healthy() {
					t.Errorf("healthy after eleven minutes: %+v", w.monitor.Report())
				}
				w.behave(nil)
				time.Sleep(time.Minute)
				if got := kinds(w.monitor); !w.monitor.Healthy() || strings.Contains(got, string(tt.want)) {
					t.Errorf("after it is over: %+v", w.monitor.Report())
				}
			})
		})
	}
}

// TestMonitor_FailuresTimedSeparately: failures with successes between them, or whose objects are withdrawn, do not add
// up, even without a probe in between.
func TestMonitor_FailuresTimedSeparately(t *testing.T) {
	for _, withdrawn := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWatched(t)
			w.submit(good, "lasting")
			for range 20 {
				time.Sleep(20 * time.Second)
				w.behave(busy)
				w.submit(good, "tried")
				time.Sleep(5 * time.Second)
				if !w.monitor.Healthy() || kinds(w.monitor) != string(WriteFailing) {
					t.Fatalf("withdrawn %v: %+v", withdrawn, w.monitor.Report())
				}
				if !withdrawn {
					w.behave(nil)
					time.Sleep(20 * time.Second)
				}
				w.submit(good, "lasting")
			}
		})
	}
}

// TestMonitor_StuckWriteUnhealthy: a write that neither fails nor ends makes the node unhealthy.
func TestMonitor_StuckWriteUnhealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatched(t)
		w.kernel.mu.Lock()
		w.hold = 100 * time.Second
		w.kernel.mu.Unlock()
		w.submit(good, "new")
		time.Sleep(59 * time.Second)
		if !w.monitor.Healthy() || kinds(w.monitor) != string(BatchStuck) {
			t.Errorf("after 59 s: %+v", w.monitor.Report())
		}
		time.Sleep(2 * time.Second)
		if w.monitor.Healthy() || kinds(w.monitor) != string(BatchStuck) {
			t.Errorf("after 61 s: %+v", w.monitor.Report())
		}
		time.Sleep(time.Minute)
		if !w.monitor.Healthy() {
			t.Errorf("after it has landed: %+v", w.monitor.Report())
		}
	})
}

// TestMonitor_MissedEventsCountFromFirstLook: a monitor that missed the first failures counts them from its first look.
func TestMonitor_MissedEventsCountFromFirstLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.status(service.IPv4).Failures = 5
		if time.Sleep(time.Hour); !f.monitor.Healthy() {
			t.Error("unhealthy at first sight")
		}
		if time.Sleep(time.Minute); f.monitor.Healthy() {
			t.Error("healthy a minute later")
		}
	})
}

// TestMonitor_Concurrent is for the race detector.
func TestMonitor_Concurrent(t *testing.T) {
	f := newFixture(t)
	var running sync.WaitGroup
	for i := range 4 {
		running.Go(func() {
			for n := range 200 {
				name := fmt.Sprint(n % 10)
				f.book.Supervisor(event(name, 1, supervisor.Started{}))
				f.book.Supervisor(event(name, 1, supervisor.Parked{}))
				f.book.Supervisor(event(name, uint64(i), supervisor.Stuck{}))
				f.book.Aggregator(aggregator.AuditDone{Domain: "d/IPv4"})
				f.book.Aggregator(aggregator.BatchWritten{Domain: "d/IPv6", Receipt: dataplane.Receipt{Outcome: dataplane.Busy}})
				f.book.Actors(actors.TooLarge{Key: good})
				if r := f.monitor.Report(); len(r.Findings) == 0 || !f.monitor.Healthy() {
					t.Errorf("%+v", r)
				}
				f.book.Supervisor(event(name, 1, supervisor.Unparked{}))
			}
		})
	}
	running.Wait()
}

// TestLivez_ToleratesWriteWithinLimit: /livez tolerates a write within its limit, which a restart would only begin
// again, while /healthz tells load balancers that changes are late.
func TestLivez_ToleratesWriteWithinLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		s := f.status(service.IPv4)
		s.OldestPending, s.Excused = time.Now(), time.Now().Add(100*time.Second)
		at := func(after time.Duration, livez, healthz int) {
			t.Helper()
			time.Sleep(after)
			if l, h := f.get(t, "/livez").Code, f.get(t, "/healthz").Code; l != livez || h != healthz {
				t.Errorf("/livez %d, /healthz %d, want %d, %d", l, h, livez, healthz)
			}
		}
		at(59*time.Second, 200, 200)
		at(2*time.Second, 200, 503)
		at(98*time.Second, 200, 503) // the limit has passed 59 s ago
		at(2*time.Second, 503, 503)
		s.OldestPending, s.Excused = time.Time{}, time.Now().Add(time.Minute)
		at(time.Second, 200, 200)
	})
}

// TestLivez_WaitsForSearchAnySyncPeriod: with a short sync period, /livez still waits as long as a search for culprits
// may take.
func TestLivez_WaitsForSearchAnySyncPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		domains := []DomainStatus{{Status: aggregator.Status{Domain: "d", Open: true, OldestPending: time.Now()}}}
		for period, killed := range map[time.Duration]time.Duration{
			time.Second: aggregator.Liveness, 30 * time.Second: aggregator.Liveness, time.Minute: 2 * aggregator.Liveness,
		} {
			m := NewMonitor(Config{Domains: func() []DomainStatus { return domains },
				Node: func() *service.NodeObject { return fine }, SyncPeriod: period})
			domains[0].Status.OldestPending = time.Now()
			time.Sleep(killed - time.Nanosecond)
			early := m.State()
			time.Sleep(time.Nanosecond)
			late := m.State()
			if !early.Live() || late.Live() {
				t.Errorf("sync period %v: live %t just before %v and %t then", period, early.Live(), killed, late.Live())
			}
		}
	})
}
