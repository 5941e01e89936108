// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-proxy/sluice/test/harness"
)

// While the API server is away, the node serves as before, and nothing is written. Afterwards only
// what has changed is written.
func TestAPIServerOutage(t *testing.T) {
	for _, end := range []struct {
		name string
		mode harness.Mode
		end  func(*harness.APIServer) error
	}{{"stopped", harness.IPTables, (*harness.APIServer).Stop}, {"killed", harness.NFTables, (*harness.APIServer).Kill}} {
		t.Run(end.name, func(t *testing.T) {
			inModes(t, func(t *testing.T, mode harness.Mode) { testOutage(t, mode, end.end) }, end.mode)
		})
	}
}

func testOutage(t *testing.T, mode harness.Mode, end func(*harness.APIServer) error) {
	cannot(t, mode, "there are no rules that would show a write")
	c := harness.NewCluster(t)
	proxy := c.StartProxy(mode)
	clients := []*harness.Host{c.X, c.P1}
	steady := c.CreateService("steady", corev1.ServiceTypeNodePort)
	changed := c.CreateService("changed", corev1.ServiceTypeNodePort)
	c.SetEndpoints("steady", c.A, c.B)
	c.SetEndpoints("changed", c.B)
	steadyTargets := append(clusterIPs(t, steady), nodePorts(t, steady, c.N1)...)
	changedTargets := append(clusterIPs(t, changed), nodePorts(t, changed, c.N1)...)
	reachAll(t, "both services work", clients, steadyTargets, c.A, c.B)
	reachAll(t, "both services work", clients, changedTargets, c.B)

	traffic := startTraffic(t, c, steadyTargets)
	before := settled(t, c, proxy)
	if err := end(c.Server); err != nil {
		t.Fatal(err)
	}
	awaitAttempts(t, c)
	before.mustBeUntouched(t, "while the API server was away")
	if !proxy.Running() {
		t.Fatalf("sluice ended while the API server was away, see %s", proxy.LogFile())
	}

	if err := c.Server.Start(); err != nil {
		t.Fatal(err)
	}
	c.SetEndpoints("changed", c.C)
	reachAll(t, "a change after the outage", clients, changedTargets, c.C)
	settled(t, c, proxy)
	before.mustHaveLeftAlone(t, "after the API server was back", steady, changed)
	stopTraffic(t, traffic)
}

// refusedRequests matches the metric of requests that got no answer.
var refusedRequests = regexp.MustCompile(`(?m)^rest_client_requests_total\{code="<error>",[^}]*\} (\d+)`)

// awaitAttempts waits until the proxy has tried several times to reach the API server in vain.
func awaitAttempts(t *testing.T, c *harness.Cluster) {
	t.Helper()
	const enough = 12 // there are about three watches
	harness.Eventually(t, "the proxy has missed the API server", func(ctx context.Context) error {
		page, err := c.N1.Get(ctx, "http://"+harness.MetricsAddress+"/metrics")
		if err != nil {
			return err
		}
		count := 0
		for _, found := range refusedRequests.FindAllStringSubmatch(page.Body, -1) {
			number, err := strconv.Atoi(found[1])
			if err != nil {
				return err
			}
			count += number
		}
		if count < enough {
			return fmt.Errorf("%d requests failed", count)
		}
		return nil
	})
}
