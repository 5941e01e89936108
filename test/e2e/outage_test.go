package e2e

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-proxy/sluice/test/e2e/harness"
)

// outage is how long the API server is down.
const outage = 4 * time.Second

// While the API server is away, the node serves as before, and nothing is written. Afterwards only
// what has changed is written.
func TestAPIServerOutage(t *testing.T) {
	for _, end := range []struct {
		name string
		end  func(*harness.APIServer) error
	}{{"stopped", (*harness.APIServer).Stop}, {"killed", (*harness.APIServer).Kill}} {
		t.Run(end.name, func(t *testing.T) {
			inEachMode(t, func(t *testing.T, mode harness.Mode) { testOutage(t, mode, end.end) })
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
	reachAll(t, startMax, "both services work", clients, steadyTargets, c.A, c.B)
	reachAll(t, startMax, "both services work", clients, changedTargets, c.B)

	traffic := startTraffic(t, c, steadyTargets)
	before := settled(t, c, proxy)
	begin := time.Now()
	if err := end(c.Server); err != nil {
		t.Fatal(err)
	}
	t.Logf("the API server took %v to end", time.Since(begin).Round(time.Millisecond))
	time.Sleep(outage)
	before.mustBeUntouched(t, "while the API server was away")
	if !proxy.Running() {
		t.Fatalf("sluice ended while the API server was away, see %s", proxy.LogFile())
	}

	if err := c.Server.Start(); err != nil {
		t.Fatal(err)
	}
	c.SetEndpoints("changed", c.C)
	reachAll(t, resumeMax, "a change after the outage", clients, changedTargets, c.C)
	settled(t, c, proxy)
	before.mustHaveLeftAlone(t, "after the API server was back", steady, changed)
	stopTraffic(t, traffic)
}
