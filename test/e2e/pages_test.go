// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeadmapi "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm"
	kubeproxyaddon "k8s.io/kubernetes/cmd/kubeadm/app/phases/addons/proxy"
	kubeadmconfig "k8s.io/kubernetes/cmd/kubeadm/app/util/config"

	"github.com/sluice-proxy/sluice/test/doctest"
	"github.com/sluice-proxy/sluice/test/harness"
)

// standIns are programs that the pages name and that have nothing to do here: there is no kubelet,
// and no controller. The real kubectl is asked everything else.
var standIns = map[string]string{
	"make": "exit 0", "scp": "exit 0", "ssh": "exit 0", "kubeadm": "exit 0", "sleep": "exit 0",
	"kubectl": `case " $* " in *" rollout status "*|*" rollout undo "*|*" logs "*|*" exec "*|*" debug "*) exit 0;; esac
exec "$KUBECTL" --kubeconfig "$ADMIN" "$@"`,
}

// reader follows pages: one shell per section, at the top of a copy of what the pages change.
type reader struct {
	c   *harness.Cluster
	dir string
	env []string
}

func newReader(t *testing.T, c *harness.Cluster) *reader {
	t.Helper()
	kubectl, err := harness.KubectlBinary()
	if err != nil {
		t.Fatal(err)
	}
	r := &reader{c: c, dir: t.TempDir()}
	if err := os.CopyFS(filepath.Join(r.dir, "deploy"), os.DirFS("../../deploy")); err != nil {
		t.Fatal(err)
	}
	programs := t.TempDir()
	for name, script := range standIns {
		if err := os.WriteFile(filepath.Join(programs, name), []byte("#!/bin/bash\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	r.env = append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH"), "EDITOR=true",
		"NODE=worker-1", "VERSION=v0.1.0", "KUBECTL="+kubectl, "ADMIN="+c.Server.AdminKubeconfig())
	return r
}

// follow runs all sections of a page, and calls after with the heading of each.
func (r *reader) follow(t *testing.T, page string, after func(heading string)) {
	t.Helper()
	all, err := doctest.Sections(filepath.Join("../..", page))
	if err != nil || len(all) == 0 {
		t.Fatalf("%s has %d commands: %v", page, len(all), err)
	}
	for _, s := range all {
		commands := strings.Join(s.Blocks, "")
		cmd := exec.Command("bash", "-euo", "pipefail", "-c", commands)
		cmd.Dir, cmd.Env = r.dir, r.env
		var printed []byte
		err := r.c.N1.Do(func() (err error) {
			printed, err = cmd.CombinedOutput()
			return err
		})
		if err != nil {
			t.Fatalf("%s, %q: %v\n%s\n%s", page, s.Heading, err, commands, printed)
		}
		t.Logf("%s, %q:\n%s", page, s.Heading, printed)
		after(s.Heading)
	}
}

// The commands on the pages for operators work, one by one: those of kubectl against a real API server, with kubeadm's
// kube-proxy in it.
func TestOperatorPages_CommandsWork(t *testing.T) {
	c := harness.NewCluster(t)
	installKubeadmsProxy(t, c)
	if _, err := c.Server.Apply(t.Context(), definitions(t)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"worker-1", "worker-2", "worker-3", "worker-4", "worker-7"} {
		node := &corev1.Node{}
		node.Name, node.Labels = name, map[string]string{"kubernetes.io/os": "linux"}
		if _, err := c.Client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	r := newReader(t, c)
	const kubeProxyName, sluice, canary = "kube-proxy", "sluice", "sluice-canary"
	want := map[string][2]string{ // who serves worker-1 and worker-7
		"3. Create the DaemonSet":        {kubeProxyName, kubeProxyName},
		"4. Migrate the first node":      {sluice, kubeProxyName},
		"5. Migrate the remaining nodes": {sluice, sluice},
		"Roll back a node":               {kubeProxyName, sluice},
		"Canary":                         {canary, canary},
		"Rollout":                        {sluice, sluice},
		"Roll back":                      {kubeProxyName, sluice},
		"Return to kube-proxy":           {kubeProxyName, kubeProxyName},
	}
	check := func(heading string) {
		if expected, known := want[heading]; known {
			for i, name := range []string{"worker-1", "worker-7"} {
				if got := serving(t, c, name); !slices.Equal(got, []string{expected[i]}) {
					t.Errorf("after %q: %s is served by %v, want %s", heading, name, got, expected[i])
				}
			}
			delete(want, heading)
		}
	}
	for _, page := range []string{
		"docs/migrate.md", "docs/install.md", "docs/monitoring.md", "docs/security.md", "docs/upgrade.md",
	} {
		r.follow(t, page, check)
	}
	for heading := range want {
		t.Errorf("no page has a section %q with commands", heading)
	}
}

// serving returns the DaemonSets whose pods would run on a node.
func serving(t *testing.T, c *harness.Cluster, name string) []string {
	t.Helper()
	node, err := c.Client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	all, err := c.Client.AppsV1().DaemonSets(deployedIn).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var present []*appsv1.DaemonSet
	for i := range all.Items {
		present = append(present, &all.Items[i])
	}
	return proxiesOn(t, node.Labels["sluice.dev/proxy"], present)
}

// installKubeadmsProxy makes kube-proxy's ConfigMap, DaemonSet and rights as `kubeadm init` does.
func installKubeadmsProxy(t *testing.T, c *harness.Cluster) {
	t.Helper()
	config, err := kubeadmconfig.DefaultedStaticInitConfiguration()
	if err != nil {
		t.Fatal(err)
	}
	config.ClusterConfiguration.ControlPlaneEndpoint = c.Server.Address().String()
	endpoint := &kubeadmapi.APIEndpoint{AdvertiseAddress: c.Server.Address().Addr().String(), BindPort: 6443}
	if err := kubeproxyaddon.EnsureProxyAddon(&config.ClusterConfiguration, endpoint, c.Client, "", io.Discard, false); err != nil {
		t.Fatal(err)
	}
	settings := &corev1.ConfigMap{Data: map[string]string{"ClusterConfiguration": "{}"}}
	settings.Name, settings.Namespace = "kubeadm-config", deployedIn
	if _, err := c.Client.CoreV1().ConfigMaps(deployedIn).Create(t.Context(), settings, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
