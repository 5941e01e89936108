package fleet

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-proxy/sluice/internal/explain"
	"github.com/sluice-proxy/sluice/service"
)

func (f *flags) explainCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "explain pod/NAME svc/NAME[.NAMESPACE][:PORT]",
		Short: "Explain how a connection from a pod to a Service is handled",
		Long: `Explain how a connection from a pod to the ClusterIP of a Service is handled, as sluice
explain does on the node of the pod. The port is a name or a number; a Service with one port
needs none.`,
		Example: "  kubectl sluice explain pod/web-5d9c svc/db:postgres -n shop\n  kubectl sluice explain pod/web-5d9c svc/kube-dns.kube-system:dns -n shop",
		Args:    arguments("pod/NAME", "svc/NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			pod, err := objectNamed(args[0], "pod", "pods", "po")
			if err != nil {
				return err
			}
			target, port, _ := strings.Cut(args[1], ":")
			target, err = objectNamed(target, serviceKinds...)
			if err != nil {
				return err
			}
			c, err := f.connect()
			if err != nil {
				return err
			}
			answer, err := c.explain(cmd.Context(), pod, target, port)
			if err != nil {
				return err
			}
			return f.Print(cmd.OutOrStdout(), answer, answer.Print)
		},
	}
}

// explain asks the node of a pod.
func (c *cluster) explain(ctx context.Context, podName, target, port string) (*explain.Answer, error) {
	var pods corev1.PodList
	if err := c.named(ctx, "pods", podName, &pods); err != nil {
		return nil, err
	}
	if len(pods.Items) == 0 {
		return nil, fmt.Errorf("no Pod %s in namespace %s", podName, c.namespace)
	}
	pod, other := &pods.Items[0], *c
	name, namespace, found := strings.Cut(target, ".")
	if found {
		other.namespace = namespace
	}
	object, err := other.service(ctx, name)
	if err != nil {
		return nil, err
	}
	flow, err := flowOf(pod, object, port)
	if err != nil {
		return nil, err
	}
	all, _, err := c.proxies(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		if p.node != pod.Spec.NodeName {
			continue
		}
		if p.err != nil {
			return nil, fmt.Errorf("node %s: %w", p.node, p.err)
		}
		limited, cancel := context.WithTimeout(ctx, c.flags.nodeTimeout)
		defer cancel()
		return p.client.Explain(limited, flow)
	}
	return nil, fmt.Errorf("node %s of Pod %s has no pod of Sluice", pod.Spec.NodeName, podName)
}

// flowOf returns the connection from a pod to a Service, in the first family that both have.
func flowOf(pod *corev1.Pod, to *corev1.Service, port string) (flow explain.Flow, err error) {
	found, err := portOf(to, port)
	if err != nil {
		return flow, err
	}
	flow.Protocol = map[corev1.Protocol]service.Protocol{corev1.ProtocolUDP: service.UDP, corev1.ProtocolSCTP: service.SCTP}[found.Protocol]
	for _, clusterIP := range to.Spec.ClusterIPs {
		addr, err := netip.ParseAddr(clusterIP)
		if err != nil {
			continue // a headless Service has None
		}
		for _, ip := range pod.Status.PodIPs {
			if from, err := netip.ParseAddr(ip.IP); err == nil && from.Is4() == addr.Is4() {
				flow.From, flow.To = netip.AddrPortFrom(from, 0), netip.AddrPortFrom(addr, uint16(found.Port))
				return flow, nil
			}
		}
	}
	return flow, fmt.Errorf("no common family: pod %s and Service %s have no addresses of one family", pod.Name, to.Name)
}

// portOf returns the port of a Service with a name or number.
func portOf(of *corev1.Service, text string) (*corev1.ServicePort, error) {
	var names []string
	for i := range of.Spec.Ports {
		p := &of.Spec.Ports[i]
		if text == "" && len(of.Spec.Ports) == 1 || text != "" && (p.Name == text || strconv.Itoa(int(p.Port)) == text) {
			return p, nil
		}
		names = append(names, fmt.Sprintf("%s (%d)", p.Name, p.Port))
	}
	if text == "" {
		return nil, misused("Service %s has several ports: append :PORT to its name, one of %s", of.Name, strings.Join(names, ", "))
	}
	return nil, fmt.Errorf("port %q: Service %s has the ports %s", text, of.Name, strings.Join(names, ", "))
}
