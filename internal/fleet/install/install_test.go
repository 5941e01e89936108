package install

import (
	"fmt"
	"os"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/sluice-proxy/sluice/test/doctest"
)

// TestInstallersReference generates the tables of install.md.
func TestInstallersReference(t *testing.T) {
	var rows, back [][]string
	notes := ""
	numbers := 0
	for _, i := range Installers {
		server, runs := i.Server, i.KubeProxy
		if i.Note != "" {
			numbers++
			notes += fmt.Sprintf("%d. %s: %s\n", numbers, i.Name, i.Note)
			runs += fmt.Sprintf(" (%d)", numbers)
		}
		rows = append(rows, []string{i.Name, runs, i.Off, server, i.Tests})
		if last := len(back) - 1; last >= 0 && back[last][1] == i.Back {
			back[last][0] += ", " + i.Name
			continue
		}
		back = append(back, []string{i.Name, i.Back})
	}
	const page = "../../../docs/install.md"
	table := doctest.Table([]string{"Installer", "kube-proxy runs as", "Switch off", "`apiServer`", "Tests"}, rows)
	doctest.Generated(t, page, "installers", table+"\n"+wrapped(notes))
	doctest.Generated(t, page, "way-back", doctest.Table([]string{"Installer", "Steps"}, back))
}

// wrapped breaks the lines of a numbered list.
func wrapped(list string) string {
	var b strings.Builder
	for line := range strings.Lines(list) {
		width := 0
		for i, word := range strings.Fields(line) {
			switch {
			case i == 0:
			case width+len(word) > 115:
				b.WriteString("\n   ")
				width = 3
			default:
				b.WriteString(" ")
			}
			b.WriteString(word)
			width += len(word) + 1
		}
		b.WriteString("\n")
	}
	return b.String()
}

// The steps that the command prints are those of the guides.
func TestStepsAreThoseOfTheGuides(t *testing.T) {
	for page, commands := range map[string][]string{"migrate.md": steps, "uninstall.md": stepsBack} {
		text, err := os.ReadFile("../../../docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		for _, command := range commands {
			if !strings.Contains(string(text), "\n"+command+"\n") {
				t.Errorf("docs/%s does not contain %s", page, command)
			}
		}
	}
}

const proxyConfig = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
bindAddress: 0.0.0.0
clientConnection: {kubeconfig: /var/lib/kube-proxy/kubeconfig.conf}
clusterCIDR: 10.244.0.0/16
mode: ""
`

const proxyKubeconfig = `apiVersion: v1
kind: Config
clusters:
- cluster:
    certificate-authority: /var/run/secrets/kubernetes.io/serviceaccount/ca.crt
    server: https://192.0.2.10:6443
  name: default
`

func config(name string, data ...string) *corev1.ConfigMap {
	c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "kube-system"}, Data: map[string]string{}}
	for i := 0; i < len(data); i += 2 {
		c.Data[data[i]] = data[i+1]
	}
	return c
}

func daemonSet(image string) *appsv1.DaemonSet {
	d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "kube-proxy", Namespace: "kube-system"}}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "kube-proxy", Image: image}}
	d.Status.DesiredNumberScheduled = 3
	return d
}

// node has the fields by which installers are recognized.
func node(name, version, os, provider string, labels ...string) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/os": "linux"}}}
	n.Spec.ProviderID = provider
	n.Status.NodeInfo.KubeletVersion, n.Status.NodeInfo.OSImage = version, os
	for i := 0; i < len(labels); i += 2 {
		n.Labels[labels[i]] = labels[i+1]
	}
	return n
}

func mirror(name string) corev1.Pod {
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "0a1b"}}}
}

var (
	kubeadmProxy  = config("kube-proxy", "config.conf", proxyConfig, "kubeconfig.conf", proxyKubeconfig)
	kubeadmConfig = config("kubeadm-config", "ClusterConfiguration", "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\ncontrolPlaneEndpoint: lb.example:6443\nnetworking:\n  podSubnet: 10.1.0.0/16,fd00:1::/48\n  serviceSubnet: 10.96.0.0/12\n")
	debian        = node("n1", "v1.37.2", "Debian GNU/Linux 12 (bookworm)", "")
)

func TestDetect(t *testing.T) {
	for name, c := range map[string]struct {
		cluster                    Cluster
		installer, evidence, proxy string
		server, cidr, mode         string
		daemonSet                  bool
		wants                      []string // in the printed text
	}{
		"kubeadm": {
			Cluster{Nodes: []corev1.Node{debian}, KubeProxy: daemonSet("registry.k8s.io/kube-proxy:v1.37.2"), Config: kubeadmProxy, Kubeadm: kubeadmConfig},
			kubeadm, "ConfigMap kube-system/kubeadm-config", "DaemonSet kube-system/kube-proxy on 3 nodes, image registry.k8s.io/kube-proxy:v1.37.2",
			"https://192.0.2.10:6443", "10.244.0.0/16", "iptables", true, []string{"#   kubectl label node $NODE sluice.dev/proxy=sluice", "operator: In\n"}},
		"kubeadm without kube-proxy": {
			Cluster{Nodes: []corev1.Node{debian}, Kubeadm: kubeadmConfig},
			kubeadm, "kubeadm-config", "not found", "https://lb.example:6443", "10.1.0.0/16,fd00:1::/48", "", false, []string{"operator: NotIn\n", "Mode:        NOT FOUND"}},
		"kind": {
			Cluster{Nodes: []corev1.Node{node("kind-control-plane", "v1.34.0", "Debian GNU/Linux 12 (bookworm)", "kind://docker/kind/kind-control-plane")},
				KubeProxy: daemonSet("registry.k8s.io/kube-proxy:v1.34.0"), Config: kubeadmProxy, Kubeadm: kubeadmConfig},
			kind, "provider ID kind://docker/kind/kind-control-plane", "DaemonSet", "https://192.0.2.10:6443", "10.244.0.0/16", "iptables", true, []string{"conntrack.maxPerCore: 0"}},
		"k3s": {
			Cluster{Nodes: []corev1.Node{node("edge", "v1.34.1+k3s1", "Ubuntu 24.04.3 LTS", "k3s://edge", "node.kubernetes.io/instance-type", "k3s")}},
			"k3s", "node edge: kubelet v1.34.1+k3s1", "part of the k3s process", "https://127.0.0.1:6444", "", "", false, []string{"disable-kube-proxy: true in /etc/rancher/k3s/config.yaml"}},
		"RKE2": {
			Cluster{Nodes: []corev1.Node{node("s1", "v1.34.1+rke2r1", "SUSE Linux Enterprise Server 15 SP6", "rke2://s1")}, Pods: []corev1.Pod{mirror("kube-proxy-s1")}},
			"RKE2", "kubelet v1.34.1+rke2r1", "static pods, for example kube-system/kube-proxy-s1", "https://127.0.0.1:6443", "", "", false, []string{"/etc/rancher/rke2/config.yaml"}},
		"kOps": {
			Cluster{Nodes: []corev1.Node{node("i-0a", "v1.33.4", "Ubuntu 24.04.3 LTS", "aws:///eu-central-1a/i-0a", "kops.k8s.io/instancegroup", "nodes-eu-central-1a")}, Pods: []corev1.Pod{mirror("kube-proxy-i-0a")}},
			"kOps", "label kops.k8s.io/instancegroup=nodes-eu-central-1a", "static pods", "", "", "", false, []string{"API server:  NOT FOUND", "https://CONTROL_PLANE:6443", "kops update cluster --yes"}},
		"EKS": {
			Cluster{Nodes: []corev1.Node{node("ip-10-0-0-1", "v1.33.5-eks-113cf36", "Amazon Linux 2023.9.20250929", "aws:///eu-west-1a/i-0b", "eks.amazonaws.com/nodegroup", "ng")},
				KubeProxy: daemonSet("602401143452.dkr.ecr.eu-west-1.amazonaws.com/eks/kube-proxy:v1.33.3-minimal-eksbuild.4"),
				Config:    config("kube-proxy", "kubeconfig", strings.ReplaceAll(proxyKubeconfig, "192.0.2.10:6443", "0A1B.gr7.eu-west-1.eks.amazonaws.com")),
				EKSConfig: config("kube-proxy-config", "config", strings.ReplaceAll(strings.ReplaceAll(proxyConfig, `mode: ""`, `mode: "iptables"`), "clusterCIDR: 10.244.0.0/16", `clusterCIDR: ""`))},
			"EKS", "label eks.amazonaws.com/nodegroup=ng", "eksbuild.4", "https://0A1B.gr7.eu-west-1.eks.amazonaws.com", "", "iptables", false, []string{"aws eks delete-addon", "operator: NotIn\n"}},
		"AKS": {
			Cluster{Nodes: []corev1.Node{node("aks-1", "v1.33.3", "Ubuntu 22.04.5 LTS", "azure:///subscriptions/1", "kubernetes.azure.com/cluster", "MC_g_c_westeurope")}, KubeProxy: daemonSet("mcr.microsoft.com/oss/kubernetes/kube-proxy:v1.33.3")},
			"AKS", "label kubernetes.azure.com/cluster", "mcr.microsoft.com", "", "", "", false, []string{"az aks create"}},
		"Talos": {
			Cluster{Nodes: []corev1.Node{node("talos-1", "v1.34.1", "Talos (v1.11.2)", "")}, KubeProxy: daemonSet("registry.k8s.io/kube-proxy:v1.34.1")},
			"Talos", "OS image Talos (v1.11.2)", "DaemonSet", "https://localhost:7445", "", "", false, []string{"cluster.proxy.disabled: true"}},
		"several installers": {
			Cluster{Nodes: []corev1.Node{node("a", "v1.34.1+k3s1", "", ""), node("b", "v1.34.1+rke2r1", "", "")}, Kubeadm: kubeadmConfig},
			"unknown", "the nodes differ: node a: kubelet v1.34.1+k3s1; node b: kubelet v1.34.1+rke2r1", "not found", "https://lb.example:6443", "10.1.0.0/16,fd00:1::/48", "", false, nil},
		"nothing": {Cluster{Nodes: []corev1.Node{debian}}, "unknown", "no node", "not found", "", "", "", false, []string{"set clusterCIDR"}},
		"broken configuration": {
			Cluster{Config: config("kube-proxy", "config.conf", "mode: [", "kubeconfig.conf", "server")},
			"unknown", "no node", "not found", "", "", "", false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := Detect(c.cluster)
			if f.Installer.Name != c.installer || !strings.Contains(f.Evidence, c.evidence) || !strings.Contains(f.KubeProxy, c.proxy) || f.DaemonSet != c.daemonSet {
				t.Errorf("%s (%s); %s; patched: %t", f.Installer.Name, f.Evidence, f.KubeProxy, f.DaemonSet)
			}
			if f.Server.Text != c.server || f.ClusterCIDR.Text != c.cidr || f.Mode.Text != c.mode {
				t.Errorf("server %q, clusterCIDR %q, mode %q", f.Server, f.ClusterCIDR, f.Mode)
			}
			text := printed(t, f)
			for _, want := range c.wants {
				if !strings.Contains(text, want) {
					t.Errorf("no %q in\n%s", want, text)
				}
			}
		})
	}
}

// printed prints the objects, and checks that they have the image and the settings.
func printed(t *testing.T, f Found) string {
	t.Helper()
	text, err := f.Print("registry.example/sluice:v1")
	if err != nil {
		t.Fatal(err)
	}
	kinds := ""
	for document := range strings.SplitSeq(text, "\n---\n") {
		var object struct {
			Kind string
			Data map[string]string
		}
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		kinds += object.Kind + " "
		if object.Data != nil {
			var settings struct{ Mode, ClusterCIDR string }
			if err := yaml.Unmarshal([]byte(object.Data["config.conf"]), &settings); err != nil || settings.Mode != f.Mode.Text || settings.ClusterCIDR != f.ClusterCIDR.Text {
				t.Errorf("%v: settings %+v", err, settings)
			}
			if f.Server.Text != "" && !strings.Contains(object.Data["kubeconfig.conf"], "server: "+f.Server.Text+"\n") {
				t.Errorf("the server is not %s:\n%s", f.Server.Text, object.Data["kubeconfig.conf"])
			}
		}
	}
	if kinds != "ServiceAccount ClusterRole ClusterRoleBinding ConfigMap DaemonSet " {
		t.Errorf("objects %s", kinds)
	}
	if n := strings.Count(text, "image: registry.example/sluice:v1\n"); n != 3 {
		t.Errorf("%d containers have the image, want 3", n)
	}
	return text
}

// A node or a setting cannot add an object to those that an administrator applies.
func TestTextsOfTheClusterStayInTheirPlace(t *testing.T) {
	const object = "\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: evil}\n"
	f := Detect(Cluster{Nodes: []corev1.Node{node("a", "", "Talos"+object, "")}, KubeProxy: daemonSet("x" + object)})
	if f.Installer.Name != "Talos" {
		t.Fatalf("%+v", f)
	}
	if text := printed(t, f); strings.Contains(text, "\nkind: Namespace") {
		t.Errorf("an object more:\n%s", text)
	}
	f.Server.Text = "https://a" + object
	if text, err := f.Print("sluice:v1"); err == nil {
		t.Errorf("no error:\n%s", text)
	}
}
