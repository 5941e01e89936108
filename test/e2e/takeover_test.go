// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-proxy/sluice/test/harness"
)

// A node is taken over from the real kube-proxy in the same mode, and handed back to it, without a lost connection,
// neither an open one nor a new one. Each proxy serves what the API contains and not what the other one left. The
// effect of kube-proxy's start in IPVS mode on open connections is not tested: in an emulated machine, one stopped for
// 15 s.
func TestTakeover_FromKubeProxy(t *testing.T) { inEachMode(t, testTakeOverFromKubeProxy) }

func testTakeOverFromKubeProxy(t *testing.T, mode harness.Mode) {
	cannot(t, mode, "kube-proxy has no such mode")
	c := harness.NewCluster(t)
	former := c.StartKubeProxy(mode)
	clients := []*harness.Host{c.X, c.P1, c.N1}
	web := c.CreateService("web", corev1.ServiceTypeNodePort)
	c.SetEndpoints("web", c.A, c.B)
	// kube-proxy has another form of rule for a Service with one endpoint (v1.37).
	single := clusterIPs(t, c.CreateService("single", corev1.ServiceTypeClusterIP))
	c.SetEndpoints("single", c.C)
	targets := append(clusterIPs(t, web), nodePorts(t, web, c.N1)...)
	reachAll(t, "kube-proxy serves", clients, targets, c.A, c.B)
	reachAll(t, "kube-proxy serves one endpoint", clients, single, c.C)
	c.AwaitQuiet(former)

	traffic := startTraffic(t, c, targets)
	// It does not handle SIGTERM, so it always ends like this.
	if err := former.Kill(); err != nil {
		t.Fatal(err)
	}
	proxy := c.StartProxy(mode)
	awaitAudits(t, c, mode, proxy)
	settled(t, c, proxy)
	c.SetEndpoints("web", c.A, c.B, c.C)
	reachAll(t, "the endpoints scaled under Sluice", clients, targets, c.A, c.B, c.C)
	reachAll(t, "one endpoint under Sluice", clients, single, c.C)

	if err := proxy.Stop(); err != nil {
		t.Fatal(err)
	}
	if mode == harness.IPVS {
		stopTraffic(t, traffic)
	}
	c.StartKubeProxy(mode)
	c.SetEndpoints("web", c.A, c.B)
	reachAll(t, "the endpoints scaled under kube-proxy again", clients, targets, c.A, c.B)
	if mode != harness.IPVS {
		stopTraffic(t, traffic)
	}
	c.DeleteService("web")
	unreachableAll(t, "deleted", clients, targets)
}

// If the real kube-proxy and Sluice write to the same table, events name the kube-proxy that holds an address, and the
// program that changed rules. A cleanup fails while either is running.
func TestTakeover_KubeProxyBesideSluice(t *testing.T) {
	c := harness.NewCluster(t)
	web := c.CreateService("web", corev1.ServiceTypeClusterIP)
	c.SetEndpoints("web", c.A, c.B)
	rival := c.StartKubeProxy(harness.NFTables)
	reachAll(t, "kube-proxy serves", []*harness.Host{c.P1}, clusterIPs(t, web), c.A, c.B)
	// Looking into the processes of another user takes more than serving.
	proxy := c.StartProxyWithCapabilities([]string{"NET_ADMIN", "SYS_PTRACE", "DAC_READ_SEARCH"}, harness.NFTables)
	pid := fmt.Sprint(rival.PID())
	if note := awaitEvent(t, c, "AddressTaken").Note; !strings.Contains(note, "kube-proxy") || !strings.Contains(note, pid) {
		t.Errorf("AddressTaken says %q, want kube-proxy and its pid %s", note, pid)
	}
	settled(t, c, proxy)
	c.SetEndpoints("web", c.A)
	if note := awaitEvent(t, c, "RulesChanged").Note; !strings.Contains(note, "changed by nft (process ") {
		t.Errorf("RulesChanged says %q, want the program that kube-proxy started", note)
	}
	if said := c.CleanupRejected("cleanup"); !strings.Contains(said, "sluice") || !strings.Contains(said, "--force") {
		t.Errorf("cleanup beside Sluice said %q", said)
	}
	if err := proxy.Stop(); err != nil {
		t.Fatal(err)
	}
	if said := c.CleanupRejected("cleanup"); !strings.Contains(said, "kube-proxy") || !strings.Contains(said, pid) {
		t.Errorf("cleanup beside kube-proxy said %q, want it named with pid %s", said, pid)
	}
}
