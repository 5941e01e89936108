package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-proxy/sluice/test/e2e/harness"
)

// The proxy tries a metrics address in use again until it is free, and serves the node meanwhile.
// With bindAddressHardFail, the process ends, and an event says why.
func TestMetricsAddressInUse(t *testing.T) {
	t.Run("tried again", func(t *testing.T) { inEachMode(t, testAddressTriedAgain) })
	t.Run("fatal", func(t *testing.T) { inEachMode(t, testAddressFatal) })
}

// portRetry is the pause before the proxy tries an address again, which is kube-proxy's, and the
// time for the attempt.
const portRetry = 5*time.Second + changeMax

func testAddressTriedAgain(t *testing.T, mode harness.Mode) {
	c := harness.NewCluster(t)
	taken := occupy(t, c, harness.MetricsAddress)
	proxy := c.StartProxy(mode)
	web := c.CreateService("web", corev1.ServiceTypeClusterIP)
	c.SetEndpoints("web", c.A)
	reachAll(t, startMax, "the service works all the same", []*harness.Host{c.X}, clusterIPs(t, web), c.A)
	awaitLine(t, changeMax, proxy, "metrics server failed", "address already in use")
	if !proxy.Running() {
		t.Fatal("the proxy ended")
	}
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, portRetry, "metrics are served once the address is free", func(ctx context.Context) error {
		_, err := metricsPage(ctx, c, "/metrics")
		return err
	})
}

func testAddressFatal(t *testing.T, mode harness.Mode) {
	c := harness.NewCluster(t)
	occupy(t, c, harness.MetricsAddress)
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(c.Configuration(mode, clusterCIDR, "bindAddressHardFail: true")), 0o644); err != nil {
		t.Fatal(err)
	}
	proxy := c.StartProxyWithConfig(path)
	harness.Eventually(t, startMax, "the proxy ends", func(context.Context) error {
		if proxy.Running() {
			return errors.New("it runs")
		}
		return nil
	})
	if status := proxy.ExitStatus(); status != 1 {
		t.Errorf("exit status %d, want 1", status)
	}
	event := awaitEvent(t, c, "FailedToStartMetricServer")
	if event.Regarding.Kind != "Node" || event.Regarding.Name != harness.NodeName || event.Type != corev1.EventTypeWarning ||
		event.Action != "StartKubeProxy" || !strings.Contains(event.Note, "address already in use") {
		t.Errorf("event %s, action %s, regarding %+v: %s", event.Type, event.Action, event.Regarding, event.Note)
	}
}

// occupy listens on an address of the node, as another program would, until the end of the test at
// most. It answers no connection.
func occupy(t *testing.T, c *harness.Cluster, address string) net.Listener {
	t.Helper()
	listener, err := c.N1.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
	return listener
}

// awaitLine waits until one line of the proxy's log has all the words.
func awaitLine(t *testing.T, limit time.Duration, proxy *harness.Proxy, words ...string) {
	t.Helper()
	harness.Eventually(t, limit, fmt.Sprintf("the log says %q", words), func(context.Context) error {
		log, err := os.ReadFile(proxy.LogFile())
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(log)) {
			if containsAll(line, words) {
				return nil
			}
		}
		return fmt.Errorf("not in %d bytes", len(log))
	})
}

func containsAll(text string, words []string) bool {
	for _, word := range words {
		if !strings.Contains(text, word) {
			return false
		}
	}
	return true
}
