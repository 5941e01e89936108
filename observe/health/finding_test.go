// SPDX-License-Identifier: Apache-2.0

package health

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/actors"
	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ledger"
	"github.com/sluice-proxy/sluice/observe/state"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/supervisor"
)

// TestKinds_Documented: each kind of finding has advice, a meaning and a row in docs/health.md.
func TestKinds_Documented(t *testing.T) {
	page, err := os.ReadFile("../../docs/health.md")
	if err != nil {
		t.Fatal(err)
	}
	kinds := Kinds()
	if len(kinds) < 12 {
		t.Errorf("kinds: %v", kinds)
	}
	for _, k := range kinds {
		if Advice(k) == "" || guide[rank(k)].meaning == "" {
			t.Errorf("%s: no advice or no meaning", k)
		}
		if n := strings.Count(string(page), "\n| `"+string(k)+"` |"); n != 1 {
			t.Errorf("%s: %d rows in docs/health.md, want 1", k, n)
		}
	}
	if advice := Advice("unheard-of"); advice != "" {
		t.Errorf("advice about nothing: %q", advice)
	}
}

func TestBounded(t *testing.T) {
	for _, n := range []int{0, 1, ServicesMax, ServicesMax + 1, 1000} {
		var all []Affected
		for i := range n {
			all = append(all, Affected{Service: fmt.Sprintf("ns1/%04d", i)})
		}
		rand.Shuffle(n, func(i, j int) { all[i], all[j] = all[j], all[i] })
		named, more := bounded(all)
		if len(named) != min(n, ServicesMax) || len(named)+more != n {
			t.Errorf("%d: %d named and %d more", n, len(named), more)
		}
		for i, a := range named {
			if want := fmt.Sprintf("ns1/%04d", i); a.Service != want {
				t.Errorf("%d: number %d is %s, want %s", n, i, a.Service, want)
			}
		}
	}
}

// everything makes a fixture in which a bit of everything is wrong, 100 s after
// the start.
func everything(t *testing.T) *fixture {
	f := newFixture(t)
	m := f.book
	for _, name := range []string{"parked", "stuck", "large"} {
		m.Supervisor(event(name, 1, supervisor.Started{}))
	}
	f.domains = append(f.domains,
		DomainStatus{Family: service.IPv4, Auxiliary: true, Status: aggregator.Status{Domain: "localport/IPv4", Open: true}},
		DomainStatus{Family: service.IPv6, Auxiliary: true, Status: aggregator.Status{Domain: "localport/IPv6"}})
	m.Aggregator(aggregator.AuditDone{Domain: "d/IPv6"})
	time.Sleep(28 * time.Second)
	f.status(service.IPv4).Failures = 6
	f.status(service.IPv4).LastError = "nft: No buffer\n\tspace   available"
	m.Aggregator(aggregator.BatchWritten{Domain: "d/IPv4", Receipt: dataplane.Receipt{Outcome: dataplane.Busy}})
	time.Sleep(40 * time.Second)
	m.Supervisor(event("parked", 1, supervisor.Parked{Err: errors.New("panic: nil map")}))
	m.Supervisor(event("stuck", 7, supervisor.Stuck{For: 10*time.Second + 3*time.Microsecond}))
	m.Actors(actors.TooLarge{Key: key("large"), Excess: service.Excess{Objects: 7, Max: 5, LeftOut: 2}})
	m.Source(source.Shadowed{Key: key("shadowed"), By: key("owner"), Frontends: service.Frontends{{Port: 30080}, {Port: 30081}}})
	m.Aggregator(aggregator.AuditDone{Domain: "d/IPv6", Drift: ledger.Drift{Equal: 5, Missing: 3, Different: 2, Unwanted: 1}})
	m.Aggregator(aggregator.AuditDone{Domain: "localport/IPv4", Err: errors.New("no answer")})
	for i := range 12 {
		f.status(service.IPv6).Quarantined = append(f.status(service.IPv6).Quarantined,
			aggregator.QuarantinedKey{Key: key(fmt.Sprintf("bad%02d", i)), Reason: "Invalid argument", Since: time.Now()})
	}
	time.Sleep(32 * time.Second)
	f.status(service.IPv6).LastWrite = time.Now().Add(-31 * time.Second)
	f.node = tainted
	f.resources = []state.Resource{
		{Name: "services", Heard: time.Now()},
		{Name: "endpointslices", Heard: time.Now(), FailingSince: time.Now().Add(-3 * time.Second), Error: "connection refused"},
		{Name: "nodes", Heard: time.Now().Add(-6 * time.Minute)},
		{Name: "servicecidrs", Absent: true, Error: "not found"},
	}
	return f
}

// TestHandler_VerboseText compares the whole text of a verbose answer.
func TestHandler_VerboseText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := everything(t)
		w := f.get(t, "/healthz?verbose")
		want := `unhealthy (503) at ` + time.Now().Format(time.RFC3339) + `
IPv4: unhealthy, last verified 1m40s ago, a change is pending for 1m12s
IPv6: healthy, last verified 31s ago
node: not eligible

[unhealthy] node-not-eligible
  the Node is tainted with ToBeDeletedByClusterAutoscaler
  advice: ADVICE

[degraded] first-write-held localport/IPv6, since 1m40s
  no rules written since startup: waiting for the initial list of Services, EndpointSlices and the Node
  advice: ADVICE

[unhealthy] write-failing d/IPv4, since 1m12s
  failed writes in a row: 6; the last error: nft: No buffer space available
  advice: ADVICE

[degraded] api-stale endpointslices, nodes, since 6m0s
  endpointslices: cannot read from the API server: connection refused; nodes: the API server is silent
  advice: ADVICE

[degraded] audit-failing localport/IPv4, since 32s
  cannot read back the kernel's rules: no answer
  advice: ADVICE

[degraded] drift d/IPv6, since 32s
  an audit found 3 objects missing, 2 different and 1 unwanted, restored since; audits that found drift since the start: 1
  advice: ADVICE

[degraded] quarantined d/IPv6, since 32s
  Services with rules that are rejected or cannot be written: 12
    ns1/bad00, since 32s: Invalid argument
    ns1/bad01, since 32s: Invalid argument
    ns1/bad02, since 32s: Invalid argument
    ns1/bad03, since 32s: Invalid argument
    ns1/bad04, since 32s: Invalid argument
    ns1/bad05, since 32s: Invalid argument
    ns1/bad06, since 32s: Invalid argument
    ns1/bad07, since 32s: Invalid argument
    ns1/bad08, since 32s: Invalid argument
    ns1/bad09, since 32s: Invalid argument
    and 2 more
  advice: ADVICE

[degraded] too-large, since 32s
  Services that need too many objects: 1
    ns1/large, since 32s: needs 7 objects over IPv4; the limit is 5; frontends left out: 2
  advice: ADVICE

[degraded] shadowed, since 32s
  Services that request addresses and ports owned by other Services: 1
    ns1/shadowed, since 32s: ns1/owner serves 2 of its frontends
  advice: ADVICE

[degraded] parked, since 32s
  actors that keep failing: 1
    ns1/parked, since 32s: panic: nil map
  advice: ADVICE

[degraded] stuck, since 32s
  actors that hung and did not return: 1
    ns1/stuck, since 32s: incarnation 7 spent 10s on one message
  advice: ADVICE
`
		for _, k := range []Kind{NodeNotEligible, FirstWriteHeld, WriteFailing, APIStale, AuditFailing, Drift, Quarantined, TooLarge, Shadowed, Parked, Stuck} {
			want = strings.Replace(want, "ADVICE", Advice(k), 1)
		}
		if got := w.Body.String(); w.Code != 503 || got != want {
			t.Errorf("%d\n%s\nwant 503\n%s", w.Code, got, want)
		}
		if got := w.Header(); got.Get("Content-Type") != "text/plain; charset=utf-8" || got.Get("X-Content-Type-Options") != "nosniff" || got.Get("Vary") != "Accept" {
			t.Errorf("headers %v", got)
		}
		if want := []string{"/healthz 503"}; !slices.Equal(f.answered, want) {
			t.Errorf("reported %v", f.answered)
		}
	})
}

// TestHandler_VerboseJSON: verbose JSON contains the findings, and all fields of JSON without verbose.
func TestHandler_VerboseJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := everything(t)
		w := f.get(t, "/healthz?verbose=1", "Accept", "application/json")
		plain := f.get(t, "/healthz").Body.String()
		if !strings.HasPrefix(w.Body.String(), strings.TrimSuffix(plain, "}")) || w.Code != 503 || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%d %v\n%s\nis not an extension of\n%s", w.Code, w.Header(), w.Body, plain)
		}
		var body answer
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
			t.Fatal(err)
		}
		report := f.monitor.Report()
		if len(body.Findings) != len(report.Findings) {
			t.Fatalf("%d findings, want %d", len(body.Findings), len(report.Findings))
		}
		for i, got := range body.Findings {
			want := report.Findings[i]
			if got.Kind != want.Kind || got.About != want.About || !got.Since.Equal(want.Since) || got.Unhealthy != want.Unhealthy ||
				got.Problem != want.Problem || got.Advice != Advice(want.Kind) || len(got.Services) != len(want.Services) || got.More != want.More {
				t.Errorf("got %+v, want %+v", got, want)
			}
			for n, s := range got.Services {
				if s.Service != want.Services[n].Service || s.Reason != want.Services[n].Reason || !s.Since.Equal(want.Services[n].Since) {
					t.Errorf("got %+v, want %+v", s, want.Services[n])
				}
			}
		}
	})
}

// TestHandler_VerboseLivezIgnoresNode: /livez?verbose lists the Node's problem, which does not make it unhealthy.
func TestHandler_VerboseLivezIgnoresNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.node = tainted
		w := f.get(t, "/livez?verbose")
		if got := w.Body.String(); w.Code != 200 || !strings.HasPrefix(got, "degraded (200)") || strings.Contains(got, "\nnode:") ||
			!strings.Contains(got, "[degraded] node-not-eligible") || strings.Contains(got, "[unhealthy]") {
			t.Errorf("%d %s", w.Code, got)
		}
		f.node = fine
		if got := f.get(t, "/livez?verbose").Body.String(); !strings.HasSuffix(got, "\nno problems found\n") {
			t.Errorf("%s", got)
		}
	})
}

// found returns the tallies that are not 0, by kind and domain, and the number of all.
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

// TestTallies_MatchReport: the tallies have the numbers of the report, and list every kind from the start.
func TestTallies_MatchReport(t *testing.T) {
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
			"too-large ":                      1,
			"shadowed ":                       1,
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
		if want := 8*len(f.domains) + 19; all != want {
			t.Errorf("%d tallies, want %d", all, want)
		}
	})
}

// TestTallies_CoverEveryFinding: a finding is about a domain exactly if its kind is, so that the tallies contain it.
func TestTallies_CoverEveryFinding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := everything(t)
		domains := map[string]bool{}
		for i := range f.domains {
			domains[f.domains[i].Status.Domain] = true
		}
		for _, finding := range f.monitor.Report().Findings {
			if ofDomain(finding.Kind) != domains[finding.About] {
				t.Errorf("%s is about %q", finding.Kind, finding.About)
			}
		}
	})
}

// TestTallies_ReturnToZero: the tallies return to zero when the problem ends.
func TestTallies_ReturnToZero(t *testing.T) {
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

// TestHandler_DetailsOnlyForLocalClients: only clients on the node read texts of other programs, which may contain a
// secret. Other clients learn the problems and the names of the Services.
func TestHandler_DetailsOnlyForLocalClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const secret = "--token=hunter2"
		f := newFixture(t)
		f.monitor.config.Others = func() []Finding {
			return []Finding{{Kind: NoLock, Problem: "pid 7 (agent " + secret + ")"}, {Kind: AddressTaken, Problem: secret}, {Kind: "new", Problem: secret}}
		}
		f.monitor.config.Standby = func() Standby { return Standby{For: secret, Since: time.Now()} }
		f.resources = []state.Resource{{Name: "services", FailingSince: time.Now(), Error: secret}}
		f.status(service.IPv4).Quarantined = []aggregator.QuarantinedKey{{Key: bad, Reason: "pid 8 (" + secret + ") has the port"}}
		f.status(service.IPv6).Failures, f.status(service.IPv6).LastError = 1, secret
		f.book.Aggregator(aggregator.AuditDone{Domain: "d/IPv4", Err: errors.New(secret)})
		for _, accept := range []string{"", "application/json"} {
			own := f.get(t, "/healthz?verbose", "Accept", accept)
			r := httptest.NewRequest(http.MethodGet, "/healthz?verbose", nil)
			r.RemoteAddr, r.Host = "192.0.2.66:40000", "localhost"
			r.Header.Set("Accept", accept)
			w := httptest.NewRecorder()
			f.handler.ServeHTTP(w, r)
			if n := strings.Count(own.Body.String(), secret); n != 8 {
				t.Errorf("%q: a client on the node reads %d details, want 8: %s", accept, n, own.Body)
			}
			if text := w.Body.String(); strings.Contains(text, secret) || !strings.Contains(text, bad.String()) ||
				!strings.Contains(text, string(WriteFailing)) || !strings.Contains(text, "writes fail, and no single Service is the cause; details") {
				t.Errorf("%q: another client reads %s", accept, text)
			}
			if w.Code != own.Code {
				t.Errorf("%q: status %d, and %d for a client on the node", accept, w.Code, own.Code)
			}
		}
	})
}

// TestFindings_ShadowedServices: a shadowed Service is a finding as long as another Service owns its frontends, and
// keeps the node healthy.
func TestFindings_ShadowedServices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		one, other := service.Key{Namespace: "shop", Name: "one"}, service.Key{Namespace: "shop", Name: "other"}
		loses := func(by service.Key, frontends int) source.Shadowed {
			return source.Shadowed{Key: bad, By: by, Frontends: make(service.Frontends, frontends)}
		}
		over := func(e source.Shadowed) source.Shadowed {
			e.Over = true
			return e
		}
		found := func(want string) {
			t.Helper()
			var text strings.Builder
			report := f.monitor.Report()
			for _, finding := range report.Findings {
				fmt.Fprint(&text, finding.Kind, " ", finding.About, ": ", finding.Problem)
				for _, s := range finding.Services {
					fmt.Fprint(&text, "; ", s.Service, ": ", s.Reason)
				}
			}
			if text.String() != want || !report.Healthy() {
				t.Errorf("found %q, want %q", text.String(), want)
			}
			if got := f.book.Affected(Shadowed); len(got) != strings.Count(want, bad.String()) {
				t.Errorf("shadowed: %v", got)
			}
		}
		found("")
		f.book.Source(loses(one, 2))
		f.book.Source(loses(one, 1))
		const problem = "shadowed : Services that request addresses and ports owned by other Services: 1; "
		found(problem + bad.String() + ": shop/one serves 3 of its frontends")
		f.book.Source(loses(other, 1))
		found(problem + bad.String() + ": shop/one serves 3 of its frontends, and there are others")
		f.book.Source(over(loses(other, 1)))
		f.book.Source(over(loses(one, 2)))
		found(problem + bad.String() + ": shop/one serves 1 of its frontends")
		f.book.Source(over(loses(one, 1)))
		found("")
		const most = 1000
		for i := range 2 * most {
			e := loses(one, 1)
			e.Key.Name = fmt.Sprint("many", i)
			f.book.Source(e)
		}
		if n := len(f.book.Affected(Shadowed)); n != most {
			t.Errorf("%d Services are remembered, want %d", n, most)
		}
	})
}
