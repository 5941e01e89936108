// SPDX-License-Identifier: Apache-2.0

package health

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane/ledger"
	"github.com/sluice-proxy/sluice/observe/book"
	"github.com/sluice-proxy/sluice/observe/state"
	"github.com/sluice-proxy/sluice/service"
)

// TestDiagnosis: each problem causes exactly one finding. Times are seconds ago; the process started 1000 s ago.
func TestDiagnosis(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	ago := func(seconds int) time.Time { return now.Add(-time.Duration(seconds) * time.Second) }
	domain := func(change func(*aggregator.Status)) func(*inputs) {
		return func(p *inputs) {
			s := aggregator.Status{Domain: "d", Open: true}
			change(&s)
			p.domains = []DomainStatus{{Family: service.IPv4, Status: s}}
		}
	}
	remembered := func(h book.History) func(*inputs) {
		return func(p *inputs) {
			domain(func(*aggregator.Status) {})(p)
			p.history["d"] = h
		}
	}
	resource := func(r state.Resource) func(*inputs) {
		return func(p *inputs) { r.Name = "services"; p.resources = []state.Resource{r} }
	}
	tests := []struct {
		name   string
		change func(*inputs)
		// want is empty for nothing.
		want      Kind
		unhealthy bool
		since     time.Time
		problem   string
	}{
		{"all is well", func(*inputs) {}, "", false, time.Time{}, ""},
		{"Node unknown", func(p *inputs) { p.node = nil }, NodeNotEligible, true, time.Time{}, "Node object is unknown"},
		{"Node going", func(p *inputs) { p.node = deleting }, NodeNotEligible, true, time.Time{}, "being deleted"},

		{"waits a little", domain(func(s *aggregator.Status) { s.OldestPending = ago(9) }), "", false, time.Time{}, ""},
		{"waits", domain(func(s *aggregator.Status) { s.OldestPending = ago(10) }), BatchStuck, false, ago(10), "no write failed"},
		{"waits too long", domain(func(s *aggregator.Status) { s.OldestPending = ago(60) }), BatchStuck, true, ago(60), "no write failed"},
		{"fails", func(p *inputs) {
			domain(func(s *aggregator.Status) { s.Failures, s.LastError = 1, "locked" })(p)
			p.history["d"] = writesFail(ago(1))
		}, WriteFailing, false, ago(1), "in a row: 1; the last error: locked"},
		{"fails too long, with nothing pending", func(p *inputs) {
			domain(func(s *aggregator.Status) { s.Failures, s.LastError = 9, "locked" })(p)
			p.history["d"] = writesFail(ago(60))
		}, WriteFailing, true, ago(60), "locked"},
		{"fails since lately what has waited for long", func(p *inputs) {
			domain(func(s *aggregator.Status) { s.Failures, s.OldestPending = 1, ago(60) })(p)
			p.history["d"] = writesFail(ago(1))
		}, WriteFailing, true, ago(60), ""},
		{"the scaffold is rejected", func(p *inputs) {
			domain(func(s *aggregator.Status) { s.NodeAtFault, s.Failures, s.LastError = true, 2, "no such table" })(p)
			p.history["d"] = writesFail(ago(61))
		}, NodeAtFault, true, ago(61), "belong to no Service: no such table"},
		{"failed once, for long, and is over", func(p *inputs) {
			domain(func(*aggregator.Status) {})(p)
			p.history["d"] = writesFail(ago(600))
		}, "", false, time.Time{}, ""},

		{"gate closed, source not primed", domain(func(s *aggregator.Status) { s.Open = false }), FirstWriteHeld, true, ago(1000), "initial list"},
		{"gate closed, Services missing", domain(func(s *aggregator.Status) { s.Open, s.Missing = false, 3 }), FirstWriteHeld, true, ago(1000), "not rendered yet: 3"},
		{"gate closed for a moment", func(p *inputs) {
			domain(func(s *aggregator.Status) { s.Open, s.Missing = false, 3 })(p)
			p.started = ago(9)
		}, "", false, time.Time{}, ""},

		{"another proxy serves", func(p *inputs) {
			domain(func(s *aggregator.Status) { s.Open, s.Missing, s.OldestPending = false, 3, ago(900) })(p)
			p.standby = Standby{For: "pid 7 (sluice proxy)", Since: ago(901)}
		}, Waiting, true, ago(901), "waits until it exits: pid 7 (sluice proxy)"},
		{"another proxy has ended", func(p *inputs) {
			domain(func(s *aggregator.Status) { s.Open, s.Missing, s.OldestPending = false, 3, ago(900) })(p)
			p.standby = Standby{Since: ago(9)}
		}, "", false, time.Time{}, ""},
		{"another proxy has ended, and this one does nothing", func(p *inputs) {
			domain(func(s *aggregator.Status) { s.Open, s.Missing, s.OldestPending = false, 3, ago(900) })(p)
			p.standby = Standby{Since: ago(60)}
		}, FirstWriteHeld, true, ago(60), "not rendered yet: 3"},
		{"what others have found", func(p *inputs) {
			p.others = []Finding{{Kind: NoLock, Since: ago(5), Problem: "held by pid 7"}}
		}, NoLock, false, ago(5), "held by pid 7"},

		{"audits fail", remembered(readsFail(ago(5), "no memory")), AuditFailing, false, ago(5), "rules: no memory"},
		{"drift", remembered(drifted(ago(5))), Drift, false, ago(5), "3 objects missing, 0 different and 0 unwanted, being restored"},
		{"drift long ago", remembered(drifted(ago(900))), "", false, time.Time{}, ""},

		{"API unreadable", resource(state.Resource{Heard: ago(9), FailingSince: ago(7), Error: "rejected"}), APIStale, false, ago(7), "cannot read from the API server: rejected"},
		{"API unreadable from the start", resource(state.Resource{FailingSince: ago(7)}), APIStale, false, ago(7), "cannot read"},
		{"API silent", resource(state.Resource{Heard: ago(300)}), APIStale, false, ago(300), "silent"},
		{"API quiet", resource(state.Resource{Heard: ago(299)}), "", false, time.Time{}, ""},
		{"API down", func(p *inputs) {
			for n, name := range []string{"services", "endpointslices", "nodes"} {
				p.resources = append(p.resources, state.Resource{Name: name, FailingSince: ago(7 + n), Error: "rejected"})
			}
		}, APIStale, false, ago(9), "cannot read from the API server: rejected"},
		{"API never heard of", resource(state.Resource{}), APIStale, false, ago(1000), "no response from the API server yet"},
		{"resource absent", resource(state.Resource{Absent: true, Error: "no"}), "", false, time.Time{}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := inputs{now: now, started: ago(1000), bound: time.Minute, node: fine, history: map[string]book.History{}, affected: map[Kind][]Affected{}}
			tt.change(&p)
			got := p.findings()
			if tt.want == "" {
				if len(got) > 0 {
					t.Fatalf("got %+v, want nothing", got)
				}
				return
			}
			if len(got) != 1 {
				t.Fatalf("got %+v, want one finding", got)
			}
			f := got[0]
			if f.Kind != tt.want || f.Unhealthy != tt.unhealthy || !f.Since.Equal(tt.since) || !strings.Contains(f.Problem, tt.problem) {
				t.Errorf("got %+v, want %s, unhealthy %v, since %v, %q", f, tt.want, tt.unhealthy, tt.since, tt.problem)
			}
		})
	}
}

// writesFail is the history of a domain whose writes fail, readsFail of one that cannot be read,
// drifted of one that another program has changed.
func writesFail(failing time.Time) book.History { return book.History{Failing: failing} }
func readsFail(unread time.Time, words string) book.History {
	return book.History{Unread: unread, ReadErr: words}
}
func drifted(at time.Time) book.History {
	return book.History{Drift: ledger.Drift{Missing: 3}, DriftAt: at, Drifts: 1}
}

// TestDiagnosis_ExplainsEveryUnhealthyState: in any combination of problems, a family is unhealthy exactly if a finding
// explains it, no Service makes it unhealthy, and findings are in order.
func TestDiagnosis_ExplainsEveryUnhealthyState(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	explained := 0
	for seed := range uint64(5_000) {
		p := randomPicture(rand.New(rand.NewPCG(seed, 1)), now)
		s, findings := p.state(), p.findings()
		families, node := false, false
		for _, f := range findings {
			switch {
			case !f.Unhealthy:
			case f.Kind == NodeNotEligible:
				node = true
			default:
				families = true
				explained++
			}
			if f.Unhealthy && len(f.Services) > 0 {
				t.Fatalf("seed %d: Services make the node unhealthy: %+v", seed, f)
			}
			if f.Problem == "" || f.Since.After(now) {
				t.Fatalf("seed %d: %+v", seed, f)
			}
		}
		if families == s.Healthy() || node == s.NodeEligible {
			t.Fatalf("seed %d: healthy %v, eligible %v, but the findings are %+v", seed, s.Healthy(), s.NodeEligible, findings)
		}
		order := Kinds()
		if !slices.IsSortedFunc(findings, func(a, b Finding) int { return slices.Index(order, a.Kind) - slices.Index(order, b.Kind) }) {
			t.Fatalf("seed %d: not in order: %+v", seed, findings)
		}
	}
	if explained < 500 {
		t.Errorf("only %d explanations: the test proves little", explained)
	}
}

func randomPicture(r *rand.Rand, now time.Time) inputs {
	ago := func() time.Time {
		if r.IntN(2) == 0 {
			return time.Time{}
		}
		return now.Add(-time.Duration(r.IntN(150)) * time.Second)
	}
	p := inputs{now: now, started: now.Add(-time.Duration(r.IntN(150)) * time.Second), history: map[string]book.History{}, affected: map[Kind][]Affected{}}
	p.bound = time.Duration(1+r.IntN(70)) * time.Second
	p.node = []*service.NodeObject{nil, fine, tainted, deleting}[r.IntN(4)]
	for i := range r.IntN(5) {
		s := aggregator.Status{Domain: string(rune('a' + i)), Open: r.IntN(3) > 0, Missing: r.IntN(2), OldestPending: ago(),
			LastWrite: ago(), Failures: r.IntN(2), LastError: "words", NodeAtFault: r.IntN(4) == 0}
		for range r.IntN(20) {
			s.Quarantined = append(s.Quarantined, aggregator.QuarantinedKey{Key: bad, Since: ago(), Reason: "words"})
		}
		p.domains = append(p.domains, DomainStatus{Status: s, Family: service.Families[r.IntN(2)], Auxiliary: r.IntN(3) == 0})
		p.history[s.Domain] = book.History{Failing: ago(), Right: ago(), Unread: ago(), DriftAt: ago()}
	}
	for range r.IntN(3) {
		p.resources = append(p.resources, state.Resource{Name: "services", Heard: ago(), FailingSince: ago()})
	}
	for _, kind := range []Kind{Parked, TooLarge} {
		for i := range r.IntN(15) {
			p.affected[kind] = append(p.affected[kind], Affected{Service: "ns1/" + string(rune('a'+i)), Since: ago()})
		}
	}
	return p
}
