// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-proxy/sluice/internal/client"
	"github.com/sluice-proxy/sluice/internal/inspect"
)

func observeCommand() *cobra.Command {
	var flags clientFlags
	var q inspect.FlowQuery
	var lasts time.Duration
	cmd := &cobra.Command{
		Use:   "observe [NAME]",
		Args:  cobra.ArbitraryArgs,
		Short: "Show connections to Services as they end or are refused",
		Long: `Show each connection to a Service of this node when it ends, and connections that are
refused or dropped, with the reason. Other programs' rules count as well.

Bytes are known with traffic.accounting, and in userspace mode. While the command runs,
the kernel announces every connection of the node to the proxy; see docs/traffic.md.`,
		Example: "  sluice observe shop/web\n  sluice observe -n shop --verdict refused,dropped\n  sluice observe --client 10.244.1.0/24 --for 1m -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := flags.into(cmd, args, &q.Namespace, &q.Name); err != nil {
				return err
			}
			ctx := cmd.Context()
			if lasts < 0 {
				return inspect.Misused("--for %v: must be positive", lasts)
			}
			if lasts > 0 {
				limited, stop := context.WithTimeout(ctx, lasts)
				defer stop()
				ctx = limited
			}
			this := []client.Target{{Client: flags.client()}}
			return (&client.Observation{Targets: this, Query: q, Output: &flags.Output}).Run(ctx, cmd.OutOrStdout())
		},
	}
	client.BindFlows(cmd, &flags.Output, &q)
	flags.bindNames(cmd)
	cmd.Flags().DurationVar(&lasts, "for", 0, "how long to observe (default: until interrupted)")
	return cmd
}
