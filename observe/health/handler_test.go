// SPDX-License-Identifier: Apache-2.0

package health

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/observe/book"
	"github.com/sluice-proxy/sluice/observe/state"
	"github.com/sluice-proxy/sluice/observe/web"
	"github.com/sluice-proxy/sluice/service"
)

// fixture is what a monitor under test reads; the test changes it.
type fixture struct {
	domains   []DomainStatus
	node      *service.NodeObject
	resources []state.Resource
	book      *book.Book
	monitor   *Monitor
	handler   http.Handler
	// answered lists the reported answers, "path code".
	answered []string
}

// newFixture makes a monitor of two quiet families on an eligible node, in a
// synctest bubble whose time has just begun.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{node: &service.NodeObject{Name: "n1"}}
	for _, family := range service.Families {
		f.domains = append(f.domains, DomainStatus{Family: family, Status: aggregator.Status{Domain: "d/" + family.String(), Open: true}})
	}
	f.book = book.New(book.Config{Status: func() (all []aggregator.Status) {
		for _, d := range f.domains {
			all = append(all, d.Status)
		}
		return all
	}})
	monitor := NewMonitor(Config{
		Book:      f.book,
		Domains:   func() []DomainStatus { return slices.Clone(f.domains) },
		Node:      func() *service.NodeObject { return f.node },
		Resources: func() []state.Resource { return f.resources }, SyncPeriod: 30 * time.Second,
	})
	f.monitor = monitor
	f.handler = Handler(monitor, web.OnHost, func(path string, code int) {
		f.answered = append(f.answered, fmt.Sprint(path, " ", code))
	})
	return f
}

// status returns the snapshot of a family, for the test to change.
func (f *fixture) status(family service.Family) *aggregator.Status { return &f.domains[family].Status }

// get asks for a path, from the host itself.
func (f *fixture) get(t *testing.T, path string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.RemoteAddr, r.Host = "127.0.0.1:40000", "localhost:10256"
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	f.handler.ServeHTTP(w, r)
	return w
}

// nodes in the ways that matter for eligibility.
var (
	fine     = &service.NodeObject{Name: "n1"}
	deleting = &service.NodeObject{Name: "n1", Deleting: true}
	tainted  = &service.NodeObject{Name: "n1", AutoscalerTaint: true}
)

// TestHandler_AnswerPerCause checks the answer for each cause. The process started 100 s ago; ages are in seconds.
func TestHandler_AnswerPerCause(t *testing.T) {
	at := func(seconds int) time.Time { return time.Now().Add(-time.Duration(seconds) * time.Second) }
	tests := []struct {
		name   string
		node   *service.NodeObject
		change func(f *fixture)
		// healthz and livez are the statuses; v4 and v6 what the body says.
		healthz, livez int
		v4, v6         bool
	}{
		{"nothing pending", fine, func(*fixture) {}, 200, 200, true, true},
		{"pending for less than twice the period", fine, func(f *fixture) { f.status(service.IPv4).OldestPending = at(59) }, 200, 200, true, true},
		{"pending for twice the period", fine, func(f *fixture) { f.status(service.IPv4).OldestPending = at(60) }, 503, 503, false, true},
		{"IPv6 pending too long", fine, func(f *fixture) { f.status(service.IPv6).OldestPending = at(61) }, 503, 503, true, false},
		{"both pending too long", fine, func(f *fixture) {
			f.status(service.IPv4).OldestPending, f.status(service.IPv6).OldestPending = at(90), at(90)
		}, 503, 503, false, false},
		{"no write for hours, and none needed", fine, func(f *fixture) { f.status(service.IPv4).LastWrite = at(7200) }, 200, 200, true, true},

		{"Node unknown", nil, func(*fixture) {}, 503, 200, true, true},
		{"Node being deleted", deleting, func(*fixture) {}, 503, 200, true, true},
		{"Node about to be deleted by the autoscaler", tainted, func(*fixture) {}, 503, 200, true, true},
		{"not eligible and pending too long", tainted, func(f *fixture) { f.status(service.IPv4).OldestPending = at(60) }, 503, 503, false, true},

		{"quarantined Services", fine, func(f *fixture) {
			f.status(service.IPv4).Quarantined = []aggregator.QuarantinedKey{{Key: bad, Since: at(3600)}}
		}, 200, 200, true, true},
		{"auxiliary domain pending too long", fine, func(f *fixture) {
			f.domains = append(f.domains, DomainStatus{Family: service.IPv4, Auxiliary: true,
				Status: aggregator.Status{Domain: "aux", OldestPending: at(3600), Failures: 9, NodeAtFault: true}})
		}, 200, 200, true, true},
		{"a second domain of a family counts, too", fine, func(f *fixture) {
			f.domains = append(f.domains, DomainStatus{Family: service.IPv6, Status: aggregator.Status{Domain: "more", Open: true, OldestPending: at(60)}})
		}, 503, 503, true, false},
		{"first write held since the start", fine, func(f *fixture) { f.status(service.IPv4).Open = false }, 503, 503, false, true},
		{"API unreadable, all that is known applied", fine, func(f *fixture) {
			f.resources = []state.Resource{{Name: "services", FailingSince: at(3600)}}
		}, 200, 200, true, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				time.Sleep(100 * time.Second)
				f.node = tt.node
				tt.change(f)
				checkStatusAndBody(t, f, "/healthz", tt.healthz, tt.node, tt.v4, tt.v6)
				checkStatusAndBody(t, f, "/livez", tt.livez, tt.node, tt.v4, tt.v6)
				for _, path := range []string{"/healthz", "/livez"} {
					if plain, verbose := f.get(t, path).Code, f.get(t, path+"?verbose").Code; plain != verbose {
						t.Errorf("%s answers %d, and %d with ?verbose", path, plain, verbose)
					}
				}
			})
		})
	}
}

// checkStatusAndBody asks for a path and checks everything about the answer
// but the families' times.
func checkStatusAndBody(t *testing.T, f *fixture, path string, want int, node *service.NodeObject, v4, v6 bool) {
	t.Helper()
	f.answered = nil
	w := f.get(t, path)
	if w.Code != want {
		t.Errorf("%s: got %d, want %d", path, w.Code, want)
	}
	if reported := fmt.Sprint(path, " ", want); !slices.Equal(f.answered, []string{reported}) {
		t.Errorf("reported %v, want %q", f.answered, reported)
	}
	if got := w.Header(); got.Get("Content-Type") != "application/json" || got.Get("X-Content-Type-Options") != "nosniff" || len(got) != 2 {
		t.Errorf("%s: headers %v", path, got)
	}
	var body map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if body["healthy"] != (v4 && v6) {
		t.Errorf("%s: healthy is %v", path, body["healthy"])
	}
	status := body["status"].(map[string]any)
	if got4, got6 := status["IPv4"].(map[string]any)["healthy"], status["IPv6"].(map[string]any)["healthy"]; got4 != v4 || got6 != v6 || len(status) != 2 {
		t.Errorf("%s: status %v, want %v and %v", path, status, v4, v6)
	}
	eligible, given := body["nodeEligible"]
	if given != (path == "/healthz") || (given && eligible != (node == fine)) {
		t.Errorf("%s: nodeEligible %v", path, eligible)
	}
	if updated := body["lastUpdated"] == body["currentTime"]; updated != (want == 200) {
		t.Errorf("%s: lastUpdated %v at %v", path, body["lastUpdated"], body["currentTime"])
	}
}

// TestHandler_BodiesMatchKubeProxy: the bodies equal those of kube-proxy v1.37, byte for byte.
func TestHandler_BodiesMatchKubeProxy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		start := time.Now()
		f.status(service.IPv6).LastWrite = start.Add(1500 * time.Millisecond)
		time.Sleep(70 * time.Second)
		text := func(after time.Duration) string { return start.Add(after).Format(time.RFC3339Nano) }
		now, v4, v6 := text(70*time.Second), text(0), text(1500*time.Millisecond)
		status := func(healthy bool) string {
			return fmt.Sprintf(`"status":{"IPv4":{"lastUpdated":%q,"healthy":%v},"IPv6":{"lastUpdated":%q,"healthy":true}}}`, v4, healthy, v6)
		}
		check := func(path, want string) {
			t.Helper()
			if got := f.get(t, path).Body.String(); got != want {
				t.Errorf("%s:\ngot  %s\nwant %s", path, got, want)
			}
		}
		check("/healthz", fmt.Sprintf(`{"lastUpdated":%q,"currentTime":%q,"nodeEligible":true,"healthy":true,`, now, now)+status(true))
		check("/livez", fmt.Sprintf(`{"lastUpdated":%q,"currentTime":%q,"healthy":true,`, now, now)+status(true))
		f.node = nil
		check("/healthz", fmt.Sprintf(`{"lastUpdated":%q,"currentTime":%q,"nodeEligible":false,"healthy":true,`, v6, now)+status(true))
		f.status(service.IPv4).OldestPending = start
		check("/healthz", fmt.Sprintf(`{"lastUpdated":%q,"currentTime":%q,"nodeEligible":false,"healthy":false,`, v6, now)+status(false))
		check("/livez", fmt.Sprintf(`{"lastUpdated":%q,"currentTime":%q,"healthy":false,`, v6, now)+status(false))
	})
}

// TestHandler_AbsentFamilies: answers do not contain a family that is not served.
func TestHandler_AbsentFamilies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.domains = f.domains[:1]
		if got := f.get(t, "/livez").Body.String(); !strings.Contains(got, `"IPv4"`) || strings.Contains(got, `"IPv6"`) {
			t.Errorf("IPv4 alone: %s", got)
		}
		f.domains = nil
		w := f.get(t, "/healthz")
		now := time.Now().Format(time.RFC3339Nano)
		want := fmt.Sprintf(`{"lastUpdated":%q,"currentTime":%q,"nodeEligible":true,"healthy":true}`, now, now)
		if w.Code != 200 || w.Body.String() != want {
			t.Errorf("no family yet: %d %s, want %s", w.Code, w.Body, want)
		}
	})
}

// TestHandler_AnyMethodNoOtherPath: the handler answers any method at /healthz and /livez, and no other path.
func TestHandler_AnyMethodNoOtherPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "BREW"} {
			for _, path := range []string{"/healthz", "/livez"} {
				w := httptest.NewRecorder()
				f.handler.ServeHTTP(w, httptest.NewRequest(method, path, nil))
				if w.Code != 200 {
					t.Errorf("%s %s: %d", method, path, w.Code)
				}
			}
		}
		f.answered = nil
		for _, path := range []string{"/", "/healthz/", "/healthz/ping", "/metrics", "/livezz"} {
			if w := f.get(t, path); w.Code != 404 {
				t.Errorf("%s: %d", path, w.Code)
			}
		}
		if len(f.answered) > 0 {
			t.Errorf("reported %v", f.answered)
		}
	})
}

// TestHandler_Standby: while this process waits for another one, /livez is 200 and /healthz is 503. Delays that the
// wait caused count from its end.
func TestHandler_Standby(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		standby := Standby{For: "pid 7", Since: time.Now()}
		m := NewMonitor(Config{
			Domains: func() []DomainStatus { return []DomainStatus{{Status: aggregator.Status{Domain: "d", Missing: 1}}} },
			Node:    func() *service.NodeObject { return fine },
			Standby: func() Standby { return standby }, SyncPeriod: 30 * time.Second,
		})
		check := func(path string, code int, healthy bool) {
			t.Helper()
			w := httptest.NewRecorder()
			Handler(m, web.OnHost, func(string, int) {}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
			var a answer
			if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil || w.Code != code || a.Healthy != healthy {
				t.Errorf("%s: %d %s, want %d and healthy %v", path, w.Code, w.Body, code, healthy)
			}
		}
		time.Sleep(time.Hour)
		check("/livez", 200, true)
		check("/healthz", 503, false)
		standby = Standby{Since: time.Now()}
		time.Sleep(time.Minute - 1)
		check("/livez", 200, true)
		check("/healthz", 200, true)
		time.Sleep(time.Nanosecond)
		check("/livez", 503, false)
		check("/healthz", 503, false)
	})
}
