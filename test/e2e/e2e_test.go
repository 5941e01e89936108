// Package e2e tests Sluice as a process on a node, from Services in a real API server to real
// connections. README.md says how to run one test and where its logs are. Package harness makes the
// network it runs in.
package e2e

import (
	"context"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-proxy/sluice/test/e2e/harness"
)

// inEachMode runs a test once in each mode of the proxy, in parallel, each in a cluster of its own.
func inEachMode(t *testing.T, test func(*testing.T, harness.Mode)) {
	t.Helper()
	for _, mode := range harness.Modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			test(t, mode)
		})
	}
}

// cannot skips a test of what userspace mode does not do.
func cannot(t *testing.T, mode harness.Mode, why string) {
	t.Helper()
	if mode == harness.Userspace {
		t.Skip("mode userspace cannot: " + why)
	}
}

// withoutProcess is what most tests that userspace mode cannot pass have in common.
const withoutProcess = "nothing serves without the process"

const (
	// startMax bounds the time from the start of a proxy to a Service that works.
	startMax = 30 * time.Second
	// changeMax bounds the time from a change in the API to the same change in what clients see. It
	// is generous because test machines are slow and shared; the time taken is in the test's
	// output.
	changeMax = 10 * time.Second
	// resumeMax bounds the same time for the first change after the API server was away. A client
	// that doubles its pauses, as client-go does by default, is back half a minute late.
	resumeMax = 15 * time.Second
)

// reachAll waits until each client reaches exactly the wanted pods at each target.
func reachAll(t *testing.T, limit time.Duration, what string, clients []*harness.Host, targets []harness.Target, want ...*harness.Host) {
	t.Helper()
	harness.Eventually(t, limit, what, func(ctx context.Context) error {
		for _, client := range clients {
			for _, target := range targets {
				if err := client.Reach(ctx, target, want...); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// unreachableAll waits until no client gets an answer at any target. It asks all questions at the
// same time, because many end in silence.
func unreachableAll(t *testing.T, limit time.Duration, what string, clients []*harness.Host, targets []harness.Target) {
	t.Helper()
	harness.Eventually(t, limit, what, func(ctx context.Context) error {
		var all errgroup.Group
		for _, client := range clients {
			for _, target := range targets {
				all.Go(func() error { return client.Unreachable(ctx, target) })
			}
		}
		return all.Wait()
	})
}

// clusterIPs and nodePorts call the harness for a Service that must have them.
func clusterIPs(t *testing.T, service *corev1.Service) []harness.Target {
	t.Helper()
	targets, err := harness.ClusterIPs(service)
	if err != nil {
		t.Fatal(err)
	}
	return targets
}

func nodePorts(t *testing.T, service *corev1.Service, node *harness.Host) []harness.Target {
	t.Helper()
	targets, err := harness.NodePorts(service, node)
	if err != nil {
		t.Fatal(err)
	}
	return targets
}
