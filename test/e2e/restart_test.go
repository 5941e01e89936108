package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/sluice-proxy/sluice/test/e2e/harness"
)

// A proxy that is killed, or stopped, leaves its rules in the kernel. The next one finds them
// correct and writes nothing. Clients never notice.
func TestRestartAdoptsTheRules(t *testing.T) {
	for _, end := range []struct {
		name string
		end  func(*harness.Proxy) error
	}{
		{"killed", func(p *harness.Proxy) error { return p.Kill() }},
		{"stopped", func(p *harness.Proxy) error { return p.Stop() }},
	} {
		t.Run(end.name, func(t *testing.T) {
			inEachMode(t, func(t *testing.T, mode harness.Mode) { testRestart(t, mode, end.end) })
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
	reachAll(t, startMax, "the service works", clients, targets, c.A, c.B)

	traffic := startTraffic(t, c, targets)
	before := settled(t, c, first)
	if err := end(first); err != nil {
		t.Fatal(err)
	}
	before.mustBeUntouched(t, "after the proxy ended")
	reachAll(t, changeMax, "the service works without a proxy", clients, targets, c.A, c.B)

	second := c.StartProxy(mode)
	awaitAudits(t, c, mode, second)
	mustHaveAdopted(t, mode, c.Log(second))
	settled(t, c, second)
	mustHaveWrittenNothing(t, c.Log(second))
	before.mustBeAdopted(t, "after the next proxy started")

	c.SetEndpoints("web", c.A, c.B, c.C)
	reachAll(t, changeMax, "the next proxy follows changes", clients, targets, c.A, c.B, c.C)
	stopTraffic(t, traffic)
}

// A proxy that starts while it can read Services but not their endpoints writes nothing. It waits,
// and the node serves as before.
func TestRestartWithoutEndpointsTouchesNothing(t *testing.T) {
	inEachMode(t, testRestartWithoutEndpoints)
}

func testRestartWithoutEndpoints(t *testing.T, mode harness.Mode) {
	cannot(t, mode, withoutProcess)
	c := harness.NewCluster(t)
	first := c.StartProxy(mode)
	clients := []*harness.Host{c.X, c.P1}
	for i := range crowd {
		name := fmt.Sprintf("crowd-%d", i)
		c.CreateService(name, corev1.ServiceTypeClusterIP)
		c.SetEndpoints(name, c.A, c.B, c.C)
	}
	web := c.CreateService("web", corev1.ServiceTypeNodePort)
	c.SetEndpoints("web", c.A, c.B)
	targets := append(clusterIPs(t, web), nodePorts(t, web, c.N1)...)
	reachAll(t, startMax, "the service works", clients, targets, c.A, c.B)

	traffic := startTraffic(t, c, targets)
	before := settled(t, c, first)
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	permit := c.Forbid(discoveryv1.GroupName, "endpointslices")
	second := c.StartProxy(mode)
	time.Sleep(blindness)
	before.mustBeAdopted(t, "while the proxy could not read endpoints")
	if audits := c.Log(second).Audits; len(audits) > 0 {
		t.Errorf("the proxy compared before it could read endpoints: %+v", audits)
	}

	permit()
	awaitAudits(t, c, mode, second)
	mustHaveAdopted(t, mode, c.Log(second))
	settled(t, c, second)
	mustHaveWrittenNothing(t, c.Log(second))
	before.mustBeAdopted(t, "after the proxy could read endpoints")
	stopTraffic(t, traffic)
}

const (
	// blindness is how long the proxy cannot read endpoints, long enough for the rest to be ready.
	blindness = 3 * time.Second
	// crowd is a number of other Services, so that there is work to do when the endpoints arrive.
	crowd = 200
)

// awaitAudits waits until a new proxy has compared each family with the kernel.
func awaitAudits(t *testing.T, c *harness.Cluster, mode harness.Mode, proxy *harness.Proxy) {
	t.Helper()
	harness.Eventually(t, startMax, "the next proxy compared", func(context.Context) error {
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

// A client with affinity still reaches the same pod after the proxy was killed and another has
// taken over: the new proxy does not write the kernel's affinity entries either.
func TestRestartKeepsAffinity(t *testing.T) { inEachMode(t, testRestartKeepsAffinity) }

func testRestartKeepsAffinity(t *testing.T, mode harness.Mode) {
	cannot(t, mode, withoutProcess)
	c := harness.NewCluster(t)
	first := c.StartProxy(mode)
	clients := []*harness.Host{c.X, c.P1, c.N1}
	sticky := c.CreateService("sticky", corev1.ServiceTypeNodePort, func(spec *corev1.ServiceSpec) {
		spec.SessionAffinity = corev1.ServiceAffinityClientIP
	})
	c.SetEndpoints("sticky", c.A, c.B, c.C)
	targets := append(clusterIPs(t, sticky), nodePorts(t, sticky, c.N1)...)
	harness.Eventually(t, startMax, "the service works", func(ctx context.Context) error {
		_, err := whoAnswers(ctx, clients, targets)
		return err
	})
	before := settled(t, c, first)
	if err := c.N1.Forget(); err != nil {
		t.Fatal(err)
	}
	pods := mustAnswer(t, clients, targets)

	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	second := c.StartProxy(mode)
	awaitAudits(t, c, mode, second)
	settled(t, c, second)
	before.mustBeAdopted(t, "after the next proxy started")
	for range 3 {
		if now := mustAnswer(t, clients, targets); !slices.Equal(now, pods) {
			t.Errorf("clients met %v, then %v", pods, now)
		}
	}
}

// whoAnswers asks each target once from each client and returns who answered, in that order.
func whoAnswers(ctx context.Context, clients []*harness.Host, targets []harness.Target) ([]string, error) {
	var pods []string
	for _, client := range clients {
		for _, target := range targets {
			pod, err := client.WhoAnswers(ctx, target)
			if err != nil {
				return nil, fmt.Errorf("%s to %s: %w", client.Name(), target, err)
			}
			pods = append(pods, pod)
		}
	}
	return pods, nil
}

func mustAnswer(t *testing.T, clients []*harness.Host, targets []harness.Target) []string {
	t.Helper()
	pods, err := whoAnswers(t.Context(), clients, targets)
	if err != nil {
		t.Fatal(err)
	}
	return pods
}
