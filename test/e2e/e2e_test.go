// SPDX-License-Identifier: Apache-2.0

// Package e2e tests Sluice as a process on a node, from Services in a real API server to real
// connections. README.md says how to run one test and where its logs are. Package harness makes the
// network it runs in.
package e2e

import (
	"context"
	"fmt"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-proxy/sluice/test/harness"
)

// inEachMode runs a test once in mode iptables and once in mode nftables.
func inEachMode(t *testing.T, test func(*testing.T, harness.Mode)) {
	t.Helper()
	inModes(t, test, harness.IPTables, harness.NFTables)
}

// inModes runs a test once in each of these modes, in parallel, each in a separate cluster. SLUICE_E2E_MODES replaces
// them.
func inModes(t *testing.T, test func(*testing.T, harness.Mode), usual ...harness.Mode) {
	t.Helper()
	for _, mode := range harness.Modes(usual...) {
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

// reachAll waits until each client reaches exactly the wanted pods at each target.
func reachAll(t *testing.T, what string, clients []*harness.Host, targets []harness.Target, want ...*harness.Host) {
	t.Helper()
	harness.Eventually(t, what, func(ctx context.Context) error {
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
func unreachableAll(t *testing.T, what string, clients []*harness.Host, targets []harness.Target) {
	t.Helper()
	harness.Eventually(t, what, func(ctx context.Context) error {
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

// awaitEvent waits for an event of the proxy with a reason.
func awaitEvent(t *testing.T, c *harness.Cluster, reason string) eventsv1.Event {
	t.Helper()
	var found eventsv1.Event
	harness.Eventually(t, "event "+reason, func(ctx context.Context) error {
		all, err := c.Client.EventsV1().Events(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, event := range all.Items {
			if event.Reason == reason && event.ReportingController == "kube-proxy" {
				found = event
				return nil
			}
		}
		return fmt.Errorf("not among %d events", len(all.Items))
	})
	return found
}
