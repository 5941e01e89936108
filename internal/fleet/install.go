package fleet

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-proxy/sluice/internal/fleet/install"
)

// nodesMax bounds the Nodes by which the installer is recognized.
const nodesMax = 500

// InstallCommand returns the command that prints the objects for a cluster.
func InstallCommand(version string) *cobra.Command {
	f := &flags{version: version}
	var dryRun bool
	var image string
	cmd := &cobra.Command{
		Use:   "install --dry-run",
		Short: "Print the objects that install Sluice in a cluster",
		Long: `Find out by which installer a cluster was made and how it runs kube-proxy, and print the
objects that install Sluice there. Comments tell what was found, how to switch kube-proxy
off, and the way back. The command changes nothing. Review what it prints before you apply
it with kubectl apply -f -.

You need the rights to list Nodes, and to get ConfigMaps and DaemonSets and list Pods in
kube-system.`,
		Args: arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !dryRun {
				return misused("%s changes nothing: review the output of %[1]s --dry-run, and pipe it into kubectl apply -f -", cmd.CommandPath())
			}
			c, err := f.connect()
			if err != nil {
				return err
			}
			found, err := c.installed(cmd.Context())
			if err != nil {
				return err
			}
			text, err := install.Detect(found).Print(image)
			if err == nil {
				_, err = fmt.Fprint(cmd.OutOrStdout(), text)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "print the objects; required, because nothing else is possible")
	cmd.Flags().StringVar(&image, "image", "sluice:"+strings.ReplaceAll(version, "+", "-"), "image of the pods, with a tag or a digest")
	cmd.Flags().StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file (default: as kubectl)")
	cmd.Flags().StringVar(&f.context, "context", "", "context of the kubeconfig (default: the current one)")
	return cmd
}

// installed reads the objects that show the installer and kube-proxy.
func (c *cluster) installed(ctx context.Context) (found install.Cluster, err error) {
	var nodes corev1.NodeList
	options := metav1.ListOptions{LabelSelector: corev1.LabelOSStable + "=linux", Limit: nodesMax}
	if err := c.api.Get().Resource("nodes").VersionedParams(&options, metav1.ParameterCodec).Do(ctx).Into(&nodes); err != nil {
		return found, fmt.Errorf("list the Nodes: %w", err)
	}
	found.Nodes = nodes.Items
	for name, into := range map[string]**corev1.ConfigMap{"kube-proxy": &found.Config, "kube-proxy-config": &found.EKSConfig, "kubeadm-config": &found.Kubeadm} {
		config := new(corev1.ConfigMap)
		if exists, err := c.get(ctx, "/api/v1", "configmaps", name, config); err != nil {
			return found, err
		} else if exists {
			*into = config
		}
	}
	daemonSet := new(appsv1.DaemonSet)
	exists, err := c.get(ctx, "/apis/apps/v1", "daemonsets", "kube-proxy", daemonSet)
	if exists {
		found.KubeProxy = daemonSet
	}
	for _, labels := range []string{"k8s-app=kube-proxy", "component=kube-proxy"} {
		if err != nil || exists || len(found.Pods) > 0 {
			break
		}
		var pods corev1.PodList
		options := metav1.ListOptions{LabelSelector: labels, Limit: 1}
		err = c.api.Get().Namespace(metav1.NamespaceSystem).Resource("pods").VersionedParams(&options, metav1.ParameterCodec).Do(ctx).Into(&pods)
		found.Pods = pods.Items
	}
	return found, err
}

// get reads an object of kube-system, and reports whether it exists.
func (c *cluster) get(ctx context.Context, group, resource, name string, into runtime.Object) (exists bool, err error) {
	err = c.api.Get().AbsPath(group).Namespace(metav1.NamespaceSystem).Resource(resource).Name(name).Do(ctx).Into(into)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("get %s %s in kube-system: %w", resource, name, err)
	}
	return true, nil
}
