package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-proxy/sluice/internal/client"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
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
	var flags clientFlags
	q, keys := inspect.TopQuery{Kind: kind}, inspect.TopSortKeys(kind)
	var watch bool
	cmd := &cobra.Command{
		Use:     kind + " [NAME]",
		Aliases: aliases,
		Short:   short,
		Long: short + ` in a period of
up to 15 minutes: new connections, refused packets, bytes in each direction, and the number of open
connections now. A column shows "-" if this mode or configuration does not count it.`,
		Example: "  sluice top " + kind + " --since 5m\n  sluice top " + kind + " -n shop --by " + keys[1],
		RunE: func(cmd *cobra.Command, args []string) error {
			q.Namespace = flags.namespace
			err := flags.check()
			if err == nil && len(args) > 0 {
				err = flags.into(cmd, args, &q.Namespace, &q.Name)
			}
			if err != nil {
				return err
			}
			if err := q.Check(); err != nil {
				return setup.UsageError{Err: fmt.Errorf("--%w", err)}
			}
			return showTop(cmd, &flags, &q, watch)
		},
	}
	flags.bind(cmd)
	flags.bindNames(cmd)
	cmd.Flags().StringVar(&q.By, "sort-by", keys[0], "the same as --by")
	cmd.Flags().StringVar(&q.By, "by", keys[0], "sort by "+client.List(keys)+", the largest first")
	cmd.Flags().DurationVar(&q.Since, "since", inspect.TopSinceDefault, "length of the period, at most "+inspect.TopSinceMax.String())
	cmd.Flags().IntVar(&q.Limit, "limit", inspect.TopDefault, "number of rows")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "print the table again every "+topRefresh.String())
	_ = cmd.RegisterFlagCompletionFunc("by", cobra.FixedCompletions(keys, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
	return cmd
}

// showTop prints a list, once or until the context ends.
func showTop(cmd *cobra.Command, flags *clientFlags, q *inspect.TopQuery, watch bool) error {
	show := func(ctx context.Context) error {
		found, err := flags.client().Top(ctx, q)
		if err != nil {
			return err
		}
		return flags.print(cmd, found, func(to io.Writer) error { return found.Print(to, flags.Wide()) })
	}
	for {
		if err := show(cmd.Context()); err != nil || !watch {
			return err
		}
		select {
		case <-cmd.Context().Done():
			return nil
		case <-time.After(topRefresh):
		}
		if flags.Table() {
			fmt.Fprintln(cmd.OutOrStdout())
		}
	}
}
