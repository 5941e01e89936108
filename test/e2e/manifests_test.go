// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/sluice-proxy/sluice/test/harness"
)

// operator is the module of Prometheus' operator, whose release has the definitions of its objects,
// and the sum by which the go tool knows it.
const (
	operator    = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
	operatorSum = "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s="
)

// definitions returns the CustomResourceDefinitions of Prometheus' operator that deploy/monitoring
// needs.
func definitions(t *testing.T) harness.Manifests {
	t.Helper()
	cmd := exec.Command("go", "mod", "download", "-json", operator)
	cmd.Dir = t.TempDir() // outside of any module
	printed, err := cmd.Output()
	var module struct{ Dir, Sum string }
	if err == nil {
		err = json.Unmarshal(printed, &module)
	}
	if err != nil || module.Sum != operatorSum {
		t.Fatalf("go mod download %s: %v: %s", operator, err, printed)
	}
	var all harness.Manifests
	for _, name := range []string{"prometheusrules", "servicemonitors"} {
		text, err := os.ReadFile(filepath.Join(module.Dir, "example/prometheus-operator-crd/monitoring.coreos.com_"+name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		one, err := harness.ParseManifests(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, one...)
	}
	return all
}

// The API server accepts every manifest as it is, without unknown fields, and the pods of each DaemonSet as well.
func TestManifests_Accepted(t *testing.T) {
	c := harness.NewCluster(t)
	if _, err := c.Server.Apply(t.Context(), definitions(t)); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{"base", "kubeadm", "kubeadm-all", "canary", "monitoring", "userspace", "fleet"} {
		t.Run(folder, func(t *testing.T) {
			all, err := harness.BuildManifests("deploy/" + folder)
			if err != nil {
				t.Fatal(err)
			}
			acceptManifests(t, c, all)
		})
	}
}

// The API server accepts the objects of the Helm chart as well: with its defaults, and with the values that change
// most.
func TestChart_Accepted(t *testing.T) {
	c := harness.NewCluster(t)
	if _, err := c.Server.Apply(t.Context(), definitions(t)); err != nil {
		t.Fatal(err)
	}
	for name, set := range map[string]string{
		"sluice": "",
		"sluice-canary": "nodes=labeled,config.mode=userspace,sluiceConfig.log.format=json,imagePullSecrets[0].name=registry," +
			"podAnnotations.team=net,podLabels.team=net,rollout.maxUnavailable=3,resources.limits.memory=1Gi," +
			"monitoring.serviceMonitor=true,monitoring.prometheusRule=true,monitoring.dashboard=true,monitoring.labels.release=prometheus",
	} {
		t.Run(name, func(t *testing.T) {
			all, err := harness.ChartManifests(name, deployedIn, "--set", set)
			if err != nil {
				t.Fatal(err)
			}
			acceptManifests(t, c, all)
		})
	}
}

// acceptManifests applies objects, and has the server check a pod of their DaemonSet if there is one.
func acceptManifests(t *testing.T, c *harness.Cluster, all harness.Manifests) {
	t.Helper()
	var stored harness.Manifests
	harness.Eventually(t, "applied", func(ctx context.Context) (err error) { // definitions take a moment
		stored, err = c.Server.Apply(ctx, all)
		return err
	})
	t.Logf("%d objects", len(stored))
	if !slices.ContainsFunc(all, func(o *unstructured.Unstructured) bool { return o.GetKind() == "DaemonSet" }) {
		return
	}
	daemonSet, err := harness.Of[appsv1.DaemonSet](stored, "DaemonSet")
	if err != nil {
		t.Fatal(err)
	}
	acceptPod(t, c, daemonSet)
}

// acceptPod has the server check a pod of a DaemonSet, as the controller would create it.
func acceptPod(t *testing.T, c *harness.Cluster, daemonSet *appsv1.DaemonSet) {
	t.Helper()
	pod := &corev1.Pod{Spec: daemonSet.Spec.Template.Spec}
	pod.Name, pod.Labels = daemonSet.Name+"-1", daemonSet.Spec.Template.Labels
	pod.Spec.NodeName = harness.NodeName
	// The server makes its priority classes a moment after it is ready.
	harness.Eventually(t, "a pod is accepted", func(ctx context.Context) error {
		_, err := c.Client.CoreV1().Pods(daemonSet.Namespace).Create(ctx, pod, metav1.CreateOptions{
			DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
		return err
	})
}

// In each stage of a migration from kubeadm's kube-proxy, and with canaries, every node has exactly
// one proxy: the one that its label sluice.dev/proxy names.
func TestMigration_EachNodeHasOneProxy(t *testing.T) {
	c := harness.NewCluster(t)
	installKubeadmsProxy(t, c)
	installed := kubeProxy(t, c)
	const kubeProxyName, sluice, canary = "kube-proxy", "sluice", "sluice-canary"
	for _, stage := range []struct {
		name   string
		patch  string // of kube-proxy's DaemonSet
		sluice string // the folder of the manifests; "" for none
		canary bool
		want   map[string]string // the DaemonSet on a node with the label, "" for a node without
	}{
		{"as kubeadm installs it", "", "", false,
			map[string]string{"": kubeProxyName, sluice: kubeProxyName, canary: kubeProxyName}},
		{"node by node", "deploy/kubeadm/kube-proxy.yaml", "deploy/kubeadm", true,
			map[string]string{"": kubeProxyName, sluice: sluice, kubeProxyName: kubeProxyName, canary: canary}},
		{"all nodes", "deploy/kubeadm-all/kube-proxy.yaml", "deploy/kubeadm-all", true,
			map[string]string{"": sluice, sluice: sluice, kubeProxyName: kubeProxyName, canary: canary}},
		{"back, node by node", "deploy/kubeadm/kube-proxy.yaml", "deploy/kubeadm", false,
			map[string]string{"": kubeProxyName, sluice: sluice, kubeProxyName: kubeProxyName}},
		{"restored", "deploy/kubeadm/restore.yaml", "", false,
			map[string]string{"": kubeProxyName, sluice: kubeProxyName, canary: kubeProxyName}},
		{"without kube-proxy", "none", "deploy/base", true,
			map[string]string{"": sluice, sluice: sluice, canary: canary}},
	} {
		t.Run(stage.name, func(t *testing.T) {
			var present []*appsv1.DaemonSet
			if stage.patch != "none" {
				present = append(present, patchKubeProxy(t, c, stage.patch))
			}
			if stage.sluice != "" {
				present = append(present, apply(t, c, stage.sluice))
			}
			if stage.canary {
				present = append(present, apply(t, c, "deploy/canary"))
			}
			for label, want := range stage.want {
				if got := proxiesOn(t, label, present); !slices.Equal(got, []string{want}) {
					t.Errorf("on a node with the label %q: %v, want %s", label, got, want)
				}
			}
		})
	}
	before, after := installed.Spec.Template.Spec.Affinity, kubeProxy(t, c).Spec.Template.Spec.Affinity
	if before != nil || after != nil {
		t.Errorf("kube-proxy's affinity: %v, before that %v", after, before)
	}
}

func kubeProxy(t *testing.T, c *harness.Cluster) *appsv1.DaemonSet {
	t.Helper()
	daemonSet, err := c.Client.AppsV1().DaemonSets(deployedIn).Get(t.Context(), "kube-proxy", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return daemonSet
}

// patchKubeProxy does what `kubectl patch daemonset kube-proxy --patch-file` does.
func patchKubeProxy(t *testing.T, c *harness.Cluster, file string) *appsv1.DaemonSet {
	t.Helper()
	if file == "" {
		return kubeProxy(t, c)
	}
	text, err := os.ReadFile(filepath.Join("../..", file))
	if err != nil {
		t.Fatal(err)
	}
	patch, err := yaml.ToJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	options := metav1.PatchOptions{FieldValidation: metav1.FieldValidationStrict}
	daemonSet, err := c.Client.AppsV1().DaemonSets(deployedIn).
		Patch(t.Context(), "kube-proxy", types.StrategicMergePatchType, patch, options)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return daemonSet
}

func apply(t *testing.T, c *harness.Cluster, folder string) *appsv1.DaemonSet {
	t.Helper()
	all, err := harness.BuildManifests(folder)
	if err != nil {
		t.Fatal(err)
	}
	stored, err := c.Server.Apply(t.Context(), all)
	if err != nil {
		t.Fatal(err)
	}
	daemonSet, err := harness.Of[appsv1.DaemonSet](stored, "DaemonSet")
	if err != nil {
		t.Fatal(err)
	}
	return daemonSet
}

// proxiesOn returns the DaemonSets whose pods may run on a node, by the scheduler's rules.
func proxiesOn(t *testing.T, label string, all []*appsv1.DaemonSet) []string {
	t.Helper()
	node := &corev1.Node{}
	node.Name, node.Labels = "some", map[string]string{"kubernetes.io/os": "linux"}
	if label != "" {
		node.Labels["sluice.dev/proxy"] = label
	}
	var found []string
	for _, daemonSet := range all {
		pod := &corev1.Pod{Spec: daemonSet.Spec.Template.Spec}
		matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
		if err != nil {
			t.Fatal(fmt.Errorf("%s: %w", daemonSet.Name, err))
		}
		if matches {
			found = append(found, daemonSet.Name)
		}
	}
	return found
}
