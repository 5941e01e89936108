// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-proxy/sluice/test/harness"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

// deployedIn is the namespace that the manifests name.
const deployedIn = "kube-system"

// placeholder stands in deploy/install.yaml for the address of the API server.
const placeholder = "https://CONTROL_PLANE:6443"

// A variant is a mode, and in mode iptables the programs that write the rules.
type variant struct{ mode, programs string }

func (v variant) String() string { return strings.TrimSuffix(v.mode+"-"+v.programs, "-") }

var variants = []variant{{"nftables", ""}, {"iptables", "nft"}, {"iptables", "legacy"}}

// install does what docs/install.md asks of an operator: it puts the address of the API server and
// the pods' addresses in, and applies. It returns the DaemonSet as the server stores it.
func install(t *testing.T, server *harness.APIServer, v variant) *appsv1.DaemonSet {
	t.Helper()
	all, err := harness.ReadManifests("deploy/install.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range all {
		if object.GetKind() == "ConfigMap" {
			configure(t, server, v, object.Object["data"].(map[string]any))
		}
	}
	stored, err := server.Apply(t.Context(), all)
	if err != nil {
		t.Fatal(err)
	}
	daemonSet, err := harness.Of[appsv1.DaemonSet](stored, "DaemonSet")
	if err != nil {
		t.Fatal(err)
	}
	return daemonSet
}

func configure(t *testing.T, server *harness.APIServer, v variant, data map[string]any) {
	t.Helper()
	kubeconfig := data["kubeconfig.conf"].(string)
	if !strings.Contains(kubeconfig, placeholder) {
		t.Fatalf("the kubeconfig does not contain %s", placeholder)
	}
	data["kubeconfig.conf"] = strings.ReplaceAll(kubeconfig, placeholder, "https://"+server.Address().String())
	config, err := harness.EditConfig(data["config.conf"].(string), func(fields map[string]any) {
		fields["mode"] = v.mode
		fields["clusterCIDR"] = harness.PodCIDRs
		// The conntrack table's size can be set in the machine's first network namespace only.
		fields["conntrack"] = map[string]any{"maxPerCore": 0}
		// The kubelet gives the pod what the manifest names; here it has that of the test.
		fields["oomScoreAdj"] = ownOOMScore(t)
	})
	if err != nil {
		t.Fatal(err)
	}
	if v.programs != "" {
		config += fmt.Sprintf("iptables: {variant: %s}\n", v.programs)
	}
	data["config.conf"] = config
}

func ownOOMScore(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		t.Fatal(err)
	}
	score, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return score
}

// The pods of deploy/install.yaml work as they are. They have its commands, its environment, its
// configuration, its privileges and no others, a root file system that cannot be written, and the
// rights that its ClusterRole gives.
func TestInstalledPod_Serves(t *testing.T) {
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			testInstalledPod(t, v)
		})
	}
}

func testInstalledPod(t *testing.T, v variant) {
	c := harness.NewCluster(t)
	spec := install(t, c.Server, v).Spec.Template.Spec
	pod := c.NewPod(deployedIn, spec)
	proxy := startPod(t, pod, spec.Containers[0])
	clients := []*harness.Host{c.X, c.P1, c.N1}
	web := c.CreateService("web", corev1.ServiceTypeNodePort)
	dns := c.CreateService("dns", corev1.ServiceTypeClusterIP)
	targets := append(clusterIPs(t, web), nodePorts(t, web, c.N1)...)
	flows := openFlows(t, clients, clusterIPs(t, dns))
	c.SetEndpoints("web", c.A, c.B)
	c.SetEndpoints("dns", c.A)
	reachAll(t, "the service works", clients, targets, c.A, c.B)
	flows.await(t, "UDP flows have an endpoint", c.A)
	c.SetEndpoints("dns", c.B)
	flows.await(t, "stale UDP flows are removed", c.B)
	awaitEvent(t, c, "Starting")
	// What `kubectl exec POD -- sluice status` starts.
	status := spec.Containers[0]
	status.Name, status.Args = "status", []string{"status"}
	if err := pod.Run(status); err != nil {
		t.Error(err)
	}

	// A pod that is replaced finds its rules, and what it has recorded on the host.
	traffic := startTraffic(t, c, targets)
	if err := proxy.Stop(); err != nil {
		t.Fatal(err)
	}
	lookForRejections(t, proxy)
	proxy = startPod(t, pod, spec.Containers[0])
	c.SetEndpoints("web", c.A, c.B, c.C)
	reachAll(t, "the endpoints scaled", clients, targets, c.A, c.B, c.C)
	stopTraffic(t, traffic)
	lookForRejections(t, proxy)
}

// startPod starts the pod and waits until the kubelet would call it ready, and alive.
func startPod(t *testing.T, pod *harness.Pod, container corev1.Container) *harness.Proxy {
	t.Helper()
	proxy, err := pod.Start()
	if err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the pod is ready", func(ctx context.Context) error {
		return pod.Probe(ctx, container.ReadinessProbe)
	})
	if err := pod.Probe(t.Context(), container.LivenessProbe); err != nil {
		t.Errorf("liveness probe: %v", err)
	}
	return proxy
}

// rejections are what a missing privilege, permission or mount leaves in a log.
var rejections = []string{
	"forbidden", "permission denied", "operation not permitted", "read-only file system", "no such file",
	"xtables lock is not the host's",
}

func lookForRejections(t *testing.T, proxy *harness.Proxy) {
	t.Helper()
	log, err := os.ReadFile(proxy.LogFile())
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(log)) {
		for _, mark := range rejections {
			if strings.Contains(strings.ToLower(line), mark) {
				t.Errorf("%s: %s", proxy.LogFile(), line)
			}
		}
	}
}

// Each capability of the DaemonSet is needed: without it, the proxy does not start. NET_RAW is
// needed by the legacy variant of iptables alone.
func TestInstalledPod_NeedsEachCapability(t *testing.T) {
	needs := map[corev1.Capability]variant{
		"NET_ADMIN": {"nftables", ""},
		"NET_RAW":   {"iptables", "legacy"},
	}
	c := harness.NewCluster(t)
	given := install(t, c.Server, variants[0]).Spec.Template.Spec.Containers[0].SecurityContext.Capabilities.Add
	if len(given) != len(needs) {
		t.Errorf("capabilities %v, and reasons for %d", given, len(needs))
	}
	for _, capability := range given {
		t.Run(string(capability), func(t *testing.T) {
			v, known := needs[capability]
			if !known {
				t.Fatal("no reason for it")
			}
			proxy, err := c.NewPod(deployedIn, without(install(t, c.Server, v), capability)).Start()
			if err != nil {
				t.Fatal(err)
			}
			if status := proxy.ExitStatus(); status != 1 {
				t.Errorf("exit status %d, want 1", status)
			}
			t.Log(proxy.Tail(3))
		})
	}
	for _, v := range variants[:2] {
		t.Run(v.String()+" without NET_RAW", func(t *testing.T) {
			spec := without(install(t, c.Server, v), "NET_RAW")
			proxy := startPod(t, c.NewPod(deployedIn, spec), spec.Containers[0])
			if err := proxy.Stop(); err != nil {
				t.Error(err)
			}
			lookForRejections(t, proxy)
		})
	}
}

func without(daemonSet *appsv1.DaemonSet, capability corev1.Capability) corev1.PodSpec {
	spec := daemonSet.Spec.Template.Spec
	capabilities := spec.Containers[0].SecurityContext.Capabilities
	capabilities.Add = slices.DeleteFunc(capabilities.Add, func(other corev1.Capability) bool {
		return other == capability
	})
	return spec
}

// The running proxy reports a changed configuration, and a new pod, whose init container has all privileges, applies
// it. A privileged container cleans up what is left.
func TestInstalledPod_ReplacedAppliesChanges(t *testing.T) {
	const sysctl = "net.netfilter.nf_conntrack_tcp_timeout_established"
	c := harness.NewCluster(t)
	before, err := netnstest.ReadSysctl(c.N1, sysctl)
	if err != nil {
		t.Fatal(err)
	}
	spec := install(t, c.Server, variants[0]).Spec.Template.Spec
	pod := c.NewPod(deployedIn, spec)
	proxy := startPod(t, pod, spec.Containers[0])
	change := func(from, to string) {
		t.Helper()
		if err := pod.ChangeConfig("config", "config.conf", from, to); err != nil {
			t.Fatal(err)
		}
	}
	const elsewhere = "10.10.0.1:10249"
	change("metricsBindAddress: "+harness.MetricsAddress, "metricsBindAddress: "+elsewhere)
	change("maxPerCore: 0", "maxPerCore: 0\n  tcpEstablishedTimeout: 1h")
	awaitEvent(t, c, "ConfigurationHeld")
	if err := proxy.Stop(); err != nil {
		t.Fatal(err)
	}
	proxy = startPod(t, pod, spec.Containers[0])
	expectSysctl(t, c, sysctl, "3600")
	harness.Eventually(t, "the metrics move", func(ctx context.Context) error {
		_, err := c.N1.Get(ctx, "http://"+elsewhere+"/metrics")
		return err
	})

	if err := proxy.Stop(); err != nil {
		t.Fatal(err)
	}
	cleanup := spec.InitContainers[0]
	cleanup.Name, cleanup.Args = "cleanup", []string{"cleanup"}
	if err := pod.Run(cleanup); err != nil {
		t.Fatal(err)
	}
	expectSysctl(t, c, sysctl, before)
	tables, err := netnstest.Output(c.N1, exec.Command("nft", "list", "tables"))
	if err != nil || strings.Contains(string(tables), "kube-proxy") {
		t.Errorf("after the clean-up: %v, tables %s", err, tables)
	}
}

func expectSysctl(t *testing.T, c *harness.Cluster, name, want string) {
	t.Helper()
	if got, err := netnstest.ReadSysctl(c.N1, name); err != nil || got != want {
		t.Errorf("%s is %s, want %s: %v", name, got, want, err)
	}
}
