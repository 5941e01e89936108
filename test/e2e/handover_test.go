// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-proxy/sluice/test/harness"
)

// Lines of configuration files. otherMetricsLine moves the metrics address.
const (
	clusterCIDR      = "clusterCIDR: " + harness.PodCIDRs
	otherCIDR        = "clusterCIDR: 10.244.2.0/24,fd00:244:2::/48" // of the pods on the other node
	otherMetrics     = "127.0.0.1:10999"
	otherMetricsLine = "metricsBindAddress: " + otherMetrics
)

// The same process applies a change that needs new parts, even of the mode: it hands over to parts
// made from the new file, and no client notices. A valid file that cannot be applied is rejected as
// a whole.
func TestHandOver(t *testing.T) { inModes(t, testHandOver, harness.NFTables, harness.Userspace) }

func testHandOver(t *testing.T, mode harness.Mode) {
	other := map[harness.Mode]harness.Mode{
		harness.IPTables: harness.NFTables, harness.NFTables: harness.IPTables, harness.Userspace: harness.NFTables,
	}[mode]
	c := harness.NewCluster(t)
	path := filepath.Join(t.TempDir(), "config.yaml")
	set := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	set(c.Configuration(mode, clusterCIDR))
	proxy := c.StartProxyWithConfig(path, "NET_BIND_SERVICE")
	clients := []*harness.Host{c.X, c.P1, c.N1}
	web := c.CreateService("web", corev1.ServiceTypeNodePort)
	c.SetEndpoints("web", c.A, c.B)
	targets := append(clusterIPs(t, web), nodePorts(t, web, c.N1)...)
	reachAll(t, "the service works", clients, targets, c.A, c.B)

	start := harness.StartTraffic
	if mode == harness.Userspace { // which ends open connections
		start = harness.StartNewTraffic
	}
	traffic := startTrafficBy(t, c, targets, start)
	set(c.Configuration(other, clusterCIDR))
	awaitMode(t, c, harness.MetricsAddress, other)
	settled(t, c, proxy)
	c.SetEndpoints("web", c.A, c.B, c.C)
	reachAll(t, "the endpoints scaled in the other mode", clients, targets, c.A, c.B, c.C)
	if event := awaitEvent(t, c, "Reloaded"); !strings.Contains(event.Note, "mode") {
		t.Errorf("event Reloaded: %q, want it to name the mode", event.Note)
	}

	set(c.Configuration(mode, clusterCIDR, otherMetricsLine))
	awaitMode(t, c, otherMetrics, mode)
	if page, err := c.N1.Get(t.Context(), "http://"+harness.MetricsAddress+"/proxyMode"); err == nil {
		t.Errorf("the former metrics address still answers: %d %s", page.Status, page.Body)
	}
	awaitOneMode(t, c.N1, mode)
	before := settled(t, c, proxy)

	// A file that cannot be applied, with a field that could have changed in place.
	kubeconfig := c.Server.ProxyKubeconfig()
	set(strings.Replace(c.Configuration(mode, otherCIDR, otherMetricsLine), kubeconfig, kubeconfig+"-nowhere", 1))
	awaitRejection(t, c, proxy, kubeconfig+"-nowhere")
	before.mustBeUntouched(t, "after a file that cannot be served by")
	awaitMode(t, c, otherMetrics, mode)
	c.SetEndpoints("web", c.A, c.B)
	reachAll(t, "the API server is followed as before the rejected file", clients, targets, c.A, c.B)
	stopTraffic(t, traffic)
	if !proxy.Running() {
		t.Error("the proxy ended")
	}
}

// awaitRejection waits until the log and an event of the node say what is wrong.
func awaitRejection(t *testing.T, c *harness.Cluster, proxy *harness.Proxy, place string) {
	t.Helper()
	harness.Eventually(t, "the log reports the mistake", func(context.Context) error {
		rejected := c.Log(proxy).Rejected
		if len(rejected) == 0 || !strings.Contains(rejected[len(rejected)-1].Problem, place) {
			return fmt.Errorf("rejected: %+v, want one with %q", rejected, place)
		}
		return nil
	})
	event := awaitEvent(t, c, "ConfigurationRejected")
	if event.Regarding.Kind != "Node" || event.Regarding.Name != harness.NodeName || event.Type != corev1.EventTypeWarning {
		t.Errorf("event ConfigurationRejected: %s, regarding %+v", event.Type, event.Regarding)
	}
	if !strings.Contains(event.Note, place) {
		t.Errorf("event ConfigurationRejected: %q, want it to contain %q", event.Note, place)
	}
}

// awaitMode waits until the metrics address reports a mode.
func awaitMode(t *testing.T, c *harness.Cluster, address string, want harness.Mode) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("%s says %s", address, want), func(ctx context.Context) error {
		page, err := c.N1.Get(ctx, "http://"+address+"/proxyMode")
		if err != nil {
			return err
		}
		if strings.TrimSpace(page.Body) != string(want) {
			return fmt.Errorf("it says %d %s", page.Status, page.Body)
		}
		return nil
	})
}
