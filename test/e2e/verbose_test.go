package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-proxy/sluice/test/e2e/harness"
)

// findingMax bounds the time from a failure to its finding. A delay becomes a finding after 10 s.
const findingMax = 30 * time.Second

// While the API server is away, the node stays healthy, and health page and metric name the same
// finding.
func TestHealthTellsOfTheAPIServer(t *testing.T) { inEachMode(t, testHealthOutage) }

func testHealthOutage(t *testing.T, mode harness.Mode) {
	c := harness.NewCluster(t)
	c.StartProxy(mode)
	web := c.CreateService("web", corev1.ServiceTypeClusterIP)
	c.SetEndpoints("web", c.A)
	reachAll(t, startMax, "the service works", []*harness.Host{c.X}, clusterIPs(t, web), c.A)
	awaitFindings(t, c, http.StatusOK)

	if err := c.Server.Stop(); err != nil {
		t.Fatal(err)
	}
	awaitFindings(t, c, http.StatusOK, "api-stale")
	if err := c.Server.Start(); err != nil {
		t.Fatal(err)
	}
	awaitFindings(t, c, http.StatusOK)
}

// A node that cannot write after its start, because it may not read the EndpointSlices, fails the
// probe after twice the sync period with the reason. It is healthy once it may.
func TestHealthTellsOfTheFirstWrite(t *testing.T) { inEachMode(t, testHealthHeld) }

func testHealthHeld(t *testing.T, mode harness.Mode) {
	c := harness.NewCluster(t)
	permit := c.Forbid("discovery.k8s.io", "endpointslices")
	path := filepath.Join(t.TempDir(), "config.yaml")
	period := string(mode) + ":\n  syncPeriod: 6s" // so that a probe fails after 12 s
	if err := os.WriteFile(path, []byte(c.Configuration(mode, clusterCIDR, period)), 0o644); err != nil {
		t.Fatal(err)
	}
	c.StartProxyWithConfig(path)
	awaitFindings(t, c, http.StatusServiceUnavailable, "api-stale", "first-write-held")
	permit()
	awaitFindings(t, c, http.StatusOK)
}

// awaitFindings waits until /healthz answers with a status and exactly these kinds of findings, and
// the gauge shows those kinds and no other.
func awaitFindings(t *testing.T, c *harness.Cluster, status int, kinds ...string) {
	t.Helper()
	harness.Eventually(t, findingMax, fmt.Sprintf("health is %d with %q", status, kinds), func(ctx context.Context) error {
		url := c.N1.URLs(harness.HealthPort, "/healthz?verbose")[0]
		page, err := c.N1.Get(ctx, url)
		if err != nil {
			return err
		}
		if page.Status != status {
			return fmt.Errorf("status %d: %s", page.Status, page.Body)
		}
		if got := foundInText(page.Body); !sameKinds(got, kinds) {
			return fmt.Errorf("found %v: %s", got, page.Body)
		}
		metrics, err := metricsPage(ctx, c, "/metrics")
		if err != nil {
			return err
		}
		got, all := foundInMetrics(metrics.Body)
		if !sameKinds(got, kinds) {
			return fmt.Errorf("the gauge shows %v", got)
		}
		// Five kinds about the node, and seven about each domain.
		if all < 5+7*len(harness.Families) {
			return fmt.Errorf("the gauge has %d series only", all)
		}
		return nil
	})
}

// foundInText reads the kinds of /healthz?verbose, one line each that starts with the weight in
// brackets.
func foundInText(body string) map[string]bool {
	found := make(map[string]bool)
	for line := range strings.Lines(body) {
		if words := strings.Fields(line); len(words) > 1 && strings.HasPrefix(words[0], "[") {
			found[strings.TrimSuffix(words[1], ",")] = true
		}
	}
	return found
}

// foundInMetrics reads the kinds whose gauge is above 0, and counts the series.
func foundInMetrics(body string) (found map[string]bool, all int) {
	found = make(map[string]bool)
	for name, value := range series(body) {
		labels, is := strings.CutPrefix(name, "sluice_health_finding{")
		if !is {
			continue
		}
		all++
		_, kind, _ := strings.Cut(labels, `finding="`)
		if value > 0 {
			found[strings.TrimSuffix(kind, `"}`)] = true
		}
	}
	return found, all
}

func sameKinds(found map[string]bool, kinds []string) bool {
	for _, kind := range kinds {
		if !found[kind] {
			return false
		}
	}
	return len(found) == len(kinds)
}
