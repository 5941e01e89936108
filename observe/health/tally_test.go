package health

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// found gives the tallies that are not 0, by kind and domain, and their number.
func found(t *testing.T, m *Monitor) (some map[string]int, all int) {
	t.Helper()
	some = map[string]int{}
	seen := map[string]bool{}
	tallies := m.Tallies()
	for _, tally := range tallies {
		name := string(tally.Kind) + " " + tally.Domain
		if seen[name] {
			t.Errorf("%s is listed twice", name)
		}
		if seen[name] = true; tally.Count != 0 {
			some[name] = tally.Count
		}
	}
	return some, len(tallies)
}

// TestTalliesAgreeWithTheReport, and list every kind from the start.
func TestTalliesAgreeWithTheReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := everything(t)
		some, all := found(t, f.monitor)
		want := map[string]int{
			"node-not-eligible ":              1,
			"first-write-held localport/IPv6": 1,
			"write-failing d/IPv4":            1,
			"api-stale ":                      2,
			"audit-failing localport/IPv4":    1,
			"drift d/IPv6":                    1,
			"quarantined d/IPv6":              12,
			"parked ":                         1,
			"stuck ":                          1,
			"refused ":                        1,
		}
		for name, count := range want {
			if some[name] != count {
				t.Errorf("%s is %d, want %d", name, some[name], count)
			}
			delete(some, name)
		}
		if len(some) > 0 {
			t.Errorf("unexpected: %v", some)
		}
		if want := 7*len(f.domains) + 8; all != want {
			t.Errorf("%d tallies, want %d", all, want)
		}
	})
}

// TestNoFindingEscapesTheTallies: each is about a domain or not, as its kind says.
func TestNoFindingEscapesTheTallies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := everything(t)
		domains := map[string]bool{}
		for i := range f.domains {
			domains[f.domains[i].Status.Domain] = true
		}
		for _, finding := range f.monitor.Report().Findings {
			if finding.Kind.ofDomain() != domains[finding.About] {
				t.Errorf("%s is about %q", finding.Kind, finding.About)
			}
		}
	})
}

// TestTalliesGoBackToNothing once all is well.
func TestTalliesGoBackToNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		_, quiet := found(t, f.monitor)
		f.status(service.IPv4).Failures = 1
		time.Sleep(time.Minute)
		if some, _ := found(t, f.monitor); some["write-failing d/IPv4"] != 1 {
			t.Errorf("found %v", some)
		}
		f.status(service.IPv4).Failures = 0
		if some, all := found(t, f.monitor); len(some) != 0 || all != quiet {
			t.Errorf("found %v in %d, want nothing in %d", some, all, quiet)
		}
	})
}
