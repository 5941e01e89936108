package e2e

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-proxy/sluice/test/e2e/harness"
)

// A node whose proxy is started in the other mode serves what the API says and not what the former mode's
// rules say, and clients notice nothing while one takes over from the other.
func TestOtherModeTakesOver(t *testing.T) { inEachMode(t, testOtherModeTakesOver) }

func testOtherModeTakesOver(t *testing.T, mode harness.Mode) {
	former := map[harness.Mode]harness.Mode{harness.IPTables: harness.NFTables, harness.NFTables: harness.IPTables, harness.IPVS: harness.NFTables}
	c := harness.NewCluster(t)
	first := c.StartProxy(former[mode])
	clients := []*harness.Host{c.X, c.P1, c.N1}
	web := c.CreateService("web", corev1.ServiceTypeNodePort)
	c.SetEndpoints("web", c.A, c.B)
	targets := append(clusterIPs(t, web), nodePorts(t, web, c.N1)...)
	reachAll(t, startMax, "the service works in the former mode", clients, targets, c.A, c.B)

	traffic := startTraffic(t, c, targets)
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	second := c.StartProxy(mode)
	awaitAudits(t, c, mode, second)
	settled(t, c, second)
	c.SetEndpoints("web", c.A, c.B, c.C)
	reachAll(t, changeMax, "the endpoints scaled in the other mode", clients, targets, c.A, c.B, c.C)
	stopTraffic(t, traffic)

	c.SetEndpoints("web")
	unreachableAll(t, changeMax, "no endpoint left", clients, targets)
	c.SetEndpoints("web", c.A)
	reachAll(t, changeMax, "an endpoint again", clients, targets, c.A)
	c.DeleteService("web")
	unreachableAll(t, changeMax, "deleted", clients, targets)
}
