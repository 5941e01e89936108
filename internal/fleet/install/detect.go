// Package install finds out how a cluster runs kube-proxy, and prints the objects that install Sluice there. It is pure:
// package fleet reads the objects of the cluster.
package install

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/sluice-proxy/sluice/internal/plural"
)

// Cluster is what the API server has. Objects that do not exist are nil.
type Cluster struct {
	Nodes     []corev1.Node
	KubeProxy *appsv1.DaemonSet
	Pods      []corev1.Pod // of kube-proxy, if there is no DaemonSet
	// Config is the ConfigMap kube-proxy; EKS has two. Kubeadm is the ConfigMap kubeadm-config.
	Config, EKSConfig, Kubeadm *corev1.ConfigMap
}

// Value is a setting, with the place where it was found.
type Value struct{ Text, From string }

// Found is what the objects tell.
type Found struct {
	Installer                 Installer
	Evidence                  string
	KubeProxy                 string
	DaemonSet                 bool // kube-proxy is a DaemonSet that its owner does not restore
	Server, ClusterCIDR, Mode Value
}

// mark is by what a node shows its installer.
type mark struct {
	installer string
	shown     func(*corev1.Node) string
}

var marks = []mark{
	{kind, providerID("kind://")},
	{"k3s", kubelet("+k3s")},
	{"RKE2", kubelet("+rke2")},
	{"Talos", func(n *corev1.Node) string { return having("OS image ", n.Status.NodeInfo.OSImage, "Talos") }},
	{"kOps", label("kops.k8s.io/instancegroup")},
	{"EKS", label("eks.amazonaws.com/nodegroup")},
	{"EKS", label("eks.amazonaws.com/compute-type")},
	{"EKS", kubelet("-eks-")},
	{"AKS", label("kubernetes.azure.com/cluster")},
}

func kubelet(part string) func(*corev1.Node) string {
	return func(n *corev1.Node) string { return having("kubelet ", n.Status.NodeInfo.KubeletVersion, part) }
}

func providerID(part string) func(*corev1.Node) string {
	return func(n *corev1.Node) string { return having("provider ID ", n.Spec.ProviderID, part) }
}

func having(what, text, part string) string {
	if strings.Contains(text, part) {
		return what + text
	}
	return ""
}

func label(key string) func(*corev1.Node) string {
	return func(n *corev1.Node) string {
		if value, ok := n.Labels[key]; ok {
			return "label " + key + "=" + value
		}
		return ""
	}
}

// Detect returns what the objects of a cluster tell.
func Detect(c Cluster) Found {
	f := Found{}
	f.Installer, f.Evidence = installer(c)
	f.KubeProxy = runs(c, f.Installer)
	f.DaemonSet = c.KubeProxy != nil && slices.Contains([]string{kubeadm, kind, unknown.Name}, f.Installer.Name)
	f.settings(c)
	return f
}

// installer returns the installer that the nodes show. With several, it is unknown.
func installer(c Cluster) (Installer, string) {
	found := map[string]string{}
	for i := range c.Nodes {
		for _, m := range marks {
			if shown := m.shown(&c.Nodes[i]); shown != "" {
				found[m.installer] = cmp.Or(found[m.installer], fmt.Sprintf("node %s: %s", c.Nodes[i].Name, shown))
				break
			}
		}
	}
	switch names := slices.Sorted(maps.Keys(found)); {
	case len(names) > 1:
		return unknown, "the nodes differ: " + strings.Join(slices.Sorted(maps.Values(found)), "; ")
	case len(names) == 1:
		return named(names[0]), found[names[0]]
	case c.Kubeadm != nil:
		return named(kubeadm), "ConfigMap kube-system/kubeadm-config"
	}
	return unknown, "no node and no ConfigMap shows it"
}

// runs describes how kube-proxy runs.
func runs(c Cluster, by Installer) string {
	switch {
	case c.KubeProxy != nil:
		image := ""
		if all := c.KubeProxy.Spec.Template.Spec.Containers; len(all) > 0 {
			image = ", image " + all[0].Image
		}
		return fmt.Sprintf("DaemonSet kube-system/kube-proxy on %s%s", plural.Of(int(c.KubeProxy.Status.DesiredNumberScheduled), "node"), image)
	case len(c.Pods) > 0 && c.Pods[0].Annotations[corev1.MirrorPodAnnotationKey] != "":
		return fmt.Sprintf("static pods, for example kube-system/%s", c.Pods[0].Name)
	case len(c.Pods) > 0:
		return fmt.Sprintf("pods, for example kube-system/%s", c.Pods[0].Name)
	case by.Name == "k3s":
		return by.KubeProxy + ", or disabled: the API does not show it"
	}
	return "not found"
}

// settings takes the settings from kube-proxy's configuration, and then from kubeadm's.
func (f *Found) settings(c Cluster) {
	var proxy struct {
		Mode        *string
		ClusterCIDR string
	}
	var kubeconfig struct {
		Clusters []struct{ Cluster struct{ Server string } }
	}
	var cluster struct {
		ControlPlaneEndpoint string
		Networking           struct{ PodSubnet string }
	}
	from := decode(c.Config, &proxy, "config.conf")
	from = cmp.Or(from, decode(c.EKSConfig, &proxy, "config"))
	at := decode(c.Config, &kubeconfig, "kubeconfig.conf", "kubeconfig")
	kubeadmConfig := decode(c.Kubeadm, &cluster, "ClusterConfiguration")
	for _, one := range kubeconfig.Clusters {
		f.Server = Value{one.Cluster.Server, at}
	}
	if endpoint := cluster.ControlPlaneEndpoint; f.Server.Text == "" && endpoint != "" {
		if _, _, err := net.SplitHostPort(endpoint); err != nil {
			endpoint = net.JoinHostPort(strings.Trim(endpoint, "[]"), "6443") // kubeadm's default
		}
		f.Server = Value{"https://" + endpoint, kubeadmConfig}
	}
	if f.Server.Text == "" && f.Installer.Default != "" {
		f.Server = Value{f.Installer.Default, f.Installer.Name + "'s default"}
	}
	if f.ClusterCIDR = (Value{proxy.ClusterCIDR, from}); proxy.ClusterCIDR == "" && cluster.Networking.PodSubnet != "" {
		f.ClusterCIDR = Value{cluster.Networking.PodSubnet, kubeadmConfig}
	}
	switch {
	case proxy.Mode == nil && from == "":
	case proxy.Mode == nil || *proxy.Mode == "":
		f.Mode = Value{"iptables", "kube-proxy's default, because " + from + " contains no mode"}
	default:
		f.Mode = Value{*proxy.Mode, from}
	}
}

// decode reads the first of the keys that a ConfigMap has, and returns where that is. A text that is not YAML counts as none.
func decode(config *corev1.ConfigMap, into any, keys ...string) string {
	for _, key := range keys {
		if config != nil && config.Data[key] != "" && yaml.Unmarshal([]byte(config.Data[key]), into) == nil {
			return fmt.Sprintf("%s in ConfigMap kube-system/%s", key, config.Name)
		}
	}
	return ""
}
