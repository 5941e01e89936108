package install

import (
	"regexp"
	"strings"
)

// Installer is a row of the tables in docs/install.md, which are generated from here (make docs). Its texts are Markdown.
type Installer struct {
	Name string
	// KubeProxy is how the installer runs kube-proxy, and Off how to switch it off.
	KubeProxy, Off string
	// Server is where the API server is, as Sluice needs it; Default is its address if all clusters have the same.
	Server, Default string
	Back, Tests     string
	Note            string // below the table
}

const notTested = "*not tested*"

// Kubeadm is also what runs kube-proxy in kind.
const kubeadm, kind = "kubeadm, Cluster API", "kind"

// Installers are in the order of the tables.
var Installers = []Installer{
	{Name: kubeadm, KubeProxy: "DaemonSet", Off: "[migrate](migrate.md); new cluster: `--skip-phases=addon/kube-proxy`",
		Server: "the `controlPlaneEndpoint`", Tests: "kubeadm's objects: *run in CI*; Cluster API: *not tested*",
		Back: "[uninstall](uninstall.md#return-to-kube-proxy); if the DaemonSet does not exist: delete Sluice, then `kubeadm init phase addon kube-proxy`"},
	{Name: kind, KubeProxy: "kubeadm's DaemonSet", Off: "new cluster: `networking.kubeProxyMode: none`; existing cluster: [migrate](migrate.md)",
		Server: "`https://CLUSTER-control-plane:6443`", Tests: notTested,
		Back: "[uninstall](uninstall.md#return-to-kube-proxy); with `kubeProxyMode: none`, create the cluster again",
		Note: "Load the image with `kind load image-archive`, and set `conntrack.maxPerCore: 0`: kind does the same for kube-proxy, because the nodes are containers."},
	{Name: "k3s", KubeProxy: "part of the k3s process", Off: "`disable-kube-proxy: true` in `/etc/rancher/k3s/config.yaml` of all servers; restart all nodes",
		Server: "`https://127.0.0.1:6444` (`lb-server-port`)", Default: "https://127.0.0.1:6444", Tests: notTested, Back: rancherBack},
	{Name: "RKE2", KubeProxy: "static pod", Off: "`disable-kube-proxy: true` in `/etc/rancher/rke2/config.yaml` of all servers; restart all nodes",
		Server: "`https://127.0.0.1:6443`", Default: "https://127.0.0.1:6443", Tests: notTested, Back: rancherBack},
	{Name: "kOps", KubeProxy: "static pod", Off: "`spec.kubeProxy.enabled: false`, `kops update cluster --yes`, `kops rolling-update cluster --yes`", Tests: notTested,
		Back: "set the node label `sluice.dev/proxy: kube-proxy` in `nodeLabels` of each instance group, remove `enabled: false`, `kops update cluster --yes`, `kops rolling-update cluster --yes`"},
	{Name: "EKS", KubeProxy: "add-on (DaemonSet)", Off: "`aws eks delete-addon --cluster-name CLUSTER --addon-name kube-proxy`",
		Server: "`aws eks describe-cluster --name CLUSTER --query cluster.endpoint`", Tests: notTested,
		Back: "delete Sluice, then `aws eks create-addon --cluster-name CLUSTER --addon-name kube-proxy`",
		Note: "If kube-proxy is not an add-on but a plain DaemonSet, delete the DaemonSet and keep its manifest. On nodes of EKS Auto Mode, kube-proxy is part of the node and cannot be replaced."},
	{Name: "AKS", KubeProxy: "DaemonSet", Off: "with bring-your-own CNI: `az aks create` or `update` with `--kube-proxy-config FILE`, which contains `{\"enabled\": false}` (preview)",
		Server: "`https://FQDN:443`, with `az aks show --query fqdn`", Tests: notTested,
		Back: "delete Sluice, then `az aks update --kube-proxy-config FILE` with `{\"enabled\": true}`"},
	{Name: "Talos", KubeProxy: "DaemonSet", Off: "`cluster.proxy.disabled: true`; existing cluster: then `kubectl -n kube-system delete daemonset kube-proxy`",
		Server: "`https://localhost:7445` (KubePrism)", Default: "https://localhost:7445", Tests: notTested,
		Back: "delete Sluice, then remove `cluster.proxy.disabled` on the control plane: Talos creates the DaemonSet again"},
}

const rancherBack = "remove `disable-kube-proxy` on all servers; then, one node at a time: `kubectl label node NODE sluice.dev/proxy=kube-proxy`, and restart k3s or RKE2"

// unknown is the row of a cluster whose installer is not in the tables.
var unknown = Installer{Name: "unknown", Tests: notTested,
	Off:  "see the documentation of the installer; if it only creates the DaemonSet, [migrate](migrate.md)",
	Back: "see [uninstall](uninstall.md#return-to-kube-proxy)"}

func named(name string) Installer {
	for _, i := range Installers {
		if i.Name == name {
			return i
		}
	}
	return unknown
}

var (
	link   = regexp.MustCompile(`\[([^]]*)\]\(([^)]*)\)`)
	marked = strings.NewReplacer("`", "", "*", "")
)

// plain returns Markdown as text for a terminal, with links to pages in docs/.
func plain(markdown string) string {
	return marked.Replace(link.ReplaceAllString(markdown, "$1 (docs/$2)"))
}
