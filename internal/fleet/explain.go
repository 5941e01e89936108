// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-proxy/sluice/internal/explain"
	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/source/reduce"
)

func (f *flags) explainCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "explain pod/NAME (svc/NAME[.NAMESPACE][:PORT][/PROTOCOL] | IP:PORT[/PROTOCOL])",
		Short: "Explain how a connection from a pod to a Service is handled",
		Long: `Explain how a connection from a pod to the ClusterIP of a Service is handled, as sluice
explain does on the node of the pod. The port is a name or a number; a Service with one port
needs none. If no Service owns an address, the command names the Services that list it, and
why no node serves them: headless Services, for example.`,
		Example: `  kubectl sluice explain pod/web-5d9c svc/db:postgres -n shop
  kubectl sluice explain pod/web-5d9c svc/kube-dns.kube-system:dns -n shop
  kubectl sluice explain pod/web-5d9c 203.0.113.10:443 -n shop`,
		Args: arguments("pod/NAME", "svc/NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			pod, err := objectNamed(args[0], inspect.PodKinds)
			if err != nil {
				return err
			}
			to, err := inspect.ParseDestination(args[1])
			if err != nil {
				return err
			}
			c, err := f.connect()
			if err != nil {
				return err
			}
			from, err := c.pod(cmd.Context(), pod)
			if err != nil {
				return err
			}
			var answer *explain.Answer
			if to.Addr.IsValid() {
				answer, err = c.explainAddress(cmd.Context(), from, to)
			} else {
				answer, err = c.explain(cmd.Context(), from, to)
			}
			if err != nil {
				return err
			}
			return f.Print(cmd.OutOrStdout(), answer)
		},
	}
}

// explain explains a connection from a pod to a Service.
func (c *cluster) explain(ctx context.Context, pod *corev1.Pod, to *inspect.Destination) (*explain.Answer, error) {
	other := *c
	other.namespace = cmp.Or(to.Service.Namespace, c.namespace)
	object, err := other.service(ctx, to.Service.Name)
	if err != nil {
		return nil, err
	}
	flow, err := flowOf(pod, object, to)
	if err != nil {
		return nil, err
	}
	return c.ask(ctx, pod, flow)
}

// explainAddress explains a connection from a pod to an address. If no Service owns the address, the reasons name
// Services that list it, although no node serves them.
func (c *cluster) explainAddress(ctx context.Context, pod *corev1.Pod, to *inspect.Destination) (*explain.Answer, error) {
	from, found := addressOf(pod, to.Addr)
	if !found {
		return nil, fmt.Errorf("no common family: pod %s has no address of the family of %s", pod.Name, to.Addr)
	}
	flow, err := explain.ParseFlow(from.String(), to.Text, "")
	if err != nil {
		return nil, inspect.Misused("%w", err)
	}
	answer, err := c.ask(ctx, pod, flow)
	if err != nil || len(answer.Frontends) > 0 {
		return answer, err
	}
	if at := slices.IndexFunc(answer.Reasons, func(text string) bool { return strings.HasPrefix(text, explain.UnknownHere) }); at >= 0 {
		answer.Reasons = slices.Concat(answer.Reasons[:at], c.unserved(ctx, to.Addr), answer.Reasons[at+1:])
	}
	return answer, nil
}

// unserved returns why no node serves an address that Services list.
func (c *cluster) unserved(ctx context.Context, at netip.Addr) (reasons []string) {
	var list corev1.ServiceList
	if err := c.api.Get().Resource("services").Param("resourceVersion", "0").Do(ctx).Into(&list); err != nil {
		return []string{fmt.Sprintf("cannot look for Services that list the address and that no node serves: list Services: %v", err)}
	}
	for i := range list.Items {
		if why := reduce.Unserved(&list.Items[i])[at]; why != "" {
			reasons = append(reasons, why)
		}
	}
	if len(reasons) == 0 {
		return []string{fmt.Sprintf("no Service of the cluster lists %s", at)}
	}
	return reasons
}

// pod returns a pod, or an error if it does not exist.
func (c *cluster) pod(ctx context.Context, name string) (*corev1.Pod, error) {
	var pods corev1.PodList
	if err := c.named(ctx, "pods", name, &pods); err != nil {
		return nil, err
	}
	if len(pods.Items) == 0 {
		return nil, fmt.Errorf("no Pod %s in namespace %s", name, c.namespace)
	}
	return &pods.Items[0], nil
}

// ask asks the proxy on the node of a pod to explain a connection.
func (c *cluster) ask(ctx context.Context, pod *corev1.Pod, flow explain.Flow) (*explain.Answer, error) {
	all, _, err := c.proxies(ctx)
	if err != nil {
		return nil, err
	}
	for _, t := range all {
		if t.Node != pod.Spec.NodeName {
			continue
		}
		if t.Err != nil {
			return nil, fmt.Errorf("node %s: %w", t.Node, t.Err)
		}
		limited, cancel := context.WithTimeout(ctx, c.flags.nodeTimeout)
		defer cancel()
		return t.Client.Explain(limited, flow)
	}
	return nil, fmt.Errorf("node %s of Pod %s has no pod of Sluice", pod.Spec.NodeName, pod.Name)
}

// addressOf returns the address of a pod in the family of another address.
func addressOf(pod *corev1.Pod, of netip.Addr) (netip.Addr, bool) {
	for _, ip := range pod.Status.PodIPs {
		if addr, err := netip.ParseAddr(ip.IP); err == nil && addr.Is4() == of.Unmap().Is4() {
			return addr, true
		}
	}
	return netip.Addr{}, false
}

// flowOf returns the connection from a pod to a Service, in the first family that both have.
func flowOf(pod *corev1.Pod, of *corev1.Service, to *inspect.Destination) (flow explain.Flow, err error) {
	for _, clusterIP := range of.Spec.ClusterIPs {
		addr, wrong := netip.ParseAddr(clusterIP)
		from, found := addressOf(pod, addr)
		if wrong != nil || !found {
			continue
		}
		var all []inspect.Frontend
		for _, p := range of.Spec.Ports {
			all = append(all, inspect.Frontend{Kind: "ClusterIP", Address: clusterIP,
				Port: int(p.Port), PortName: p.Name, Protocol: string(p.Protocol)})
		}
		at, err := to.Frontend(all, addr.Is4())
		if err != nil {
			return flow, err
		}
		return explain.ParseFlow(from.String(), at, "")
	}
	return flow, fmt.Errorf("no common family: pod %s and Service %s have no addresses of one family", pod.Name, of.Name)
}
