package main

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/daemon/offline"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/internal/explain"
	"github.com/sluice-proxy/sluice/internal/inspect"
)

func explainCommand() *cobra.Command {
	o := setup.Options{Version: version}
	var flags clientFlags
	var dir, from, to, iface string
	cmd := &cobra.Command{
		Use:   "explain [--from] IP[:PORT] [--to] TARGET[:PORT][/PROTOCOL] [--iface NAME] [--manifests DIR]",
		Short: "Explain how a connection is handled",
		Long: `Explain how a connection is handled: the Service it belongs to, the rules and map
elements that match at each hook, the possible endpoints and their probabilities,
the source address they see, or the rule that rejects or drops it, and why.

The target is an address and port, or a Service of the running proxy: NAMESPACE/NAME:PORT,
svc/NAME:PORT or NAME.NAMESPACE:PORT. PORT is a name or a number, and can be left out if the
Service has only one.

By default, the running proxy answers. It also reports session-affinity entries and
existing conntrack entries for the client.

With --manifests, it evaluates the rules that Sluice would load for the Services,
EndpointSlices and Nodes in DIR, with the flags below. No privilege is needed.

Rules of other programs are not evaluated. The answer of the running proxy ends with a list of
their base chains that the traffic passes; sluice trace shows their effect.`,
		Example: `  sluice explain --from 10.244.1.5 --to 10.96.0.10:53/udp
  sluice explain 10.244.1.5 shop/web:http
  sluice explain --from 203.0.113.9 --to 192.0.2.10:443 -o json
  sluice explain --manifests examples/web --from 10.244.1.5 --to 172.30.1.10:80`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, flag := range []*string{&from, &to} {
				if *flag == "" && len(args) > 0 {
					*flag, args = args[0], args[1:]
				}
			}
			if len(args) > 0 {
				return inspect.Misused("%s takes no more than two arguments (see %[1]s --help)", cmd.CommandPath())
			}
			to, err := flags.resolve(cmd, dir, from, to)
			if err != nil {
				return err
			}
			q, err := explain.ParseFlow(from, to, iface)
			if err != nil {
				return inspect.Misused("%w", err)
			}
			answer, err := answerTo(cmd.Context(), &flags, &o, dir, q)
			if err != nil {
				return err
			}
			return flags.Print(cmd.OutOrStdout(), answer)
		},
	}
	o.Flags = config.BindRender(cmd.Flags())
	flags.bind(cmd)
	manifestsFlag(cmd, &dir)
	cmd.Flags().StringVar(&from, "from", "", "the client's address, or its address and port")
	cmd.Flags().StringVar(&to, "to", "", "destination: IP:PORT, optionally with /tcp (default), /udp or /sctp, or a Service")
	cmd.Flags().StringVarP(&flags.namespace, "namespace", "n", "", "namespace of the Service in --to (default: all)")
	cmd.Flags().StringVar(&iface, "iface", "", "network interface that receives the connection (default: derived from the route to the client)")
	return cmd
}

// resolve returns the ClusterIP and port of a target that is the name of a Service, and other targets as they are.
func (flags *clientFlags) resolve(cmd *cobra.Command, dir, from, to string) (string, error) {
	client, err := inspect.ParseEndpoint(from)
	if err != nil && strings.ContainsFunc(from, unicode.IsLetter) && !strings.Contains(from, ":") {
		namespace, name, found := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(from, "pods/"), "pod/"), "/")
		if !found {
			namespace, name = cmp.Or(flags.namespace, "NAMESPACE"), namespace
		}
		return "", inspect.Misused("--from %q: the proxy does not know pods; use the address that "+
			"kubectl get pod -n %s %s -o jsonpath={.status.podIP} prints, or kubectl sluice explain", from, namespace, name)
	}
	place, _, _ := strings.Cut(to, "/")
	if _, isAddress := inspect.ParseEndpoint(place); err != nil || isAddress == nil || !strings.ContainsFunc(to, unicode.IsLetter) {
		return to, nil // explain.ParseFlow checks them
	}
	if dir != "" {
		return "", inspect.Misused("--to %q: must be IP:PORT with --manifests; names are those of a running proxy", to)
	}
	name, port, _ := strings.Cut(to, ":")
	port, protocol, _ := strings.Cut(port, "/")
	if short, rest, dotted := strings.Cut(name, "."); dotted && !strings.Contains(name, "/") { // a DNS name
		namespace, _, _ := strings.Cut(rest, ".")
		name = namespace + "/" + short
	}
	var of inspect.ServiceName
	if err := flags.into(cmd, []string{name}, &of.Namespace, &of.Name); err != nil {
		return "", err
	}
	found, err := flags.client().Brief(cmd.Context(), of.Namespace, of.Name)
	if err != nil {
		return "", err
	}
	if found == nil {
		return "", notServed(of.String())
	}
	return frontendOf(found, client.Addr().Is4(), to, port, protocol)
}

// frontendOf returns the address of a Service in a family, with the port of a name or number. A Service without a
// ClusterIP in the family has other addresses.
func frontendOf(found *inspect.ServiceDetail, is4 bool, to, port, protocol string) (string, error) {
	var ports, matches []string
	for _, f := range found.Frontends {
		addr, err := netip.ParseAddr(f.Address)
		if f.Kind != "ClusterIP" || err != nil || addr.Is4() != is4 {
			continue
		}
		ports = append(ports, fmt.Sprintf(":%s (%d/%s)", cmp.Or(f.PortName, fmt.Sprint(f.Port)), f.Port, f.Protocol))
		if (port == "" || port == f.PortName || port == fmt.Sprint(f.Port)) && (protocol == "" || strings.EqualFold(protocol, f.Protocol)) {
			matches = append(matches, netip.AddrPortFrom(addr, uint16(f.Port)).String()+"/"+f.Protocol)
		}
	}
	switch {
	case len(ports) == 0:
		return "", fmt.Errorf("no ClusterIP of the family of --from in Service %s/%s; use an address that sluice describe service %[1]s/%[2]s shows", found.Namespace, found.Name)
	case len(matches) != 1:
		return "", inspect.Misused("--to %q: must end in one of the ports %s", to, strings.Join(ports, ", "))
	}
	return matches[0], nil
}

// answerTo asks the running proxy, or reads manifests.
func answerTo(ctx context.Context, flags *clientFlags, o *setup.Options, dir string, q explain.Flow) (*explain.Answer, error) {
	if dir == "" {
		return flags.client().Explain(ctx, q)
	}
	if err := checkManifests(dir); err != nil {
		return nil, err
	}
	if err := o.Load(); err != nil {
		return nil, err
	}
	return offline.Explain(o, dir, q)
}
