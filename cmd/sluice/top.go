// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-proxy/sluice/internal/client"
	"github.com/sluice-proxy/sluice/internal/inspect"
)

func topCommand() *cobra.Command {
	return resourceCommand("top", "Show the Services or endpoints with the most traffic",
		topKindCommand("services", "Show the Services with the most traffic", "service", "svc"),
		topKindCommand("endpoints", "Show the endpoints with the most traffic", "endpoint", "ep"))
}

// topRefresh is the pause between two tables of --watch.
const topRefresh = 2 * time.Second

func topKindCommand(kind, short string, aliases ...string) *cobra.Command {
	flags := clientFlags{Output: inspect.Output{Every: topRefresh}}
	q, keys := inspect.TopQuery{Kind: kind}, inspect.TopSortKeys(kind)
	cmd := &cobra.Command{
		Use:     kind + " [NAME]",
		Aliases: aliases,
		Short:   short,
		Long: short + ` in a period of
up to 15 minutes: new connections, refused packets, bytes in each direction, and the number of open
connections now. A column shows "-" if this mode or configuration does not count it.`,
		Example: "  sluice top " + kind + " --since 5m\n  sluice top " + kind + " -n shop --by " + keys[1],
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := flags.into(cmd, args, &q.Namespace, &q.Name); err != nil {
				return err
			}
			return flags.show(cmd, false, func(ctx context.Context) (inspect.Answer, error) {
				return flags.client().Top(ctx, &q)
			})
		},
	}
	flags.bindNames(cmd)
	client.BindTop(cmd, &q)
	cmd.Flags().BoolVarP(&flags.watch, "watch", "w", false, "print the table again every "+topRefresh.String())
	return cmd
}
