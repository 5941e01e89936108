// SPDX-License-Identifier: Apache-2.0

//go:build install

package install

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-proxy/sluice/test/harness"
)

// roll puts the other version on the node, then its image without iptables, and goes back to the
// first. It shortens minReadySeconds, which would add minutes and which TestDaemonSet_ReleaseNeverWrites tests.
func (s *site) roll(t *testing.T) {
	s.Kubectl(t, "-n", "kube-system", "patch", "daemonset/sluice", "-p", `{"spec":{"minReadySeconds":1}}`)
	for _, image := range []string{imageOf(otherVersion), imageOf(otherVersion) + "-static"} {
		s.undisturbed(t, func() {
			s.Kubectl(t, "-n", "kube-system", "set", "image", "daemonset/sluice", "*="+image)
			s.AwaitRollout(t, "sluice")
			s.mustRun(t, "sluice", "sluice "+otherVersion, "nftables")
			s.grow(t)
		})
	}
	s.undisturbed(t, func() {
		s.Kubectl(t, "-n", "kube-system", "rollout", "undo", "daemonset/sluice", "--to-revision=1")
		s.AwaitRollout(t, "sluice")
		s.mustRun(t, "sluice", "sluice "+oneVersion, "nftables")
		s.grow(t)
	})
}

// undisturbed fails the test if a client notices what f does.
func (s *site) undisturbed(t *testing.T, f func()) {
	t.Helper()
	s.counted(t, t.Errorf, f)
}

// observed is undisturbed for what kube-proxy does alone: a loss is reported, and is not ours.
func (s *site) observed(t *testing.T, f func()) {
	t.Helper()
	s.counted(t, t.Logf, f)
}

// counted counts what clients notice of f, and calls lose for each client that lost something.
func (s *site) counted(t *testing.T, lose func(format string, args ...any), f func()) {
	t.Helper()
	var all []*harness.Traffic
	defer func() {
		total, lost := 0, "0 lost"
		for i, traffic := range all {
			answered, err := traffic.Stop()
			if err != nil {
				lose("client %s: %v", s.routes[i].client.Name(), err)
				lost = "and others failed"
			}
			if answered == 0 {
				t.Errorf("client %s got no answer", s.routes[i].client.Name())
			}
			total += answered
		}
		s.report.count("  %d exchanges on new and on open connections, %s", total, lost)
	}()
	for _, r := range s.routes {
		traffic, err := harness.StartTraffic(t.Context(), r.client, r.targets...)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, traffic)
	}
	f()
}

// grow adds a pod to those behind the Service: the proxy that runs now must bring it to the clients.
func (s *site) grow(t *testing.T) {
	t.Helper()
	s.replicas++
	s.Kubectl(t, "scale", "deployment/web", fmt.Sprintf("--replicas=%d", s.replicas))
	s.Kubectl(t, "rollout", "status", "deployment/web", "--timeout="+harness.RolloutMax)
	s.awaitAnswers(t)
}

// mustRun waits until the DaemonSet's pod is ready, and fails the test unless its program says that
// it is of a version, and the proxy that it is in a mode.
func (s *site) mustRun(t *testing.T, daemonSet, version, mode string) {
	t.Helper()
	id := s.container(t, daemonSet)
	s.asked++
	// As kube-proxy, Sluice would say the release that it follows.
	said := strings.TrimSpace(s.OnNode(t, "ctr", "--namespace", "k8s.io", "tasks", "exec",
		"--exec-id", fmt.Sprintf("version-%d", s.asked), id, "/usr/local/bin/sluice", "--version"))
	if said != version && !strings.HasPrefix(said, version+" ") {
		t.Fatalf("the pod of %s runs %q, want %s", daemonSet, said, version)
	}
	harness.Eventually(t, "the proxy's mode is "+mode, func(ctx context.Context) error {
		page, err := s.N1.Get(ctx, "http://"+harness.MetricsAddress+"/proxyMode")
		if err == nil && page.Body != mode {
			err = fmt.Errorf("it is %q", page.Body)
		}
		return err
	})
	s.report.count("%s, mode %s", version, mode)
}

// container waits until the DaemonSet has one pod, which is ready, and returns its container.
func (s *site) container(t *testing.T, daemonSet string) string {
	t.Helper()
	var id string
	harness.Eventually(t, "the pod of "+daemonSet+" is ready", func(ctx context.Context) error {
		set, err := s.Client.AppsV1().DaemonSets("kube-system").Get(ctx, daemonSet, metav1.GetOptions{})
		if err != nil {
			return err
		}
		selector := metav1.FormatLabelSelector(set.Spec.Selector)
		pods, err := s.Client.CoreV1().Pods("kube-system").List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return err
		}
		if len(pods.Items) != 1 {
			return fmt.Errorf("it has %d pods", len(pods.Items))
		}
		status := pods.Items[0].Status
		if len(status.ContainerStatuses) != 1 || !status.ContainerStatuses[0].Ready {
			return fmt.Errorf("it is in phase %s: %v", status.Phase, status.ContainerStatuses)
		}
		id = strings.TrimPrefix(status.ContainerStatuses[0].ContainerID, "containerd://")
		return nil
	})
	return id
}
