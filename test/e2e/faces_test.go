package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-proxy/sluice/test/e2e/harness"
)

// Health, metrics and debug pages are where kube-proxy has them, and describe this node.
func TestFaces(t *testing.T) { inEachMode(t, testFaces) }

func testFaces(t *testing.T, mode harness.Mode) {
	c := harness.NewCluster(t)
	c.StartProxy(mode)
	web := c.CreateService("web", corev1.ServiceTypeNodePort)
	c.SetEndpoints("web", c.A)
	reachAll(t, startMax, "the service works", []*harness.Host{c.X}, clusterIPs(t, web), c.A)
	c.SetEndpoints("web", c.A, c.B)
	reachAll(t, changeMax, "the endpoints changed", []*harness.Host{c.X}, clusterIPs(t, web), c.A, c.B)

	t.Run("health", func(t *testing.T) { lookAtHealth(t, c) })
	t.Run("metrics", func(t *testing.T) { lookAtMetrics(t, c) })
	t.Run("pages", func(t *testing.T) { lookAtPages(t, c, mode) })
	t.Run("event", func(t *testing.T) {
		event := awaitEvent(t, c, "Starting")
		if event.Regarding.Kind != "Node" || event.Regarding.Name != harness.NodeName || event.Type != corev1.EventTypeNormal || event.Action != "StartKubeProxy" {
			t.Errorf("event Starting: %s, action %s, regarding %+v", event.Type, event.Action, event.Regarding)
		}
	})
}

// health is the body of /healthz and /livez.
type health struct {
	LastUpdated  time.Time `json:"lastUpdated"`
	CurrentTime  time.Time `json:"currentTime"`
	NodeEligible *bool     `json:"nodeEligible"`
	Healthy      bool      `json:"healthy"`
	Status       map[string]struct {
		LastUpdated time.Time `json:"lastUpdated"`
		Healthy     bool      `json:"healthy"`
	} `json:"status"`
}

// askHealth gets one of the two, and checks what every answer has in common.
func askHealth(ctx context.Context, from *harness.Host, url string) (int, health, error) {
	page, err := from.Get(ctx, url)
	if err != nil {
		return 0, health{}, err
	}
	var body health
	decoder := json.NewDecoder(strings.NewReader(page.Body))
	decoder.DisallowUnknownFields() // strict readers get what kube-proxy says, and no more
	if err := decoder.Decode(&body); err != nil {
		return 0, health{}, fmt.Errorf("%s: %w: %s", url, err, page.Body)
	}
	if kind, sniff := page.Header.Get("Content-Type"), page.Header.Get("X-Content-Type-Options"); kind != "application/json" || sniff != "nosniff" {
		return 0, health{}, fmt.Errorf("%s: headers %v", url, page.Header)
	}
	if body.LastUpdated.IsZero() || time.Since(body.CurrentTime).Abs() > time.Minute {
		return 0, health{}, fmt.Errorf("%s: times: %s", url, page.Body)
	}
	for _, family := range harness.Families {
		if status, found := body.Status[family]; !found || !status.Healthy || status.LastUpdated.IsZero() {
			return 0, health{}, fmt.Errorf("%s: %s is not well: %s", url, family, page.Body)
		}
	}
	return page.Status, body, nil
}

func lookAtHealth(t *testing.T, c *harness.Cluster) {
	for _, from := range []*harness.Host{c.X, c.N1} {
		for _, path := range []string{"/healthz", "/livez"} {
			for _, url := range c.N1.URLs(harness.HealthPort, path) {
				status, body, err := askHealth(t.Context(), from, url)
				if err != nil {
					t.Error(err)
					continue
				}
				if status != http.StatusOK || !body.Healthy {
					t.Errorf("%s: %d, %+v", url, status, body)
				}
				if told := body.NodeEligible != nil; told != (path == "/healthz") || told && !*body.NodeEligible {
					t.Errorf("%s: nodeEligible: %v", url, body.NodeEligible)
				}
			}
		}
	}
}

// alerted are the series that dashboards and alerts for kube-proxy use. They have a value above 0
// once a change has been applied.
var alerted = []string{
	`kubeproxy_sync_proxy_rules_duration_seconds_count{ip_family="IPv4"}`,
	`kubeproxy_sync_proxy_rules_duration_seconds_count{ip_family="IPv6"}`,
	`kubeproxy_network_programming_duration_seconds_count{ip_family="IPv4"}`,
	`kubeproxy_network_programming_duration_seconds_count{ip_family="IPv6"}`,
	`kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family="IPv4"}`,
	`kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family="IPv6"}`,
	`kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{ip_family="IPv4"}`,
	`kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{ip_family="IPv6"}`,
	`kubeproxy_sync_proxy_rules_endpoint_changes_total`,
	`kubeproxy_sync_proxy_rules_service_changes_total`,
	`kubeproxy_proxy_healthz_total{code="200"}`,
	`kubeproxy_proxy_livez_total{code="200"}`,
	`process_start_time_seconds`,
}

func lookAtMetrics(t *testing.T, c *harness.Cluster) {
	harness.Eventually(t, changeMax, "the metrics tell of the change", func(ctx context.Context) error {
		page, err := metricsPage(ctx, c, "/metrics")
		if err != nil {
			return err
		}
		now := series(page.Body)
		for _, name := range alerted {
			if now[name] <= 0 {
				return fmt.Errorf("%s is %v", name, now[name])
			}
		}
		for _, start := range []string{"kubernetes_build_info{", "kubernetes_feature_enabled{", "rest_client_requests_total{"} {
			if !strings.Contains(page.Body, "\n"+start) {
				return fmt.Errorf("no series %s...}", start)
			}
		}
		return nil
	})
}

// series parses Prometheus' text format: values by name and labels, as written.
func series(text string) map[string]float64 {
	values := make(map[string]float64)
	for line := range strings.Lines(text) {
		at := strings.LastIndexByte(line, ' ')
		if at < 0 || strings.HasPrefix(line, "#") {
			continue
		}
		if value, err := strconv.ParseFloat(strings.TrimSpace(line[at:]), 64); err == nil {
			values[line[:at]] = value
		}
	}
	return values
}

// metricsPage gets a page of the metrics address, on the node.
func metricsPage(ctx context.Context, c *harness.Cluster, path string) (harness.Page, error) {
	page, err := c.N1.Get(ctx, "http://"+harness.MetricsAddress+path)
	if err == nil && page.Status != http.StatusOK {
		err = fmt.Errorf("%s: status %d: %s", path, page.Status, page.Body)
	}
	return page, err
}

func lookAtPages(t *testing.T, c *harness.Cluster, mode harness.Mode) {
	page := mustShow(t, c, "/proxyMode")
	if page.Body != string(mode) || page.Header.Get("Content-Type") != "text/plain; charset=utf-8" || page.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("/proxyMode: %q, %v", page.Body, page.Header)
	}
	if page := mustShow(t, c, "/healthz"); page.Body != "ok" {
		t.Errorf("/healthz of the metrics address: %q", page.Body)
	}
	for path, wanted := range map[string]string{
		"/metrics/services": `{name="web",namespace="default"}`,
		"/metrics/slis":     "kubernetes_healthcheck",
		"/flagz":            "hostname-override=" + harness.NodeName,
		"/statusz":          "kube-proxy statusz",
	} {
		if page := mustShow(t, c, path); !strings.Contains(page.Body, wanted) {
			t.Errorf("%s does not contain %q:\n%.2000s", path, wanted, page.Body)
		}
	}
	lookAtConfigz(t, mustShow(t, c, "/configz"), mode)
}

func lookAtConfigz(t *testing.T, page harness.Page, mode harness.Mode) {
	t.Helper()
	var all map[string]struct {
		APIVersion  string `json:"apiVersion"`
		Kind        string `json:"kind"`
		Mode        string `json:"mode"`
		ClusterCIDR string `json:"clusterCIDR"`
	}
	if err := json.Unmarshal([]byte(page.Body), &all); err != nil {
		t.Fatalf("/configz: %v: %.500s", err, page.Body)
	}
	got := all["kubeproxy.config.k8s.io"]
	if got.APIVersion != "kubeproxy.config.k8s.io/v1alpha1" || got.Kind != "KubeProxyConfiguration" || got.Mode != string(mode) || got.ClusterCIDR != harness.PodCIDRs {
		t.Errorf("/configz: %+v", got)
	}
}

func mustShow(t *testing.T, c *harness.Cluster, path string) harness.Page {
	t.Helper()
	page, err := metricsPage(t.Context(), c, path)
	if err != nil {
		t.Fatal(err)
	}
	return page
}

// awaitEvent waits for an event of the proxy with a reason.
func awaitEvent(t *testing.T, c *harness.Cluster, reason string) eventsv1.Event {
	t.Helper()
	var found eventsv1.Event
	harness.Eventually(t, changeMax, "event "+reason, func(ctx context.Context) error {
		all, err := c.Client.EventsV1().Events(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, event := range all.Items {
			if event.Reason == reason && event.ReportingController == "kube-proxy" {
				found = event
				return nil
			}
		}
		return fmt.Errorf("not among %d events", len(all.Items))
	})
	return found
}
