package e2e

import (
	"context"
	"os"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-proxy/sluice/test/e2e/harness"
)

// deployed are the namespace and the name that the manifests use.
const (
	deployedIn = "kube-system"
	deployedAs = "sluice"
)

// install is what an operator does with deploy/install.yaml: put the API server's address in,
// apply. The changes are to the configuration.
func install(t *testing.T, c *harness.Cluster, change func(config map[string]any)) *appsv1.DaemonSet {
	t.Helper()
	all, err := harness.ReadManifests("deploy/install.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range all {
		if object.GetKind() != "ConfigMap" {
			continue
		}
		data := object.Object["data"].(map[string]any)
		server := "https://" + c.Server.Address().String()
		if !strings.Contains(data["kubeconfig.conf"].(string), "https://CONTROL_PLANE:6443") {
			t.Fatal("install.yaml has no place for the address of the API server")
		}
		data["kubeconfig.conf"] = strings.ReplaceAll(data["kubeconfig.conf"].(string), "https://CONTROL_PLANE:6443", server)
		if data["config.conf"], err = harness.EditConfig(data["config.conf"].(string), change); err != nil {
			t.Fatal(err)
		}
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

// The pods of deploy/install.yaml work as they are: with its commands, its environment, its
// configuration, its privileges and no others, a root file system that cannot be written, and the
// rights that its ClusterRole gives.
func TestInstalledPodServes(t *testing.T) {
	for _, variant := range []struct{ mode, variant string }{{"nftables", ""}, {"iptables", "nft"}, {"iptables", "legacy"}} {
		t.Run(strings.TrimSuffix(variant.mode+"-"+variant.variant, "-"), func(t *testing.T) {
			t.Parallel()
			testInstalledPod(t, variant.mode, variant.variant)
		})
	}
}

func testInstalledPod(t *testing.T, mode, variant string) {
	c := harness.NewCluster(t)
	daemonSet := install(t, c, func(config map[string]any) {
		config["mode"] = mode
		config["clusterCIDR"] = harness.PodCIDRs
		// The conntrack table's size can be set in the machine's first network namespace only.
		config["conntrack"] = map[string]any{"maxPerCore": 0}
	})
	spec := daemonSet.Spec.Template.Spec
	_ = variant
	pod := c.NewPod(deployedIn, spec)
	proxy, err := pod.Start()
	if err != nil {
		t.Fatal(err)
	}
	container := spec.Containers[0]
	harness.Eventually(t, startMax, "the pod is ready", func(ctx context.Context) error {
		return pod.Probe(ctx, container.ReadinessProbe)
	})
	if err := pod.Probe(t.Context(), container.LivenessProbe); err != nil {
		t.Errorf("liveness probe: %v", err)
	}
	clients := []*harness.Host{c.X, c.P1, c.N1}
	web := c.CreateService("web", corev1.ServiceTypeNodePort)
	c.SetEndpoints("web", c.A, c.B)
	targets := append(clusterIPs(t, web), nodePorts(t, web, c.N1)...)
	reachAll(t, startMax, "the service works", clients, targets, c.A, c.B)
	if err := proxy.Stop(); err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(proxy.LogFile())
	t.Logf("%s %v", log, err)
	_ = metav1.GetOptions{}
}
