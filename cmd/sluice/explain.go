package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/daemon/offline"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/internal/explain"
)

func explainCommand() *cobra.Command {
	o := setup.Options{Version: version}
	var flags clientFlags
	var dir, from, to, iface string
	cmd := &cobra.Command{
		Use:   "explain --from IP[:PORT] --to IP:PORT[/PROTOCOL] [--iface NAME] [--manifests DIR]",
		Short: "Explain how a connection is handled",
		Long: `Explain how a connection is handled: the Service it belongs to, the rules and map
elements that match at each hook, the possible endpoints and their probabilities,
the source address they see, or the rule that rejects or drops it, and why.

By default, the running proxy answers. It also reports session-affinity entries and
existing conntrack entries for the client.

With --manifests, it evaluates the rules that Sluice would load for the Services,
EndpointSlices and Nodes in DIR, with the flags below. No privilege is needed.

Rules of other programs are not considered; sluice trace shows their effect.`,
		Example: `  sluice explain --from 10.244.1.5 --to 10.96.0.10:53/udp
  sluice explain --from 203.0.113.9 --to 192.0.2.10:443 -o json
  sluice explain --manifests examples/web --from 10.244.1.5 --to 172.30.1.10:80`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := explain.ParseFlow(from, to, iface)
			if err != nil {
				return setup.UsageError{Err: err}
			}
			if err := flags.check(); err != nil {
				return err
			}
			answer, err := answerTo(cmd.Context(), &flags, &o, dir, q)
			if err != nil {
				return err
			}
			return flags.print(cmd.OutOrStdout(), answer, answer.Print)
		},
	}
	o.Flags = config.BindServing(cmd.Flags())
	flags.bind(cmd)
	manifestsFlag(cmd, &dir)
	cmd.Flags().StringVar(&from, "from", "", "the client's address, or its address and port")
	cmd.Flags().StringVar(&to, "to", "", "destination IP:PORT, optionally with /tcp (default), /udp or /sctp")
	cmd.Flags().StringVar(&iface, "iface", "", "network interface that receives the connection (default: derived from the route to the client)")
	return cmd
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
