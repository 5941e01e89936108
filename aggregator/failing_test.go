// SPDX-License-Identifier: Apache-2.0

package aggregator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// stumbler is a writer that fails whenever a batch writes a body with "stumble": the lock is
// taken, a buffer is full, or the answer is lost.
type stumbler struct {
	*model
	outcome dataplane.Outcome
	// byObject means that everything else lands.
	byObject bool
	// takes is how long such a write takes. Until host, every write fails.
	takes time.Duration
	host  atomic.Int64
	// slow is how long other writes take.
	slow time.Duration
	// also is an object that cannot be written.
	also dataplane.ID
	// hangs means that such a write lasts until its context ends.
	hangs bool
	// needs, when set, is how long a write takes. It fails if its context ends before.
	needs func(*dataplane.Batch) time.Duration
}

// writes reports whether a batch writes a body that contains a word.
func writes(b *dataplane.Batch, word string) bool {
	return slices.ContainsFunc(b.Changes, func(c dataplane.Change) bool {
		return c.After != nil && strings.Contains(c.After.Body, word)
	})
}

// spend waits, and reports false if the context ends before.
func spend(ctx context.Context, takes time.Duration) bool {
	select {
	case <-time.After(takes):
		return true
	case <-ctx.Done():
		return false
	}
}

func (s *stumbler) stumbles(c *dataplane.Change) bool {
	return c.After != nil && (strings.Contains(c.After.Body, "stumble") || c.ID == s.also)
}

func (s *stumbler) Write(ctx context.Context, b *dataplane.Batch) dataplane.Receipt {
	host := time.Now().UnixNano() < s.host.Load()
	bad := host
	for i := range b.Changes {
		bad = bad || s.stumbles(&b.Changes[i])
	}
	if !bad && (s.needs == nil || spend(ctx, s.needs(b))) {
		return s.model.Write(ctx, b)
	}
	time.Sleep(s.takes)
	if s.hangs {
		<-ctx.Done()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	if s.byObject && !host {
		s.land(b, func(c *dataplane.Change) bool { return !s.stumbles(c) })
	}
	return s.failed(b, s.outcome, s.outcome.String())
}

func stumbling(t *testing.T, s *stumbler) *fixture {
	s.model = &model{took: s.slow}
	h := openWriter(t, s.model, contract(s), Config{})
	h.Prime(nil)
	h.Submit(scaffold())
	time.Sleep(time.Second)
	return h
}

// await returns how long it takes until the kernel has what is wanted.
func (h *fixture) await(most time.Duration, there func(kernel string) bool) time.Duration {
	began := time.Now()
	for time.Since(began) < most && !there(h.text()) {
		time.Sleep(5 * time.Millisecond)
	}
	return time.Since(began)
}

func quarantined(h *fixture) (names []string) {
	for _, q := range h.Status().Quarantined {
		names = append(names, q.Key.Name)
	}
	return names
}

// TestAggregator_FailingServiceIsolated: a Service whose batches all fail without being rejected is quarantined alone
// and keeps its last rules. The other Services are served and can change.
func TestAggregator_FailingServiceIsolated(t *testing.T) {
	for _, outcome := range []dataplane.Outcome{dataplane.Busy, dataplane.Unknown} {
		for _, byObject := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, by object %t", outcome, byObject), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := stumbling(t, &stumbler{outcome: outcome, byObject: byObject})
					h.submit("bad", 1, 1, "served", "more")
					time.Sleep(time.Second)
					began := time.Now()
					h.submit("bad", 1, 2, "stumble", "changed")
					for i := range 99 {
						h.submit(fmt.Sprintf("good%02d", i), 1, 1, "1")
					}
					took := h.await(time.Hour, func(kernel string) bool { return strings.Count(kernel, "good") == 99 })
					time.Sleep(time.Minute)
					since := began
					if q := h.Status().Quarantined; len(q) == 1 {
						since = q[0].Since
					}
					t.Logf("99 others served after %v, quarantined after %v, %d writes", took, since.Sub(began), h.written())
					if took > 10*time.Second || since.Sub(began) > 20*time.Second {
						t.Errorf("99 others served after %v, quarantined after %v", took, since.Sub(began))
					}
					is(t, "quarantined", quarantined(h), "[bad]")
					is(t, "what is pending", h.Status().OldestPending.IsZero(), true)
					if !strings.Contains(h.text(), "bad/0=served bad/1=more") {
						t.Errorf("kernel %q, want the last rules of the quarantined Service", h.text())
					}
					longest := time.Duration(0)
					for round := range 40 {
						time.Sleep(1700 * time.Millisecond)
						h.submit("good00", 1, uint64(10+round), fmt.Sprint("v", round))
						if round%4 == 0 {
							h.submit("bad", 1, uint64(10+round), fmt.Sprint("stumble", round))
						}
						longest = max(longest, h.await(time.Minute, func(kernel string) bool {
							return strings.Contains(kernel, fmt.Sprintf("good00/0=v%d ", round))
						}))
					}
					t.Logf("a change of another Service takes up to %v", longest)
					if longest > 200*time.Millisecond {
						t.Errorf("a change of another Service takes up to %v", longest)
					}
					h.submit("bad", 1, 100, "fine")
					h.await(time.Minute, func(kernel string) bool { return strings.Contains(kernel, "bad/0=fine") })
					time.Sleep(time.Second)
					is(t, "quarantined once it lands", quarantined(h), "[]")
				})
			})
		}
	}
}

// TestAggregator_HangingServiceIsolated: when each write of one Service hangs until it times out, the other Services
// land within minutes, and later tries delay them only briefly. A fixed Service lands, however long other writes took.
func TestAggregator_HangingServiceIsolated(t *testing.T) {
	for _, outcome := range []dataplane.Outcome{dataplane.Busy, dataplane.Unknown} {
		for _, slow := range []time.Duration{0, 500 * time.Millisecond} {
			t.Run(fmt.Sprintf("%v, others take %v", outcome, slow), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := stumbling(t, &stumbler{outcome: outcome, hangs: true, slow: slow})
					h.submit("bad", 1, 1, "served")
					time.Sleep(2 * time.Second)
					began := time.Now()
					h.submit("bad", 1, 2, "stumble")
					for i := range 99 {
						h.submit(fmt.Sprintf("good%02d", i), 1, 1, "1")
					}
					took := h.await(time.Hour, func(kernel string) bool { return strings.Count(kernel, "good") == 99 })
					time.Sleep(2 * time.Minute)
					since := time.Duration(0)
					if q := h.Status().Quarantined; len(q) == 1 {
						since = q[0].Since.Sub(began)
					}
					t.Logf("99 others served after %v, quarantined after %v, %d writes", took, since, h.written())
					if took > 3*time.Minute {
						t.Errorf("99 others served after %v", took)
					}
					is(t, "quarantined", quarantined(h), "[bad]")
					for round := range 10 {
						time.Sleep(17 * time.Second)
						h.submit("bad", 1, uint64(10+round), fmt.Sprint("stumble", round))
						h.submit("good00", 1, uint64(10+round), fmt.Sprint("v", round))
						if took := h.await(time.Hour, func(kernel string) bool {
							return strings.Contains(kernel, fmt.Sprintf("good00/0=v%d ", round))
						}); took > 15*time.Second {
							t.Errorf("a change of another Service takes %v", took)
						}
					}
					h.submit("bad", 1, 100, "fine")
					h.await(10*time.Minute, func(kernel string) bool { return strings.Contains(kernel, "bad/0=fine") })
					time.Sleep(2 * time.Second)
					is(t, "quarantined once it lands", quarantined(h), "[]")
				})
			})
		}
	}
}

// TestAggregator_QuarantinedSlowServiceLands: a quarantined Service whose next write takes longer than the first tries
// allow still lands, within minutes or, if the write takes very long, within hours.
func TestAggregator_QuarantinedSlowServiceLands(t *testing.T) {
	for takes, most := range map[time.Duration]time.Duration{
		8 * time.Second: 10 * time.Minute, 35 * time.Second: 20 * time.Minute, 100 * time.Second: 90 * time.Minute,
	} {
		t.Run(takes.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := stumbling(t, &stumbler{outcome: dataplane.Busy, hangs: true, needs: func(b *dataplane.Batch) time.Duration {
					if writes(b, "large") {
						return takes
					}
					return 0
				}})
				h.submit("bad", 1, 1, "stumble")
				h.await(10*time.Minute, func(string) bool { return len(quarantined(h)) == 1 })
				is(t, "quarantined", quarantined(h), "[bad]")
				h.submit("bad", 1, 2, "large")
				took := h.await(6*time.Hour, func(kernel string) bool { return strings.Contains(kernel, "bad/0=large") })
				t.Logf("landed after %v, %d writes", took, h.written())
				if took > most {
					t.Errorf("landed after %v", took)
				}
				time.Sleep(time.Second)
				is(t, "quarantined once it lands", quarantined(h), "[]")
			})
		})
	}
}

// TestBisection_SlowNode: on a node where writes of Services are slow and none has landed yet, the bisection for a
// rejected Service needs at most 20 write times.
func TestBisection_SlowNode(t *testing.T) {
	for _, slow := range []time.Duration{6 * time.Second, 30 * time.Second, 50 * time.Second} {
		t.Run(slow.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &stumbler{outcome: dataplane.Busy, needs: func(b *dataplane.Batch) time.Duration {
					if writes(b, "1") || writes(b, "poison") {
						return slow
					}
					return 10 * ms
				}}
				h := stumbling(t, s)
				h.questions <- func() {
					h.submit("bad", 1, 1, "poison")
					for i := range 99 {
						h.submit(fmt.Sprintf("good%02d", i), 1, 1, "1")
					}
				}
				took := h.await(time.Hour, func(kernel string) bool { return strings.Count(kernel, "good") == 99 })
				t.Logf("99 others served after %v, %d writes", took, h.written())
				if took > 20*slow {
					t.Errorf("99 others served after %v, want 20 writes", took)
				}
				time.Sleep(time.Minute)
				is(t, "quarantined", quarantined(h), "[bad]")
			})
		})
	}
}

// TestAggregator_BisectionAfterLongFirstWrite: after a long first write, a Service that hangs later does not make the
// other Services wait as long for each try.
func TestAggregator_BisectionAfterLongFirstWrite(t *testing.T) {
	for _, between := range []int{0, 4} {
		t.Run(fmt.Sprintf("%d writes later", between), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := stumbling(t, &stumbler{outcome: dataplane.Busy, hangs: true, needs: func(b *dataplane.Batch) time.Duration {
					if writes(b, "first") {
						return 25 * time.Second
					}
					return 10 * ms
				}})
				h.submit("bad", 1, 1, "first")
				time.Sleep(time.Minute)
				for i := range between {
					h.submit("bad", 1, uint64(2+i), fmt.Sprint("v", i))
					time.Sleep(5 * time.Second)
				}
				h.questions <- func() {
					h.submit("bad", 1, 10, "stumble")
					for i := range 99 {
						h.submit(fmt.Sprintf("good%02d", i), 1, 1, "1")
					}
				}
				took := h.await(time.Hour, func(kernel string) bool { return strings.Count(kernel, "good") == 99 })
				most := 7 * time.Minute
				if between > 0 {
					most = 3 * time.Minute
				}
				t.Logf("99 others served after %v, %d writes", took, h.written())
				if took > most {
					t.Errorf("99 others served after %v", took)
				}
			})
		})
	}
}

// TestAggregator_FailingHostBlamesNoService: while the node fails every write, the aggregator quarantines no Service,
// and the Services are served soon after the failure ends.
func TestAggregator_FailingHostBlamesNoService(t *testing.T) {
	for _, outcome := range []dataplane.Outcome{dataplane.Busy, dataplane.Unknown} {
		for _, begin := range []string{"", "poison"} {
			t.Run(fmt.Sprint(outcome, begin), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := &stumbler{outcome: outcome, slow: 10 * ms}
					h := stumbling(t, s)
					h.questions <- func() {
						for i := range 99 {
							h.submit(fmt.Sprintf("good%02d", i), 1, 1, "1")
						}
						if begin != "" {
							h.submit("bad", 1, 1, begin) // the host fails in the middle of its bisection
						} else {
							s.host.Store(time.Now().Add(10 * time.Minute).UnixNano())
						}
					}
					if begin != "" {
						time.Sleep(35 * ms)
						s.host.Store(time.Now().Add(10 * time.Minute).UnixNano())
					}
					writes := h.written()
					for range 100 {
						time.Sleep(6 * time.Second)
						is(t, "quarantined", len(quarantined(h)), 0)
					}
					if got := h.written() - writes; got > 1000 {
						t.Errorf("%d writes within 10 minutes", got)
					}
					took := h.await(time.Hour, func(kernel string) bool { return strings.Count(kernel, "good") == 99 })
					if took > time.Minute {
						t.Errorf("served %v after the end of the failure", took)
					}
					time.Sleep(time.Minute)
					want := "[]"
					if begin != "" {
						want = "[bad]"
					}
					is(t, "quarantined in the end", quarantined(h), want)
				})
			})
		}
	}
}

// TestBisection_EndsForEveryFailureCause: a bisection ends and finds all culprits when some Services are rejected and
// the writes of others fail.
func TestBisection_EndsForEveryFailureCause(t *testing.T) {
	for _, outcome := range []dataplane.Outcome{dataplane.Busy, dataplane.Unknown} {
		synctest.Test(t, func(t *testing.T) {
			h := stumbling(t, &stumbler{outcome: outcome})
			h.questions <- func() {
				for i := range 100 {
					body := "1"
					switch i {
					case 20, 51:
						body = "stumble"
					case 50, 99:
						body = "poison"
					}
					h.submit(fmt.Sprintf("s%02d", i), 1, 1, body)
				}
			}
			took := h.await(time.Hour, func(kernel string) bool { return strings.Count(kernel, "=1") == 96 })
			t.Logf("%v: 96 others served after %v", outcome, took)
			time.Sleep(time.Minute)
			if took > 30*time.Second {
				t.Errorf("%v: 96 others served after %v", outcome, took)
			}
			is(t, "quarantined", quarantined(h), "[s20 s50 s51 s99]")
		})
	}
}

// TestQuarantine_SlowTriesAreRare: a quarantined Service whose tries take long is tried less often, so that changes of
// other Services wait 2 s at most on average.
func TestQuarantine_SlowTriesAreRare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := stumbling(t, &stumbler{outcome: dataplane.Unknown, takes: 20 * time.Second})
		h.submit("bad", 1, 1, "stumble")
		time.Sleep(10 * time.Minute)
		is(t, "quarantined", quarantined(h), "[bad]")
		waited, rounds := time.Duration(0), 1000
		for round := range rounds {
			time.Sleep(3500 * time.Millisecond)
			h.submit("good", 1, uint64(round), fmt.Sprint("v", round))
			waited += h.await(time.Minute, func(kernel string) bool { return strings.HasSuffix(kernel, fmt.Sprintf("good/0=v%d", round)) })
		}
		if mean := waited / time.Duration(rounds); mean > 2*time.Second {
			t.Errorf("a change of another Service takes %v on average", mean)
		}
	})
}

// TestAggregator_FailingRepairIsolated: a Service whose removed object cannot be written again is quarantined, and no
// other Service waits for the repair.
func TestAggregator_FailingRepairIsolated(t *testing.T) {
	for _, outcome := range []dataplane.Outcome{dataplane.Busy, dataplane.Unknown} {
		synctest.Test(t, func(t *testing.T) {
			s := &stumbler{outcome: outcome}
			h := stumbling(t, s)
			h.submit("bad", 1, 1, "first")
			h.submit("good", 1, 1, "v0")
			time.Sleep(time.Second)
			gone := dataplane.ID{Name: "bad/0"}
			h.questions <- func() {
				s.model.mu.Lock()
				defer s.model.mu.Unlock()
				delete(s.objects, gone)
				s.also = gone
			}
			h.AuditSoon(dataplane.ForeignProcess{})
			time.Sleep(time.Second)
			h.submit("good", 1, 2, "v1")
			took := h.await(time.Hour, func(kernel string) bool { return strings.Contains(kernel, "good/0=v1") })
			if took > 10*time.Second {
				t.Errorf("%v: a change of another Service takes %v", outcome, took)
			}
			time.Sleep(time.Minute)
			is(t, "quarantined", quarantined(h), "[bad]")
		})
	}
}

// TestAggregator_NodeRulesHeldLikeService: when a change of the node's own rules is rejected or fails, the node keeps
// its last rules and Services can still change. A later accepted change ends the quarantine.
func TestAggregator_NodeRulesHeldLikeService(t *testing.T) {
	for _, together := range []bool{false, true} {
		for _, body := range []string{"poison", "stumble"} {
			t.Run(fmt.Sprintf("%s, together with Services %t", body, together), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := &stumbler{outcome: dataplane.Busy}
					h := stumbling(t, s)
					h.submit("a", 1, 1, "1")
					h.submit("b", 1, 1, "1")
					time.Sleep(time.Second)
					node := func(sequence uint64, body string) {
						f := dataplane.NewFragment(service.Node, []dataplane.Object{
							{ID: dataplane.ID{Name: "base"}}, {ID: dataplane.ID{Name: "changed"}, Body: body}})
						f.Revision = service.Revision{Incarnation: 1, Sequence: sequence}
						h.Submit(f)
					}
					h.questions <- func() {
						node(2, body)
						if together {
							h.submit("b", 1, 2, "2")
						}
					}
					time.Sleep(time.Second)
					h.submit("a", 1, 2, "2")
					if took := h.await(time.Hour, func(kernel string) bool { return strings.Contains(kernel, "a/0=2") }); took > 10*time.Second {
						t.Errorf("a change of a Service takes %v", took)
					}
					if together {
						h.await(10*time.Second, func(kernel string) bool { return strings.Contains(kernel, "b/0=2") })
						is(t, "what changed with the node", strings.Contains(h.text(), "b/0=2"), true)
					}
					time.Sleep(time.Minute)
					is(t, "quarantined", h.Status().Quarantined[0].Key, service.Node)
					is(t, "node at fault", h.Status().NodeAtFault, false)
					is(t, "what is pending", h.Status().OldestPending.IsZero(), true)
					node(3, "fine")
					time.Sleep(time.Minute)
					is(t, "quarantined once it is accepted", quarantined(h), "[]")
					is(t, "kernel", strings.Contains(h.text(), "changed=fine"), true)
				})
			})
		}
	}
}
