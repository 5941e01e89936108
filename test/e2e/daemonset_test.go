// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"github.com/sluice-proxy/sluice/internal/sleep"
	"github.com/sluice-proxy/sluice/test/harness"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

const (
	// minReady is minReadySeconds in this test, which has no time for the 30 s of the manifest.
	minReady = 1
	// rolledMax bounds a rollout to all nodes, of which there may be many (SLUICE_E2E_NODES).
	rolledMax = 10 * time.Minute
)

// A rollout stops at the first nodes if the release never writes. The DaemonSet controller of Kubernetes replaces the
// pods of these nodes, and no others. The rules of the previous release still work there.
func TestDaemonSet_ReleaseNeverWrites(t *testing.T) {
	p := newPool(t, 10)
	web := p.createService(t)
	good := install(t, p.server, variants[0]).Spec.Template
	r := newUpdate(t, p)
	r.change(t, func(set *appsv1.DaemonSet) { set.Spec.MinReadySeconds = minReady })
	r.start(t)
	r.awaitAvailable(t)
	for _, node := range p.nodes {
		r.mustAnswer(t, node, web)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "no-permissions"}}
	if _, err := p.client.CoreV1().ServiceAccounts(deployedIn).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []struct {
		name   string
		change func(*appsv1.DaemonSet)
		probe  string // a part of the readiness probe's error
	}{
		{"without NET_ADMIN, the process exits", func(set *appsv1.DaemonSet) {
			without(set, "NET_ADMIN")
		}, "connection refused"},
		{"without permissions, the process waits", func(set *appsv1.DaemonSet) {
			set.Spec.Template.Spec.ServiceAccountName = account.Name
		}, "the first sync is not complete"},
	} {
		t.Run(bad.name, func(t *testing.T) {
			before := r.running(t)
			r.change(t, bad.change)
			reached := r.awaitStep(t, before, bad.probe)
			for _, node := range reached {
				r.mustAnswer(t, node, web)
			}
			r.change(t, func(set *appsv1.DaemonSet) { set.Spec.Template = good }) // as kubectl rollout undo does
			took := r.awaitAvailable(t)
			if again := r.replaced(before); !slices.Equal(again, reached) {
				t.Errorf("the rollback replaced the pods of %v, want those of %v", again, reached)
			}
			t.Logf("the release reached %d of %d nodes; all were ready %v after the rollback", len(reached), len(p.nodes), took.Round(time.Second))
		})
	}
}

// change changes the DaemonSet.
func (r *update) change(t *testing.T, change func(*appsv1.DaemonSet)) {
	t.Helper()
	sets := r.client.AppsV1().DaemonSets(deployedIn)
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		set, err := sets.Get(t.Context(), "sluice", metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(set)
		_, err = sets.Update(t.Context(), set, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// awaitAvailable waits until the DaemonSet is available on all nodes, as kubectl rollout status does.
func (r *update) awaitAvailable(t *testing.T) time.Duration {
	t.Helper()
	return harness.Within(t, rolledMax, "the DaemonSet is available on all nodes", func(ctx context.Context) error {
		sleep.For(ctx, 100*time.Millisecond)
		set, err := r.client.AppsV1().DaemonSets(deployedIn).Get(ctx, "sluice", metav1.GetOptions{})
		if err != nil {
			return err
		}
		s, all := set.Status, int32(len(r.nodes))
		if s.ObservedGeneration < set.Generation || s.UpdatedNumberScheduled != all || s.NumberAvailable != all {
			return fmt.Errorf("generation %d: %+v", set.Generation, s)
		}
		return nil
	})
}

// running returns the pod of each node.
func (r *update) running(t *testing.T) map[string]types.UID {
	t.Helper()
	pods := map[string]types.UID{}
	for _, pod := range r.list() {
		pods[pod.Spec.NodeName] = pod.UID
	}
	if len(pods) != len(r.nodes) {
		t.Fatalf("%d nodes have a pod, want %d", len(pods), len(r.nodes))
	}
	return pods
}

// replaced returns the nodes whose previous pod is deleted, or is to be.
func (r *update) replaced(before map[string]types.UID) (nodes []string) {
	kept := map[types.UID]bool{}
	for _, pod := range r.list() {
		kept[pod.UID] = pod.DeletionTimestamp == nil
	}
	for _, node := range r.nodes {
		if !kept[before[node]] {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// awaitStep waits until the readiness probe fails in the new pods of the first nodes, and checks that the controller replaces
// no other pod. It returns these nodes.
func (r *update) awaitStep(t *testing.T, before map[string]types.UID, probe string) (reached []string) {
	t.Helper()
	first := (len(r.nodes) + 9) / 10 // maxUnavailable: 10%
	harness.Within(t, rolledMax, "the first nodes have the release", func(ctx context.Context) error {
		sleep.For(ctx, 100*time.Millisecond)
		failing := 0
		for _, pod := range r.list() {
			fails := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodReady && strings.Contains(c.Message, probe)
			})
			if fails && before[pod.Spec.NodeName] != pod.UID {
				failing++
			}
		}
		if failing != first {
			return fmt.Errorf("%d new pods are not ready because of %q, want %d", failing, probe, first)
		}
		return nil
	})
	// Each of these changes makes the controller look at all pods again.
	for limit := range int32(3) {
		r.change(t, func(set *appsv1.DaemonSet) { set.Spec.RevisionHistoryLimit = new(5 + limit) })
		r.awaitObserved(t)
		if reached = r.replaced(before); len(reached) != first {
			t.Fatalf("%d of %d nodes lost their pod, want %d: %v", len(reached), len(r.nodes), first, reached)
		}
	}
	return reached
}

// awaitObserved waits until the controller has acted on the newest DaemonSet.
func (r *update) awaitObserved(t *testing.T) {
	t.Helper()
	harness.Eventually(t, "the controller has seen the change", func(ctx context.Context) error {
		set, err := r.client.AppsV1().DaemonSets(deployedIn).Get(ctx, "sluice", metav1.GetOptions{})
		if err == nil && set.Status.ObservedGeneration < set.Generation {
			err = fmt.Errorf("generation %d of %d", set.Status.ObservedGeneration, set.Generation)
		}
		return err
	})
}

// mustAnswer opens a connection to the Service from a node.
func (r *update) mustAnswer(t *testing.T, node string, service netip.AddrPort) {
	t.Helper()
	if answer, err := netnstest.Ask(t.Context(), r.network.Hosts[node], "tcp", service); err != nil || answer.Backend != "web" {
		t.Errorf("%s: %q from %s: %v", node, answer.Backend, service, err)
	}
}
