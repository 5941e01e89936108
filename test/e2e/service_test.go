// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-proxy/sluice/test/harness"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

// A Service works from its creation to its removal, for a client outside the cluster, a pod on the node and the node
// itself, over TCP and UDP, in both families, through the ClusterIP and the node port.
func TestServiceLifecycle(t *testing.T) {
	inModes(t, testServiceLifecycle, harness.IPTables, harness.NFTables, harness.Userspace)
}

func testServiceLifecycle(t *testing.T, mode harness.Mode) {
	c := harness.NewCluster(t)
	c.StartProxy(mode)
	everyone := []*harness.Host{c.X, c.P1, c.N1}

	web := c.CreateService("web", corev1.ServiceTypeNodePort)
	c.SetEndpoints("web", c.A, c.B)
	targets := append(clusterIPs(t, web), nodePorts(t, web, c.N1)...)
	reachAll(t, "a new service works", everyone, targets, c.A, c.B)

	c.SetEndpoints("web", c.A, c.B, c.C)
	reachAll(t, "scaled up to three", everyone, targets, c.A, c.B, c.C)

	c.SetEndpoints("web", c.B)
	reachAll(t, "scaled down to one", everyone, targets, c.B)

	c.SetEndpoints("web", c.C)
	reachAll(t, "the one endpoint replaced", everyone, targets, c.C)

	c.SetEndpoints("web")
	unreachableAll(t, "no endpoint left", everyone, targets)

	c.SetEndpoints("web", c.A)
	reachAll(t, "an endpoint again", everyone, targets, c.A)

	c.DeleteService("web")
	unreachableAll(t, "deleted", everyone, targets)
	if mode == harness.Userspace {
		tables, err := netnstest.Output(c.N1, exec.Command("nft", "list", "tables"))
		if left := strings.NewReplacer("table ip sluice-guard\n", "", "table ip6 sluice-guard\n", "").Replace(string(tables)); err != nil || left != "" {
			t.Errorf("userspace mode has written tables: %s, %v", left, err)
		}
	}
}
