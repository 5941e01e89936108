package metrics

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	clientgo "k8s.io/client-go/tools/metrics"
)

// serve asks for /metrics.
func serve(t *testing.T, m *Metrics, accept string) *http.Response {
	t.Helper()
	request := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	request.Header.Set("Accept", accept)
	answer := httptest.NewRecorder()
	m.Handler().ServeHTTP(answer, request)
	if answer.Code != http.StatusOK {
		t.Fatalf("%d %s", answer.Code, answer.Body)
	}
	return answer.Result()
}

func TestHandlerServesTextWithTheProcess(t *testing.T) {
	m := listedMetrics(t, 3)
	// What client-go tells its listeners, whoever they are.
	clientgo.RequestResult.Increment(context.Background(), "200", "GET", "apiserver:6443")
	clientgo.RequestLatency.Observe(context.Background(), "GET", url.URL{Scheme: "https", Host: "apiserver:6443"}, time.Millisecond)
	answer := serve(t, m, "")
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\n# TYPE go_goroutines gauge\n", "\nprocess_start_time_seconds ", "\nkubernetes_build_info{",
		"\nrest_client_requests_total{code=\"200\",host=\"apiserver:6443\",method=\"GET\"} ",
		"\nrest_client_request_duration_seconds_bucket{host=\"apiserver:6443\",verb=\"GET\",le=\"0.005\"} ",
		"\nsluice_actors{state=\"running\"} ", "\nkubeproxy_sync_proxy_rules_service_changes_total 0\n",
	} {
		if !strings.Contains("\n"+string(body), want) {
			t.Errorf("%q is missing", want)
		}
	}
	if answer.Header.Get("Process-Start-Time-Unix") == "" {
		t.Error("the start of the process is not told")
	}
}

func TestHandlerServesNativeHistogramsToThoseWhoUnderstand(t *testing.T) {
	m := listedMetrics(t, 0)
	m.domains[domain4].programming.Observe(0.0001)
	answer := serve(t, m, "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited")
	decoder := expfmt.NewDecoder(answer.Body, expfmt.ResponseFormat(answer.Header))
	for {
		var family dto.MetricFamily
		if err := decoder.Decode(&family); err != nil {
			t.Fatalf("the histogram is missing: %v", err)
		}
		if family.GetName() == "sluice_programming_duration_seconds" {
			if h := family.GetMetric()[0].GetHistogram(); len(h.GetPositiveSpan()) == 0 || len(h.GetBucket()) == 0 {
				t.Errorf("not in both forms: %v", h)
			}
			return
		}
	}
}
