// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-proxy/sluice/test/harness"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

// A good configuration reaches all nodes, as "Change the configuration" in docs/upgrade.md describes. A bad one stops
// at the nodes of the first step, because /readyz fails there. The rules of these nodes still work, and kubectl rollout
// undo replaces only their pods.
func TestConfiguration_RollsOut(t *testing.T) {
	p := newPool(t, 6)
	web := p.createService(t)
	large := p.createLargeService(t)
	set := install(t, p.server, variants[0])
	r := newUpdate(t, p)
	r.change(t, func(set *appsv1.DaemonSet) { set.Spec.MinReadySeconds = minReady })
	r.start(t)
	r.awaitAvailable(t)
	first := r.hashes(t)
	good, err := p.client.CoreV1().ConfigMaps(deployedIn).Get(t.Context(), configMapOf(set), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	r.configure(t, good, "config.conf", "kind: SluiceConfiguration\n", "kind: SluiceConfiguration\naddresses: {denied: [198.51.100.0/24]}\n")
	took := r.awaitAvailable(t)
	if now := r.hashes(t); len(first) != 1 || len(now) != 1 || now[0] == first[0] {
		t.Errorf("the nodes have the configurations %v, before that %v", now, first)
	}
	t.Logf("a good configuration reached %d of %d nodes in %v", len(p.nodes), len(p.nodes), took.Round(time.Second))
	r.kubectl(t, "rollout", "status", "daemonset/sluice", "--timeout=2m")

	for _, bad := range []struct{ name, key, from, to, probe string }{
		{"without the API server", "kubeconfig.conf", "server: https://", "server: https://127.0.0.1:1/", "the first sync is not complete"},
		{"with a limit that a Service exceeds", "config.conf", "kind: SluiceConfiguration\n",
			"kind: SluiceConfiguration\nactors: {objectsMax: 10}\n", "which the previous process followed: default/large"},
	} {
		t.Run(bad.name, func(t *testing.T) {
			before := r.running(t)
			r.configure(t, good, bad.key, bad.from, bad.to)
			reached := r.awaitStep(t, before, bad.probe)
			for _, node := range reached {
				r.mustAnswer(t, node, web)
				r.mustAnswer(t, node, large)
			}
			r.kubectl(t, "rollout", "undo", "daemonset/sluice")
			took := r.awaitAvailable(t)
			if again := r.replaced(before); !slices.Equal(again, reached) {
				t.Errorf("the undo replaced the pods of %v, want those of %v", again, reached)
			}
			t.Logf("the configuration reached %d of %d nodes; all were ready %v after the undo", len(reached), len(p.nodes), took.Round(time.Second))
		})
	}
}

func configMapOf(set *appsv1.DaemonSet) string {
	for _, v := range set.Spec.Template.Spec.Volumes {
		if v.Name == "config" {
			return v.ConfigMap.Name
		}
	}
	return ""
}

// configure does what kustomize and kubectl apply do with a changed file: a ConfigMap with another name, and a DaemonSet
// that uses it.
func (r *update) configure(t *testing.T, good *corev1.ConfigMap, key, from, to string) {
	t.Helper()
	config := &corev1.ConfigMap{Data: map[string]string{}}
	for name, text := range good.Data {
		config.Data[name] = text
	}
	if !strings.Contains(config.Data[key], from) {
		t.Fatalf("%s does not contain %q:\n%s", key, from, config.Data[key])
	}
	config.Data[key] = strings.Replace(config.Data[key], from, to, 1)
	config.Name = fmt.Sprintf("sluice-%x", sha256.Sum256([]byte(config.Data[key])))[:17]
	if _, err := r.client.CoreV1().ConfigMaps(deployedIn).Create(t.Context(), config, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.change(t, func(set *appsv1.DaemonSet) {
		for i := range set.Spec.Template.Spec.Volumes {
			if v := &set.Spec.Template.Spec.Volumes[i]; v.Name == "config" {
				v.ConfigMap.Name = config.Name
			}
		}
	})
}

// hashes returns the different hashes of the configurations that the nodes run.
func (r *update) hashes(t *testing.T) (all []string) {
	t.Helper()
	for _, name := range r.nodes {
		node := &harness.Host{Namespace: r.network.Hosts[name]}
		harness.Eventually(t, "the node shows its configuration", func(ctx context.Context) error {
			page, err := node.Get(ctx, "http://127.0.0.1:10249/metrics")
			if err != nil {
				return err
			}
			found := regexp.MustCompile(`sluice_config_hash\{hash="(\w+)"\} 1`).FindStringSubmatch(page.Body)
			if found == nil {
				return fmt.Errorf("%s: no hash", name)
			}
			all = append(all, found[1])
			return nil
		})
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// kubectl runs the real kubectl next to the API server.
func (r *update) kubectl(t *testing.T, words ...string) {
	t.Helper()
	program, err := harness.KubectlBinary()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), program, append([]string{"--kubeconfig", r.server.AdminKubeconfig(), "-n", deployedIn}, words...)...)
	printed, err := netnstest.Output(r.network.Hosts["api"], command)
	if err != nil {
		t.Fatalf("kubectl %v: %v\n%s", words, err, printed)
	}
	t.Logf("%s", printed)
}
