// SPDX-License-Identifier: Apache-2.0

package aggregator

import (
	"errors"
	"fmt"
	"math/bits"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// TestAggregator_TrialBackoffDoesNotSpin: while a failed write backs off, the due try of a quarantined Service waits as
// well. Otherwise the loop would keep one CPU core busy.
func TestAggregator_TrialBackoffDoesNotSpin(t *testing.T) {
	a := newMachine(&Config{Domain: "model"})
	a.gate.prime(epoch, nil)
	a.start.adopted = true
	a.pacer.Audited(at(5000), 0, true)
	bad := service.Key{Namespace: "ns", Name: "bad"}
	a.quarantine.put(epoch, QuarantinedKey{Key: bad}, 0)
	a.quarantine.ask(bad)
	a.pacer.Wrote(at(5000), 0, false, 0)
	is(t, "next look", a.act(at(5000)).Sub(at(5000)), 100*ms)
}

// TestAggregator_NodeAtFaultBacksOff: the pause between writes grows on a node that rejects everything, although each
// bisection starts from the beginning.
func TestAggregator_NodeAtFaultBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &model{rejects: func(*dataplane.Change) bool { return true }}
		h := ready(t, m, Config{})
		h.submit("a", 1, 1, "1")
		h.Submit(scaffold())
		time.Sleep(10 * time.Minute)
		if got := h.written(); got > 100 {
			t.Errorf("%d writes to a node that rejected all of them for ten minutes", got)
		}
	})
}

// TestBisection_TenThousandServices measures bisections with several numbers of rejected Services, for the receipts of
// each kind of writer. No unaffected Service is quarantined, and the number of rejected writes per culprit is limited
// by the logarithm of the group size.
func TestBisection_TenThousandServices(t *testing.T) {
	const count = 10_000
	t.Logf("%-28s %6s | %7s %7s | %22s", "receipts", "bad", "rejected", "writes", "all others applied")
	for _, kind := range []struct {
		name string
		receipts
		perCulprit int
	}{
		{"whole batch, none named", whole, bits.Len(groupMax) + 1},
		{"whole batch, all named", wholeAllNamed, 2},
		{"whole batch, one named", wholeFirstNamed, bits.Len(groupMax) + 1},
		{"by object, proven", byObject, 1},
	} {
		counts := []int{0, 1, 100}
		if testenv.All() {
			counts = append(counts, 3, 5, 1000)
		}
		for _, bad := range counts {
			synctest.Test(t, func(t *testing.T) {
				m := &model{receipts: kind.receipts, took: 10 * ms}
				h := ready(t, m, Config{})
				h.Submit(scaffold())
				time.Sleep(time.Second)
				unaffectedAt := 0
				m.mu.Lock()
				before, rejected := m.writes, m.rejected
				m.after = func(objects map[dataplane.ID]string) {
					if unaffectedAt == 0 && len(objects) == 1+count-bad {
						unaffectedAt = m.writes
					}
				}
				m.mu.Unlock()
				for i := range count {
					body := "1"
					if i%(count/max(bad, 1)) == 7 && bad > 0 {
						body = "poison"
					}
					h.submit(fmt.Sprintf("n%04d", i), 1, 1, body)
				}
				for range 10_000 {
					time.Sleep(time.Second)
					if s := h.Status(); s.OldestPending.IsZero() && s.Ledger.Pending == 0 {
						break
					}
				}
				m.mu.Lock()
				defer m.mu.Unlock()
				writes := m.writes - before
				rejected = m.rejected - rejected
				t.Logf("%-28s %6d | %7d %7d | after %d writes", kind.name, bad, rejected, writes, unaffectedAt-before)
				s := h.Status()
				is(t, "quarantined", len(s.Quarantined), bad)
				for _, q := range s.Quarantined {
					name := q.Key.Name + "/0"
					if _, there := m.objects[dataplane.ID{Name: name}]; there {
						t.Errorf("%s is not a culprit", q.Key)
					}
				}
				is(t, "objects", len(m.objects), 1+count-bad)
				// Besides the bisection, four are tried again after the audit that follows it.
				if most := bad*kind.perCulprit + 8; rejected > most {
					t.Errorf("%d rejected writes for %d culprits, want at most %d", rejected, bad, most)
				}
			})
		}
	}
}

// TestQuarantine_ReportedOnce: a quarantine is reported as new once per reason, and again after the Service was
// released.
func TestQuarantine_ReportedOnce(t *testing.T) {
	a := newMachine(&Config{Domain: "model"})
	bad := service.Key{Namespace: "ns", Name: "bad"}
	var news []bool
	fails := func(reason string) {
		a.quarantineKey(epoch, bad, &dataplane.Receipt{Outcome: dataplane.Rejected, Err: errors.New(reason)})
		for _, told := range a.out.told {
			if e, is := told.event.(Quarantined); is {
				news = append(news, !e.Again)
			}
		}
		a.out.told = nil
	}
	for _, reason := range []string{"one", "one", "two", "two"} {
		fails(reason)
	}
	a.quarantine.release(bad)
	fails("two")
	is(t, "news", fmt.Sprint(news), "[true false true false true]")
}
