package aggregator

import (
	"fmt"
	"math/bits"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// While a failed write backs off, a quarantined key whose try is due waits as
// well: the loop used to ask again at once, and so kept a core busy.
func TestATrialWaitsForTheBackoffWithoutSpinning(t *testing.T) {
	a := newMachine(&Config{Domain: "model", Writer: &model{}})
	a.gate.prime(epoch, nil)
	a.start.adopted = true
	a.pacer.Audited(at(5000), 0, true)
	bad := service.Key{Namespace: "ns", Name: "bad"}
	a.quarantine.put(epoch, QuarantinedKey{Key: bad}, 0)
	a.quarantine.ask(bad)
	a.pacer.Wrote(at(5000), 0, false, 0)
	is(t, "next look", a.act(at(5000)).Sub(at(5000)), 100*ms)
}

// The pause between the tries of a node that refuses everything grows: it used
// to stay at its minimum, since each search began with a clean slate.
func TestANodeAtFaultIsTriedLessAndLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &model{refuses: func(*dataplane.Change) bool { return true }}
		h := ready(t, m, Config{})
		h.submit("a", 1, 1, "1")
		h.Submit(scaffold())
		time.Sleep(10 * time.Minute)
		if got := h.written(); got > 100 {
			t.Errorf("%d writes to a node that refused all of them for ten minutes", got)
		}
	})
}

// The price of a search: Services of which some are refused, for the receipts of each
// kind of writer. No innocent Service is quarantined, and the refused writes are bounded by
// the logarithm of a group for each culprit.
func TestTheSearchAmongTenThousandServices(t *testing.T) {
	const count = 10_000
	t.Logf("%-28s %6s | %7s %7s | %22s", "receipts", "bad", "refused", "writes", "all innocent in force")
	for _, kind := range []struct {
		name string
		receipts
		perCulprit int
	}{
		{"whole batch, no blame", whole, bits.Len(groupMax) + 1},
		{"whole batch, all blamed", wholeBlamed, 2},
		{"whole batch, one blamed", wholeOneBlamed, bits.Len(groupMax) + 1},
		{"by object, proven", byObject, 1},
	} {
		for _, bad := range []int{0, 1, 3, 5, 100, 1000} {
			synctest.Test(t, func(t *testing.T) {
				m := &model{receipts: kind.receipts, took: 10 * ms}
				h := ready(t, m, Config{})
				h.Submit(scaffold())
				time.Sleep(time.Second)
				innocentAt := 0
				m.mu.Lock()
				before, refused := m.writes, m.refused
				m.after = func(objects map[dataplane.ID]string) {
					if innocentAt == 0 && len(objects) == 1+count-bad {
						innocentAt = m.writes
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
				refused = m.refused - refused
				t.Logf("%-28s %6d | %7d %7d | after %d writes", kind.name, bad, refused, writes, innocentAt-before)
				s := h.Status()
				is(t, "quarantined", len(s.Quarantined), bad)
				for _, q := range s.Quarantined {
					name := q.Key.Name + "/0"
					if _, there := m.objects[dataplane.ID{Name: name}]; there {
						t.Errorf("%s is innocent", q.Key)
					}
				}
				is(t, "objects", len(m.objects), 1+count-bad)
				// Besides the search, four are tried again after the audit that follows it.
				if most := bad*kind.perCulprit + 8; refused > most {
					t.Errorf("%d refused writes for %d culprits, want at most %d", refused, bad, most)
				}
			})
		}
	}
}
