package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-proxy/sluice/test/e2e/harness"
)

// A real API server passes the questions of kubectl sluice on to the proxy of a node, and answers for a pod that does not
// listen.
func TestFleet(t *testing.T) {
	c := harness.NewCluster(t)
	c.StartProxy(harness.NFTables, "--sluice-inspection-bind-address", "0.0.0.0:10253")
	web := c.CreateService("web", corev1.ServiceTypeClusterIP)
	c.SetEndpoints("web", c.A)
	reachAll(t, startMax, "the service works", []*harness.Host{c.X}, clusterIPs(t, web), c.A)
	for _, node := range []*harness.Host{c.N1, c.N2} {
		fleetPod(t, c, node)
	}
	wait, err := c.Fleet("wait", "svc/web", "-n", web.Namespace, "--nodes", "1")
	if err != nil {
		t.Fatalf("%v\n%s", err, wait)
	}
	for _, words := range [][]string{{"where", "svc/web", "-n", web.Namespace, "-o", "wide"}, {"status"}} {
		out, err := c.Fleet(words...)
		if err == nil {
			t.Errorf("%s: no error although a node does not answer", words[0])
		}
		for _, want := range []string{harness.NodeName, "1 of 2 nodes", "1 of 2 nodes did not answer", "connection refused"} {
			if !strings.Contains(out, want) {
				t.Errorf("%s: no %q in\n%s", words[0], want, out)
			}
		}
	}
}

// fleetPod creates the pod of Sluice on a node, as the controller and the kubelet would.
func fleetPod(t *testing.T, c *harness.Cluster, node *harness.Host) {
	t.Helper()
	name := node.Name()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "sluice-" + name, Labels: map[string]string{"app.kubernetes.io/name": "sluice"}},
		Spec:       corev1.PodSpec{NodeName: name, HostNetwork: true, Containers: []corev1.Container{{Name: "sluice", Image: "sluice"}}},
	}
	harness.Eventually(t, changeMax, "a pod is accepted", func(ctx context.Context) error {
		pods := c.Client.CoreV1().Pods(deployedIn)
		made, err := pods.Create(ctx, pod, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("create: %w", err)
		}
		made.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: node.V4.String(), PodIPs: []corev1.PodIP{{IP: node.V4.String()}}}
		_, err = pods.UpdateStatus(ctx, made, metav1.UpdateOptions{})
		return err
	})
}
