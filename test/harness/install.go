// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/test/testenv"
)

// RolloutMax bounds a rollout, which takes some five seconds on an idle machine.
const RolloutMax = "90s"

// conntrackMax leaves out a setting that the kernel accepts in the machine's first network namespace only.
const conntrackMax = "conntrack: {maxPerCore: 0}"

// InstallSluice follows the comment at the top of deploy/install.yaml, which it writes to a file with the
// values of this cluster, and further fields. The empty mode is the default.
func (c *NodeCluster) InstallSluice(t testing.TB, file, image, mode string, fields ...string) {
	t.Helper()
	manifest, err := os.ReadFile(filepath.Join(testenv.Root(), "deploy", "install.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(manifest)
	for _, change := range [][2]string{
		{"sluice:latest", image},
		{"CONTROL_PLANE:6443", c.APIServer().String()},
		{`mode: ""`, fmt.Sprintf("mode: %q", mode)},
		{`clusterCIDR: ""`, fmt.Sprintf("clusterCIDR: %q\n    %s", PodCIDRs, strings.Join(append(fields, conntrackMax), "\n    "))},
	} {
		if !strings.Contains(text, change[0]) {
			t.Fatalf("deploy/install.yaml has no %q", change[0])
		}
		text = strings.ReplaceAll(text, change[0], change[1])
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Log(c.Kubectl(t, "apply", "-f", file))
	c.AwaitRollout(t, "sluice")
}

// kubeadmConfig is what `kubeadm init` would have been given.
const kubeadmConfig = `apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: VERSION
controlPlaneEndpoint: SERVER
---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: MODE
clusterCIDR: "PODS"
` + conntrackMax + "\n"

// InstallKubeProxy adds the DaemonSet of kubeadm, with the mode and further fields, and waits for the proxies.
func (c *NodeCluster) InstallKubeProxy(t testing.TB, mode string, fields ...string) {
	t.Helper()
	version, err := KubernetesVersion()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kubeadm.yaml")
	text := strings.NewReplacer("VERSION", version, "SERVER", c.APIServer().String(), "PODS", PodCIDRs, "MODE", mode).Replace(kubeadmConfig) + strings.Join(fields, "\n")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Log(c.Kubeadm(t, "init", "phase", "addon", "kube-proxy", "--config", file, "--kubeconfig", c.AdminKubeconfig()))
	c.AwaitRollout(t, "kube-proxy")
}

// AwaitRollout waits until the DaemonSet's pods of the current version are ready.
func (c *NodeCluster) AwaitRollout(t testing.TB, daemonSet string) {
	t.Helper()
	words := []string{"-n", "kube-system", "rollout", "status", "daemonset/" + daemonSet, "--timeout=" + RolloutMax}
	if _, err := c.TryKubectl(t, words...); err != nil {
		t.Fatalf("%v\n%s", err, c.Kubectl(t, "-n", "kube-system", "describe", "pods"))
	}
}
