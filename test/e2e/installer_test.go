package e2e

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-proxy/sluice/test/harness"
)

// In a cluster with kubeadm's kube-proxy, sluice install --dry-run recognizes kubeadm and prints objects that the API server
// accepts: with the address of the API server and the mode in kube-proxy's ConfigMap, on no node without the label.
func TestInstallPrintsAcceptedObjects(t *testing.T) {
	c := harness.NewCluster(t)
	if text, err := c.Administer("install", "--dry-run"); err != nil || !strings.Contains(text, "\n# kube-proxy:  not found\n") {
		t.Errorf("without kube-proxy: %v\n%s", err, text)
	}
	installKubeadmsProxy(t, c)
	text, err := c.Administer("install", "--dry-run", "--image", "registry.example/sluice:v1")
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	config, err := c.Client.CoreV1().ConfigMaps(deployedIn).Get(t.Context(), "kube-proxy", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, server, _ := strings.Cut(config.Data["kubeconfig.conf"], "server: ")
	server, _, _ = strings.Cut(server, "\n")
	for _, want := range []string{"# Installer:   kubeadm, Cluster API (ConfigMap kube-system/kubeadm-config)", "DaemonSet kube-system/kube-proxy on ",
		"          server: " + server + "\n", "image: registry.example/sluice:v1\n", "    mode: iptables\n"} {
		if server == "" || !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	all, err := harness.ParseManifests([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	acceptManifests(t, c, all)
	installed, err := c.Client.AppsV1().DaemonSets(deployedIn).Get(t.Context(), "sluice", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	terms := installed.Spec.Template.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	if of := terms[0].MatchExpressions[0]; of.Key != "sluice.dev/proxy" || of.Operator != corev1.NodeSelectorOpIn || of.Values[0] != "sluice" {
		t.Errorf("the pods run on nodes with %v", of)
	}
}
