package e2e

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/sluice-proxy/sluice/test/e2e/harness"
)

// drainTaint is the taint that the cluster autoscaler sets before it removes a node.
const drainTaint = "ToBeDeletedByClusterAutoscaler"

// A node about to be removed reports so to load balancers at /healthz and stays healthy at /livez.
// It reverts when the node stays.
func TestDrainedNodeIsNotEligible(t *testing.T) { inEachMode(t, testDrainedNode) }

func testDrainedNode(t *testing.T, mode harness.Mode) {
	c := harness.NewCluster(t)
	proxy := c.StartProxy(mode)
	awaitEligible(t, c, true, "a node that stays is eligible")
	c.ChangeNode(func(node *corev1.Node) {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: drainTaint, Effect: corev1.TaintEffectNoSchedule})
	})
	awaitEligible(t, c, false, "a drained node is not eligible")
	if counted := series(mustShow(t, c, "/metrics").Body); counted[`kubeproxy_proxy_healthz_total{code="503"}`] == 0 || counted[`kubeproxy_proxy_livez_total{code="503"}`] != 0 {
		t.Errorf("answers counted: healthz 503 %v times, livez 503 %v times; want some and none",
			counted[`kubeproxy_proxy_healthz_total{code="503"}`], counted[`kubeproxy_proxy_livez_total{code="503"}`])
	}
	c.ChangeNode(func(node *corev1.Node) { node.Spec.Taints = nil })
	awaitEligible(t, c, true, "the node stays after all")
	if !proxy.Running() {
		t.Error("the proxy ended")
	}
}

// awaitEligible waits until /healthz reports whether the node is eligible. /livez is healthy in any
// case.
func awaitEligible(t *testing.T, c *harness.Cluster, eligible bool, what string) {
	t.Helper()
	want := http.StatusOK
	if !eligible {
		want = http.StatusServiceUnavailable
	}
	harness.Eventually(t, startMax, what, func(ctx context.Context) error {
		for i, url := range c.N1.URLs(harness.HealthPort, "/healthz") {
			status, body, err := askHealth(ctx, c.X, url)
			if err != nil {
				return err
			}
			if status != want || body.NodeEligible == nil || *body.NodeEligible != eligible || !body.Healthy {
				return fmt.Errorf("%s: %d, %+v", url, status, body)
			}
			live := c.N1.URLs(harness.HealthPort, "/livez")[i]
			if status, body, err = askHealth(ctx, c.X, live); err != nil || status != http.StatusOK || !body.Healthy {
				return fmt.Errorf("%s: %d, %+v, %w", live, status, body, err)
			}
		}
		return nil
	})
}

// When the node's zone changes, the process goes on and sends clients to the endpoints for the new
// zone.
func TestZoneChangesInPlace(t *testing.T) { inEachMode(t, testZoneChange) }

func testZoneChange(t *testing.T, mode harness.Mode) {
	c := harness.NewCluster(t)
	setZone(c, "east")
	proxy := c.StartProxy(mode)
	web := c.CreateService("web", corev1.ServiceTypeClusterIP, func(spec *corev1.ServiceSpec) {
		near := corev1.ServiceTrafficDistributionPreferSameZone
		spec.TrafficDistribution = &near
	})
	c.SetEndpoints("web", c.A, c.B)
	c.ChangeSlices("web", func(slice *discoveryv1.EndpointSlice) {
		for i, zone := range []string{"east", "west"} {
			slice.Endpoints[i].Zone = &zone
			slice.Endpoints[i].Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: zone}}}
		}
	})
	clients, targets := []*harness.Host{c.P1, c.N1}, clusterIPs(t, web)
	reachAll(t, startMax, "the endpoint for zone east", clients, targets, c.A)
	setZone(c, "west")
	reachAll(t, changeMax, "the endpoint for zone west", clients, targets, c.B)
	setZone(c, "north")
	reachAll(t, changeMax, "a zone without an endpoint: all of them", clients, targets, c.A, c.B)
	if !proxy.Running() {
		t.Error("the proxy ended")
	}
}

func setZone(c *harness.Cluster, zone string) {
	c.ChangeNode(func(node *corev1.Node) { node.Labels[corev1.LabelTopologyZone] = zone })
}
