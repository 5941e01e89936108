package fleet

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-proxy/sluice/internal/explain"
	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source/reduce"
)

func (f *flags) explainCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "explain pod/NAME (svc/NAME[.NAMESPACE][:PORT] | IP:PORT[/PROTOCOL])",
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
			place, _, _ := strings.Cut(args[1], "/")
			to, notAddress := netip.ParseAddrPort(place)
			target, port, _ := strings.Cut(args[1], ":")
			if notAddress != nil {
				if target, err = objectNamed(target, inspect.ServiceKinds); err != nil {
					return err
				}
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
			if notAddress == nil {
				answer, err = c.explainAddress(cmd.Context(), from, args[1], to.Addr())
			} else {
				answer, err = c.explain(cmd.Context(), from, target, port)
			}
			if err != nil {
				return err
			}
			return f.Print(cmd.OutOrStdout(), answer)
		},
	}
}

// explain explains a connection from a pod to a Service.
func (c *cluster) explain(ctx context.Context, pod *corev1.Pod, target, port string) (*explain.Answer, error) {
	other := *c
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
	return c.ask(ctx, pod, flow)
}

// explainAddress explains a connection from a pod to an address. If no Service owns it, Services that no proxy knows may
// list it.
func (c *cluster) explainAddress(ctx context.Context, pod *corev1.Pod, target string, to netip.Addr) (*explain.Answer, error) {
	from, found := addressOf(pod, to)
	if !found {
		return nil, fmt.Errorf("no common family: pod %s has no address of the family of %s", pod.Name, to)
	}
	flow, err := explain.ParseFlow(from.String(), target, "")
	if err != nil {
		return nil, inspect.Misused("%w", err)
	}
	answer, err := c.ask(ctx, pod, flow)
	if err != nil || len(answer.Frontends) > 0 {
		return answer, err
	}
	if at := slices.IndexFunc(answer.Reasons, func(text string) bool { return strings.HasPrefix(text, explain.UnknownHere) }); at >= 0 {
		answer.Reasons = slices.Concat(answer.Reasons[:at], c.unserved(ctx, to.Unmap()), answer.Reasons[at+1:])
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

// ask asks the node of a pod.
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
func flowOf(pod *corev1.Pod, to *corev1.Service, port string) (flow explain.Flow, err error) {
	found, err := portOf(to, port)
	if err != nil {
		return flow, err
	}
	number := uint16(found.Port)
	flow.Protocol = map[corev1.Protocol]service.Protocol{corev1.ProtocolUDP: service.UDP, corev1.ProtocolSCTP: service.SCTP}[found.Protocol]
	for _, clusterIP := range to.Spec.ClusterIPs {
		addr, err := netip.ParseAddr(clusterIP)
		if err != nil {
			continue
		}
		if from, found := addressOf(pod, addr); found {
			flow.From, flow.To = netip.AddrPortFrom(from, 0), netip.AddrPortFrom(addr, number)
			return flow, nil
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
		return nil, inspect.Misused("Service %s has several ports: append :PORT to its name, one of %s", of.Name, strings.Join(names, ", "))
	}
	return nil, fmt.Errorf("port %q: Service %s has the ports %s", text, of.Name, strings.Join(names, ", "))
}
