package install

import (
	"cmp"
	"fmt"
	"strings"
	"unicode"

	"github.com/sluice-proxy/sluice/deploy"
)

// steps move a cluster whose DaemonSet of kube-proxy can be patched, node by node, and back. Each is a command of
// docs/migrate.md or docs/uninstall.md.
var (
	steps = []string{
		"kubectl -n kube-system patch daemonset kube-proxy --patch-file deploy/kubeadm/kube-proxy.yaml",
		"kubectl -n kube-system rollout status daemonset kube-proxy",
		"kubectl label node $NODE sluice.dev/proxy=sluice && sleep 5",
	}
	stepsBack = []string{
		"kubectl label nodes --all sluice.dev/proxy=kube-proxy --overwrite && sleep 5",
		"kubectl -n kube-system rollout status daemonset kube-proxy",
		"kubectl -n kube-system patch daemonset kube-proxy --patch-file deploy/kubeadm/restore.yaml",
		"kubectl label nodes --all sluice.dev/proxy-",
	}
)

// Print returns the objects for kubectl apply, with comments that tell what was found, and how to switch kube-proxy off and
// on again. If kube-proxy's DaemonSet can be patched, Sluice serves only the nodes with the label sluice.dev/proxy=sluice.
func (f Found) Print(image string) (string, error) {
	for _, text := range []string{image, f.Server.Text, f.ClusterCIDR.Text, f.Mode.Text} {
		if strings.ContainsAny(text, " \r\n#") { // it would change other lines
			return "", fmt.Errorf("setting %q: must not contain spaces or #", text)
		}
	}
	objects := deploy.Install[strings.Index(deploy.Install, "apiVersion:"):]
	edits := [][2]string{{"image: sluice:latest\n", "image: " + image + "\n"}}
	if f.Server.Text != "" {
		edits = append(edits, [2]string{"server: https://CONTROL_PLANE:6443\n", "server: " + f.Server.Text + "\n"})
	}
	if f.ClusterCIDR.Text != "" {
		edits = append(edits, [2]string{`clusterCIDR: ""` + "\n", "clusterCIDR: " + f.ClusterCIDR.Text + "\n"})
	}
	if f.Mode.Text != "" {
		edits = append(edits, [2]string{`mode: ""` + "\n", "mode: " + f.Mode.Text + "\n"})
	}
	if f.DaemonSet {
		edits = append(edits, [2]string{
			"operator: NotIn\n                values:\n                - kube-proxy\n                - sluice-canary\n",
			"operator: In\n                values:\n                - sluice\n"})
	}
	for _, edit := range edits {
		if !strings.Contains(objects, edit[0]) {
			return "", fmt.Errorf("the manifests do not contain %q: report this as a bug", edit[0])
		}
		objects = strings.ReplaceAll(objects, edit[0], edit[1])
	}
	return f.comments() + objects, nil
}

func (f Found) comments() string {
	var b strings.Builder
	write := func(format string, args ...any) {
		text := strings.Map(func(r rune) rune { // a kubelet reports any text, and none may end the comment
			if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
				return ' '
			}
			return r
		}, fmt.Sprintf(format, args...))
		b.WriteString(strings.TrimRight("# "+text, " ") + "\n")
	}
	list := func(commands []string) {
		for _, command := range commands {
			write("  %s", command)
		}
	}
	setting := func(name string, v Value, missing string) {
		if v.Text == "" {
			write("%-12s NOT FOUND: %s", name, missing)
			return
		}
		write("%-12s %s (%s)", name, v.Text, v.From)
	}
	write("%-12s %s (%s)", "Installer:", f.Installer.Name, f.Evidence)
	write("%-12s %s", "kube-proxy:", f.KubeProxy)
	setting("API server:", f.Server, "put it in place of CONTROL_PLANE: "+plain(cmp.Or(f.Installer.Server, "the server in the kubelet's kubeconfig of a worker node")))
	setting("Pod CIDR:", f.ClusterCIDR, "set clusterCIDR, or Sluice masquerades no connections from outside of the cluster")
	setting("Mode:", f.Mode, "Sluice selects nftables or iptables; set the mode of kube-proxy if it runs")
	write("%-12s %s", "Tests:", plain(f.Installer.Tests))
	if f.Installer.Note != "" {
		write("%-12s %s", "Note:", plain(f.Installer.Note))
	}
	write("")
	if f.DaemonSet {
		write("Switch kube-proxy off, in a checkout of the release: apply these objects, and then, node by node (docs/migrate.md):")
		list(steps)
		write("Way back (docs/uninstall.md):")
		list(stepsBack)
		return b.String()
	}
	write("Switch kube-proxy off, and then apply these objects (docs/install.md):")
	write("  %s", plain(f.Installer.Off))
	write("Way back (docs/install.md):")
	write("  %s", plain(f.Installer.Back))
	return b.String()
}
