// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/observe/book"
	"github.com/sluice-proxy/sluice/observe/state"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/supervisor"
)

// ask gets /metrics/services.
func ask(t *testing.T, m *Metrics, parameters string, headers ...string) *http.Response {
	t.Helper()
	request := httptest.NewRequest(http.MethodGet, "/metrics/services?"+parameters, nil)
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	answer := httptest.NewRecorder()
	m.ServicesHandler().ServeHTTP(answer, request)
	if answer.Code != http.StatusOK {
		t.Fatalf("%s: %d %s", parameters, answer.Code, answer.Body)
	}
	return answer.Result()
}

// askText returns the samples of /metrics/services.
func askText(t *testing.T, m *Metrics, parameters string) samples {
	t.Helper()
	all := samples{}
	for _, f := range parse(t, ask(t, m, parameters)) {
		for _, metric := range f.GetMetric() {
			value := metric.GetGauge().GetValue()
			if f.GetType() == dto.MetricType_COUNTER {
				value = metric.GetCounter().GetValue()
			}
			all[f.GetName()+labelText(metric)] = value
		}
	}
	return all
}

func parse(t *testing.T, answer *http.Response) map[string]*dto.MetricFamily {
	t.Helper()
	if got := answer.Header.Get("Content-Type"); !strings.HasPrefix(got, "text/plain; version=0.0.4") {
		t.Errorf("content type %q", got)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// namesIn returns the names of the Services of an answer, sorted, and the number of omitted ones.
func namesIn(t *testing.T, m *Metrics, parameters string) (names []string, omitted int) {
	t.Helper()
	families := parse(t, ask(t, m, parameters))
	for _, metric := range families["sluice_service_commits_total"].GetMetric() {
		names = append(names, metric.GetLabel()[0].GetValue())
	}
	return names, int(families["sluice_services_omitted"].GetMetric()[0].GetGauge().GetValue())
}

// sampleOf names a sample of one Service.
func sampleOf(n int, name string, labels ...string) string {
	key := serviceKey(n)
	all := append([]string{fmt.Sprintf("name=%q", key.Name), fmt.Sprintf("namespace=%q", key.Namespace)}, labels...)
	slices.Sort(all)
	return name + "{" + strings.Join(all, ",") + "}"
}

// TestServicesHandler_History: the answer contains the commits, revision, actor and endpoints of a Service.
func TestServicesHandler_History(t *testing.T) {
	inWorld(t, func(w *world) {
		w.cache.SetSpec(spec(1))
		w.cache.SetSlice(slice4(1, 1, 1, 2, 3))
		w.prime()
		started := now() - 5
		askText(t, w.Metrics, "").expect(t, samples{
			"sluice_services_omitted":                                                    0,
			sampleOf(1, "sluice_service_last_commit_timestamp_seconds"):                  started,
			sampleOf(1, "sluice_service_commits_total"):                                  2, // one per family
			sampleOf(1, "sluice_service_revision_incarnation"):                           1,
			sampleOf(1, "sluice_service_revision_sequence"):                              2,
			sampleOf(1, "sluice_service_programming_last_seconds"):                       absent,
			sampleOf(1, "sluice_service_actor_restarts_total"):                           0,
			sampleOf(1, "sluice_service_actor_state", `state="running"`):                 1,
			sampleOf(1, "sluice_service_endpoints", `ip_family="IPv4"`, `kind="local"`):  1,
			sampleOf(1, "sluice_service_endpoints", `ip_family="IPv4"`, `kind="remote"`): 2,
			sampleOf(1, "sluice_service_endpoints", `ip_family="IPv6"`, `kind="remote"`): 0,
			sampleOf(1, "sluice_service_conntrack_deleted_entries_total"):                0,
			`sluice_service_actor_state{name="node",namespace="",state="running"}`:       absent,
		})
		changed := slice4(1, 1, 1, 2)
		changed.Trigger = time.Now().Add(-2 * time.Second)
		w.cache.SetSlice(changed)
		w.settle()
		w.book().FlowsDeleted(map[service.Key]int{serviceKey(1): 4, serviceKey(2): 3})
		s := askText(t, w.Metrics, "")
		s.expect(t, samples{
			sampleOf(1, "sluice_service_commits_total"):                                  3,
			sampleOf(1, "sluice_service_revision_sequence"):                              3,
			sampleOf(1, "sluice_service_endpoints", `ip_family="IPv4"`, `kind="remote"`): 1,
			sampleOf(1, "sluice_service_conntrack_deleted_entries_total"):                4,
			sampleOf(2, "sluice_service_conntrack_deleted_entries_total"):                absent,
		})
		if took := s[sampleOf(1, "sluice_service_network_programming_last_seconds")]; took < 2 || took > 3 {
			t.Errorf("took %v s from a cause 2 s ago", took)
		}
		if took, longest := s[sampleOf(1, "sluice_service_programming_last_seconds")], s[sampleOf(1, "sluice_service_programming_longest_seconds")]; took != longest || took > 1 {
			t.Errorf("took %v s from its receipt, %v s at most", took, longest)
		}
		w.cache.RemoveSpec(serviceKey(1))
		w.settle()
		if got, _ := namesIn(t, w.Metrics, ""); len(got) > 0 {
			t.Errorf("still listed: %v", got)
		}
	})
}

// TestServicesHandler_QuarantineAndFailures: the answer contains the quarantine of a Service and the failures of its
// actor.
func TestServicesHandler_QuarantineAndFailures(t *testing.T) {
	inWorld(t, func(w *world) {
		w.reject("172.30.0.1/32")
		w.broken["s2"] = true
		for n := range 3 {
			w.cache.SetSpec(spec(n))
		}
		w.prime()
		time.Sleep(time.Minute)
		synctest.Wait()
		s := askText(t, w.Metrics, "")
		s.expect(t, samples{
			sampleOf(1, "sluice_service_quarantined", `domain="iptables/IPv4"`, `reason="invalid"`): 1,
			sampleOf(1, "sluice_service_actor_state", `state="running"`):                            1,
			sampleOf(2, "sluice_service_actor_state", `state="parked"`):                             1,
			sampleOf(2, "sluice_service_last_commit_timestamp_seconds"):                             absent,
		})
		if s[sampleOf(2, "sluice_service_actor_restarts_total")] == 0 {
			t.Error("the broken actor was never started again")
		}
		for _, parameters := range []string{"top=1", "limit=1", "top=3&limit=1"} {
			if got, _ := namesIn(t, w.Metrics, parameters); !slices.Equal(got, []string{"s1"}) {
				t.Errorf("%s: %v, want the quarantined one", parameters, got)
			}
		}
		if r, _ := w.book().Look().Service(serviceKey(1)); r.State != state.Rejected || len(r.Quarantines) != 1 {
			t.Errorf("record: %+v", r)
		}
		of, _ := w.book().Look().Service(serviceKey(2))
		r := of.Actor
		if of.State != state.Failing || r.State != state.ActorParked || r.ParkedUntil.IsZero() || r.FailedAt.IsZero() || r.LastFailure != "panic: panic: this Service is broken" || r.Failures == 0 {
			t.Errorf("record: %+v", r)
		}
	})
}

// listedMetrics makes a Metrics whose Service n took n seconds.
func listedMetrics(t testing.TB, services int) *Metrics { return listed(t, services).Metrics }

func listed(t testing.TB, services int) watched {
	t.Helper()
	m, err := New(Config{Mode: modeNFTables, Book: book.New(book.Config{
		Domains: []book.Domain{{Name: domain4}},
		Status:  func() []aggregator.Status { return []aggregator.Status{{Domain: domain4}} },
	})})
	if err != nil {
		t.Fatal(err)
	}
	for n := range services {
		at := time.Now()
		m.config.Book.Supervisor(supervisor.Event[service.Key]{Child: serviceKey(n), What: supervisor.Started{}})
		m.config.Book.Aggregator(aggregator.Applied{Domain: domain4, At: at, Contribution: dataplane.Contribution{
			Key: serviceKey(n), Revision: service.Revision{Incarnation: 1, Sequence: 1}, Received: at.Add(-time.Duration(n) * time.Second)}})
	}
	return watched{m}
}

// TestServicesHandler_SelectsByParameters: the parameters namespace, name, limit and top select Services.
func TestServicesHandler_SelectsByParameters(t *testing.T) {
	m := listedMetrics(t, 7)
	for parameters, want := range map[string]string{
		"":                      "s0 s1 s2 s3 s4 s5 s6, 0 omitted",
		"namespace=ns1":         "s1 s4, 0 omitted",
		"name=s5":               "s5, 0 omitted",
		"namespace=ns1&name=s5": ", 0 omitted",
		"limit=2":               "s0 s3, 5 omitted",
		"limit=0":               "s0 s1 s2 s3 s4 s5 s6, 0 omitted",
		"top=3":                 "s4 s5 s6, 4 omitted",
		"top=3&limit=1":         "s6, 6 omitted",
		"top=2&namespace=ns0":   "s3 s6, 1 omitted",
		"top=0&limit=1":         "s0, 6 omitted",
	} {
		names, omitted := namesIn(t, m, parameters)
		if got := fmt.Sprintf("%s, %d omitted", strings.Join(names, " "), omitted); got != want {
			t.Errorf("%q returns %s, want %s", parameters, got, want)
		}
	}
}

// TestServicesHandler_ShadowedAlwaysIncluded: an answer with a limit includes shadowed Services first, even if others
// were slower.
func TestServicesHandler_ShadowedAlwaysIncluded(t *testing.T) {
	m := listedMetrics(t, 7)
	for _, n := range []int{1, 2} {
		m.config.Book.Source(source.Shadowed{Key: serviceKey(n), By: serviceKey(0), Frontends: make(service.Frontends, 1)})
	}
	for parameters, want := range map[string]string{
		"top=1":   "s2",
		"top=3":   "s1 s2 s6",
		"limit=1": "s1",
		"limit=3": "s0 s1 s2",
		"":        "s0 s1 s2 s3 s4 s5 s6",
	} {
		names, _ := namesIn(t, m, parameters)
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%q returns %s, want %s", parameters, got, want)
		}
	}
	askText(t, m, "top=1").expect(t, samples{sampleOf(2, "sluice_service_shadowed"): 1})
}

// TestServicesHandler_BoundedByDefault: without parameters, the number of Services in an answer is limited.
func TestServicesHandler_BoundedByDefault(t *testing.T) {
	m := listedMetrics(t, limitDefault+5)
	if names, omitted := namesIn(t, m, ""); len(names) != limitDefault || omitted != 5 {
		t.Errorf("%d Services, %d omitted", len(names), omitted)
	}
	if names, omitted := namesIn(t, m, "top=1003"); len(names) != 1003 || omitted != 2 {
		t.Errorf("the top: %d Services, %d omitted", len(names), omitted)
	}
}

// TestServicesHandler_InvalidParameters: an invalid parameter or method is rejected with an error that names it.
func TestServicesHandler_InvalidParameters(t *testing.T) {
	m := listedMetrics(t, 1)
	for parameters, words := range map[string]string{
		"limit=-1":        `parameter "limit": "-1"`,
		"limit=1&limit=2": `parameter "limit": given 2 times`,
		"top=many":        `parameter "top": "many"`,
		"namesapce=ns1":   `parameter "namesapce"`,
	} {
		answer := httptest.NewRecorder()
		m.ServicesHandler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics/services?"+parameters, nil))
		if answer.Code != http.StatusBadRequest || !strings.Contains(answer.Body.String(), words) {
			t.Errorf("%s: %d %s", parameters, answer.Code, answer.Body)
		}
	}
	answer := httptest.NewRecorder()
	m.ServicesHandler().ServeHTTP(answer, httptest.NewRequest(http.MethodDelete, "/metrics/services", nil))
	if answer.Code != http.StatusMethodNotAllowed || answer.Header().Get("Allow") != "GET, HEAD" {
		t.Errorf("DELETE: %d %v", answer.Code, answer.Header())
	}
}

// TestMetrics_Concurrent: all methods are safe for concurrent use.
func TestMetrics_Concurrent(t *testing.T) {
	m := listed(t, 50)
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
					m.Programmed(t.Context(), service.IPv4, view)
				case 3:
					if n%20 == 0 {
						gathered(t, m.Metrics)
						askText(t, m.Metrics, "top=5")
					}
				}
			}
		})
	}
	running.Wait()
	for n := range 50 {
		m.Supervisor(supervisor.Event[service.Key]{Child: serviceKey(n), What: supervisor.Ended{}})
	}
	if left := m.book().Totals(); left.Internal[service.IPv4] != 0 || left.Actors != (state.Actors{}) || slices.Max(left.Balanced) > 0 {
		t.Errorf("all Services have ended, and this is left: %+v", left)
	}
}

// TestServicesHandler_DrainingEndpoints: the number of draining endpoints is exported while there are any.
func TestServicesHandler_DrainingEndpoints(t *testing.T) {
	inWorld(t, func(w *world) {
		leaving := map[service.Key]int{}
		w.book().Domains[0].Leaving = func() map[service.Key]int { return leaving }
		w.cache.SetSpec(spec(1))
		w.cache.SetSlice(slice4(1, 1, 1, 2))
		w.prime()
		name := sampleOf(1, "sluice_service_endpoints", `ip_family="IPv4"`, `kind="draining"`)
		for _, want := range []int{0, 3, 2, 0} {
			leaving[serviceKey(1)], leaving[serviceKey(9)] = want, 3 // the second one has no actor
			value, known := askText(t, w.Metrics, "")[name]
			if known != (want > 0) || value != float64(want) {
				t.Errorf("%v %v, want %d", value, known, want)
			}
		}
	})
}

// TestActivity_RecentChangesAndLag: the durations and the lag of recent changes are measured; the startup does not
// count.
func TestActivity_RecentChangesAndLag(t *testing.T) {
	inWorld(t, func(w *world) {
		w.cache.SetSpec(spec(1))
		w.prime()
		if c := w.book().Activity().Changes; c.P99Micros != 0 {
			t.Errorf("startup counts: %+v", c)
		}
		if at := w.book().Domain(&aggregator.Status{Domain: domain4}).Read; at.IsZero() {
			t.Errorf("audited %v", at)
		}
		s := slice4(1, 0, 1)
		s.Trigger = time.Now().Add(-3 * time.Second)
		w.cache.SetSlice(s)
		w.settle()
		if c, lag := w.book().Activity().Changes, w.book().Activity().Lag; c.P50Micros == 0 || c.P50Micros > 1e6 || lag.P50Micros < 2.7e6 || lag.P50Micros > 3.3e6 {
			t.Errorf("changes %+v, lag %+v", c, lag)
		}
	})
}
