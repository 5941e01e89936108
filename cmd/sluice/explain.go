// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
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
func (flags *clientFlags) resolve(cmd *cobra.Command, dir, from, text string) (string, error) {
	client, err := inspect.ParseEndpoint(from)
	if err != nil {
		pod, wrong := inspect.ParseName("", from, inspect.PodKinds)
		if wrong != nil || !strings.ContainsFunc(from, unicode.IsLetter) || strings.Contains(from, ":") {
			return text, nil // explain.ParseFlow checks the client first
		}
		return "", inspect.Misused("--from %q: the proxy does not know pods; use the address that "+
			"kubectl get pod -n %s %s -o jsonpath={.status.podIP} prints, or kubectl sluice explain",
			from, cmp.Or(pod.Namespace, flags.namespace, "NAMESPACE"), pod.Name)
	}
	to, err := inspect.ParseDestination(text)
	switch {
	case err != nil:
		return "", fmt.Errorf("--to %w", err)
	case to.Addr.IsValid():
		return text, nil
	case dir != "":
		return "", inspect.Misused("--to %q: must be IP:PORT with --manifests; names are those of a running proxy", text)
	}
	if err := flags.into(cmd, []string{"svc/" + to.Service.String()}, &to.Service.Namespace, &to.Service.Name); err != nil {
		return "", err
	}
	found, err := flags.client().Brief(cmd.Context(), to.Service.Namespace, to.Service.Name)
	if err != nil {
		return "", err
	}
	if found == nil {
		return "", notServed(to.Service.String())
	}
	at, err := to.Frontend(found.Frontends, client.Addr().Is4())
	if err != nil {
		return "", fmt.Errorf("--to %w", err)
	}
	return at, nil
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
