//go:build install

package install

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-proxy/sluice/test/e2e/harness"
)

// roll puts the other version on the node, and takes it back, with a client's usual commands.
func (s *site) roll(t *testing.T) {
	s.mustRun(t, "sluice", oneVersion)
	s.undisturbed(t, func() {
		image := imageOf(otherVersion)
		s.Kubectl(t, "-n", "kube-system", "set", "image", "daemonset/sluice", "sluice="+image, "init="+image)
		s.awaitRollout(t, "sluice")
		s.mustRun(t, "sluice", otherVersion)
		s.grow(t)
	})
	s.undisturbed(t, func() {
		s.Kubectl(t, "-n", "kube-system", "rollout", "undo", "daemonset/sluice")
		s.awaitRollout(t, "sluice")
		s.mustRun(t, "sluice", oneVersion)
		s.grow(t)
	})
}

// undisturbed fails the test if a client notices what f does.
func (s *site) undisturbed(t *testing.T, f func()) {
	t.Helper()
	var all []*harness.Traffic
	for _, r := range s.routes {
		traffic, err := harness.StartTraffic(t.Context(), r.client, r.targets...)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, traffic)
	}
	defer func() {
		var answered int
		for i, traffic := range all {
			n, err := traffic.Stop()
			answered += n
			if err != nil {
				t.Errorf("client %s: %v", s.routes[i].client.Name(), err)
			}
		}
		if answered == 0 {
			t.Error("no client got an answer")
		}
		if !t.Failed() {
			s.report.count("%d exchanges on new and on open connections, 0 lost", answered)
		}
	}()
	f()
}

// grow adds a pod to those behind the Service: the proxy that runs now must bring it to the clients.
func (s *site) grow(t *testing.T) {
	t.Helper()
	s.replicas++
	s.Kubectl(t, "scale", "deployment/web", fmt.Sprintf("--replicas=%d", s.replicas))
	s.Kubectl(t, "rollout", "status", "deployment/web", "--timeout="+rolloutMax)
	s.awaitAnswers(t)
}

// mustRun fails the test unless the program in the DaemonSet's container says that it is Sluice of
// a version.
func (s *site) mustRun(t *testing.T, daemonSet, version string) {
	t.Helper()
	said := s.versionInPod(t, daemonSet)
	if !strings.HasPrefix(said, "sluice "+version+" ") {
		t.Fatalf("the pod of %s runs %q, want sluice %s", daemonSet, said, version)
	}
}

// versionInPod runs the container's program once more, in the container. As kube-proxy, Sluice would
// say the release that it follows.
func (s *site) versionInPod(t *testing.T, daemonSet string) string {
	t.Helper()
	set, err := s.Client.AppsV1().DaemonSets("kube-system").Get(t.Context(), daemonSet, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	selector := metav1.FormatLabelSelector(set.Spec.Selector)
	var id string
	harness.Eventually(t, settleMax, "one pod of "+daemonSet+" is left", func(ctx context.Context) error {
		pods, err := s.Client.CoreV1().Pods("kube-system").List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return err
		}
		if len(pods.Items) != 1 || len(pods.Items[0].Status.ContainerStatuses) != 1 {
			return fmt.Errorf("there are %d", len(pods.Items))
		}
		id = strings.TrimPrefix(pods.Items[0].Status.ContainerStatuses[0].ContainerID, "containerd://")
		return nil
	})
	s.asked++
	return s.OnNode(t, "ctr", "--namespace", "k8s.io", "tasks", "exec", "--exec-id", fmt.Sprintf("version-%d", s.asked), id,
		"/usr/local/bin/sluice", "--version")
}
