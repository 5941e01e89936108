// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/internal/explain"
	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/internal/trace"
)

// traceMax bounds the duration of a trace, during which each packet of the node passes a few more rules.
const traceMax = 5 * time.Minute

func traceCommand() *cobra.Command {
	var flags clientFlags
	var from, to string
	var lasts time.Duration
	cmd := &cobra.Command{
		Use:   "trace --from IP[:PORT] --to IP:PORT[/PROTOCOL] [--for DURATION]",
		Short: "Follow real packets through all tables of this node",
		Long: `Follow real packets of one flow through all nftables tables of this node, including
the tables of other programs and of iptables-nft, and show where they are delivered,
dropped or rejected. Send the traffic while the command runs; it ends after --for, or
when you interrupt it. The result is compared with sluice explain if a proxy is running.

The command needs root or CAP_NET_ADMIN, and Linux 5.12. It adds a temporary table,
sluice-trace-N, which the kernel deletes when the command ends for any reason.
Nothing else is changed. At most 10 packets per second and direction are traced.

Rules of iptables-legacy are not visible, and neither are BPF programs.`,
		Example: `  sluice trace --from 10.244.1.5 --to 10.96.0.10:53/udp
  sluice trace --from 203.0.113.9 --to 192.0.2.10:443 --for 30s -o json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := explain.ParseFlow(from, to, "")
			if err == nil && (lasts <= 0 || lasts > traceMax) {
				err = fmt.Errorf("--for %v: must be positive and at most %v", lasts, traceMax)
			}
			if err != nil {
				return inspect.Misused("%w", err)
			}
			if setup.NeedPrivilege("") != nil {
				return errors.New("tracing packets on this host requires root or CAP_NET_ADMIN")
			}
			ctx, stop := context.WithCancel(cmd.Context())
			defer stop()
			answer, err := trace.Run(ctx, q, flags.clientAt(flags.socket).Explain, func() {
				time.AfterFunc(lasts, stop) // from now on: on a busy node, the preparations take longer than a short trace
				fmt.Fprintf(cmd.ErrOrStderr(), "Tracing for %v. Send traffic from %s to %s now.\n", lasts, from, to)
			})
			if err != nil {
				return err
			}
			return flags.Print(cmd.OutOrStdout(), answer)
		},
	}
	flags.bind(cmd)
	cmd.Flags().StringVar(&from, "from", "", "the client's address, or its address and port")
	cmd.Flags().StringVar(&to, "to", "", "destination IP:PORT, optionally with /tcp (default), /udp or /sctp")
	cmd.Flags().DurationVar(&lasts, "for", 5*time.Second, "how long to trace, at most 5m")
	return cmd
}
