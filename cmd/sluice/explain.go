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
	var a asking
	var dir, from, to, iface string
	cmd := &cobra.Command{
		Use:   "explain --from IP[:PORT] --to IP:PORT[/PROTOCOL] [--iface NAME] [--manifests DIR]",
		Short: "Say what becomes of a connection: Service, rules, endpoints, masquerading, or who refuses it",
		Long: `Say what becomes of a connection: which Service it is for, which rules and map
elements decide at each hook, which endpoints can get it with what probability,
whose address they see, or which rule refuses or drops it, and why.

The proxy that runs on this node answers. It also says which clients the kernel
remembers (session affinity), and which connections it tracks already.

With --manifests, the answer is about the rules that Sluice would load for the
Services, EndpointSlices and Nodes in DIR, with the flags below. It needs no
privilege.

Rules of other programs are not considered.`,
		Example: `  sluice explain --from 10.244.1.5 --to 10.96.0.10:53/udp
  sluice explain --from 203.0.113.9 --to 192.0.2.10:443 -o json
  sluice explain --manifests examples/web --from 10.244.1.5 --to 172.30.1.10:80`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := explain.ParseQuestion(from, to, iface)
			if err != nil {
				return setup.UsageError{Err: err}
			}
			if err := a.check(); err != nil {
				return err
			}
			answer, err := answerTo(cmd.Context(), &a, &o, dir, q)
			if err != nil {
				return err
			}
			return a.print(cmd.OutOrStdout(), answer, answer.Print)
		},
	}
	o.Flags = config.BindServing(cmd.Flags())
	a.bind(cmd)
	manifestsFlag(cmd, &dir)
	cmd.Flags().StringVar(&from, "from", "", "the client's address, or its address and port")
	cmd.Flags().StringVar(&to, "to", "", "the destination: address, port and perhaps /tcp (the default), /udp or /sctp")
	cmd.Flags().StringVar(&iface, "iface", "", "interface of this node through which the connection arrives; guessed if empty")
	return cmd
}

// answerTo asks the running proxy, or reads manifests.
func answerTo(ctx context.Context, a *asking, o *setup.Options, dir string, q explain.Question) (*explain.Answer, error) {
	if dir == "" {
		return a.client().Explain(ctx, q)
	}
	if err := checkManifests(dir); err != nil {
		return nil, err
	}
	if err := o.Load(); err != nil {
		return nil, err
	}
	return offline.Explain(o, dir, q)
}
