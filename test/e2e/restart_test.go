// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-proxy/sluice/test/harness"
)

// A proxy adopts the rules of one that was killed or stopped: it writes nothing, and no connection is lost.
func TestRestart_AdoptsRules(t *testing.T) {
	for _, end := range []struct {
		name string
		mode harness.Mode
		end  func(*harness.Proxy) error
	}{
		{"killed", harness.NFTables, func(p *harness.Proxy) error { return p.Kill() }},
		{"stopped", harness.IPTables, func(p *harness.Proxy) error { return p.Stop() }},
	} {
		t.Run(end.name, func(t *testing.T) {
			inModes(t, func(t *testing.T, mode harness.Mode) { testRestart(t, mode, end.end) }, end.mode)
		})
	}
}

func testRestart(t *testing.T, mode harness.Mode, end func(*harness.Proxy) error) {
	cannot(t, mode, withoutProcess)
	c := harness.NewCluster(t)
	first := c.StartProxy(mode)
	clients := []*harness.Host{c.X, c.P1}
	web := c.CreateService("web", corev1.ServiceTypeNodePort)
	c.SetEndpoints("web", c.A, c.B)
	targets := append(clusterIPs(t, web), nodePorts(t, web, c.N1)...)
	reachAll(t, "the service works", clients, targets, c.A, c.B)

	traffic := startTraffic(t, c, targets)
	before := settled(t, c, first)
	if err := end(first); err != nil {
		t.Fatal(err)
	}
	before.mustBeUntouched(t, "after the proxy ended")
	reachAll(t, "the service works without a proxy", clients, targets, c.A, c.B)

	second := c.StartProxy(mode)
	awaitAudits(t, c, mode, second)
	mustHaveAdopted(t, mode, c.Log(second))
	settled(t, c, second)
	mustHaveWrittenNothing(t, c.Log(second))
	before.mustBeAdopted(t, "after the next proxy started")

	c.SetEndpoints("web", c.A, c.B, c.C)
	reachAll(t, "the next proxy follows changes", clients, targets, c.A, c.B, c.C)
	stopTraffic(t, traffic)
}

// awaitAudits waits until a new proxy has compared each family with the kernel.
func awaitAudits(t *testing.T, c *harness.Cluster, mode harness.Mode, proxy *harness.Proxy) {
	t.Helper()
	harness.Eventually(t, "the next proxy compared", func(context.Context) error {
		for _, family := range harness.Families {
			if _, found := c.Log(proxy).Audited(mode, family); !found {
				return fmt.Errorf("no audit of %s", family)
			}
		}
		return nil
	})
}

func mustHaveWrittenNothing(t *testing.T, log harness.ProxyLog) {
	t.Helper()
	if written := log.Kernel(); len(written) > 0 {
		t.Errorf("the next proxy wrote %d batches, the first being %+v; want none", len(written), written[0])
	}
}

// mustHaveAdopted fails the test unless the first audit of each family found everything in place.
func mustHaveAdopted(t *testing.T, mode harness.Mode, log harness.ProxyLog) {
	t.Helper()
	for _, family := range harness.Families {
		audit, _ := log.Audited(mode, family)
		if audit.Equal == 0 || audit.Missing > 0 || audit.Different > 0 || audit.Swept > 0 {
			t.Errorf("first audit: %+v, want everything equal", audit)
		}
	}
}
