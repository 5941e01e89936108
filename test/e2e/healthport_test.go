package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-proxy/sluice/test/e2e/harness"
)

// A load balancer for externalTrafficPolicy Local asks each node whether it has an endpoint.
func TestHealthCheckNodePort(t *testing.T) { inEachMode(t, testHealthCheckNodePort) }

func testHealthCheckNodePort(t *testing.T, mode harness.Mode) {
	c := harness.NewCluster(t)
	proxy := c.StartProxy(mode)
	web := c.CreateService("web", corev1.ServiceTypeLoadBalancer, func(spec *corev1.ServiceSpec) {
		spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	})
	port := uint16(web.Spec.HealthCheckNodePort)
	if port == 0 {
		t.Fatal("the API server gave the service no health-check node port")
	}
	c.SetEndpoints("web", c.A, c.B)
	awaitLocalEndpoints(t, startMax, c, port, 1)
	c.SetEndpoints("web", c.B)
	awaitLocalEndpoints(t, changeMax, c, port, 0)
	c.SetEndpoints("web", c.A, c.B)
	awaitLocalEndpoints(t, changeMax, c, port, 1)

	if err := proxy.Kill(); err != nil {
		t.Fatal(err)
	}
	c.StartProxy(mode)
	awaitLocalEndpoints(t, startMax, c, port, 1)
	c.DeleteService("web")
	harness.Eventually(t, changeMax, "no answer for a deleted service", func(ctx context.Context) error {
		for _, url := range c.N1.URLs(port, "/") {
			page, err := c.X.Get(ctx, url)
			if err == nil {
				return fmt.Errorf("%s: %d %s", url, page.Status, page.Body)
			}
			if !strings.Contains(err.Error(), "connection refused") {
				return fmt.Errorf("%s: want a rejection: %w", url, err)
			}
		}
		return nil
	})
}

// localEndpointsBody is what kube-proxy answers, to the byte.
const localEndpointsBody = `{
	"service": {
		"namespace": "default",
		"name": "web"
	},
	"localEndpoints": %d,
	"serviceProxyHealthy": true
}`

// awaitLocalEndpoints waits until the port reports a number of endpoints, at any path and in both
// families.
func awaitLocalEndpoints(t *testing.T, limit time.Duration, c *harness.Cluster, port uint16, want int) {
	t.Helper()
	status, body := http.StatusOK, fmt.Sprintf(localEndpointsBody, want)
	if want == 0 {
		status = http.StatusServiceUnavailable
	}
	headers := map[string]string{
		"Content-Type": "application/json", "X-Content-Type-Options": "nosniff",
		"X-Load-Balancing-Endpoint-Weight": strconv.Itoa(want),
	}
	what := fmt.Sprintf("%d local endpoints", want)
	harness.Eventually(t, limit, what, func(ctx context.Context) error {
		for _, url := range append(c.N1.URLs(port, "/"), c.N1.URLs(port, "/healthz")...) {
			page, err := c.X.Get(ctx, url)
			if err != nil {
				return err
			}
			if page.Status != status || page.Body != body {
				return fmt.Errorf("%s: %d %q, want %d %q", url, page.Status, page.Body, status, body)
			}
			for name, value := range headers {
				if page.Header.Get(name) != value {
					return fmt.Errorf("%s: header %s is %q, want %q", url, name, page.Header.Get(name), value)
				}
			}
		}
		return nil
	})
}
