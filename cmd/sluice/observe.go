package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/internal/inspect"
)

func observeCommand() *cobra.Command {
	var flags clientFlags
	var service, client string
	var verdicts []string
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
			err := flags.check()
			if unending := flags.CheckStream(); err == nil && unending != nil {
				err = setup.UsageError{Err: fmt.Errorf("--%w", unending)}
			}
			name, namespace := "", flags.namespace
			if service != "" {
				args = append(args, service)
			}
			if err == nil && len(args) > 0 {
				err = flags.into(cmd, args, &namespace, &name)
			}
			if err != nil {
				return err
			}
			q, err := inspect.ParseFlowQuery(client, verdicts)
			if err == nil && lasts < 0 {
				err = fmt.Errorf("for %v: must be positive", lasts)
			}
			if err != nil {
				return setup.UsageError{Err: fmt.Errorf("--%w", err)}
			}
			q.Namespace, q.Name = namespace, name
			ctx := cmd.Context()
			if lasts > 0 {
				limited, stop := context.WithTimeout(ctx, lasts)
				defer stop()
				ctx = limited
			}
			return observe(ctx, cmd, &flags, q)
		},
	}
	flags.bind(cmd)
	flags.bindNames(cmd)
	cmd.Flags().StringVar(&service, "service", "", "show those of a Service; the same as the argument")
	cmd.Flags().StringVar(&client, "client", "", "show those of a client or of a network, such as 10.0.0.1 or 10.0.0.0/8")
	cmd.Flags().StringSliceVar(&verdicts, "verdict", nil, "show those that were closed, refused or dropped (default: all)")
	cmd.Flags().DurationVar(&lasts, "for", 0, "how long to observe (default: until interrupted)")
	return cmd
}

// observe prints records until the context ends.
func observe(ctx context.Context, cmd *cobra.Command, flags *clientFlags, q inspect.FlowQuery) error {
	to := cmd.OutOrStdout()
	var failed error
	heads := func() {
		if flags.Table() && !flags.NoHeaders {
			failed = inspect.PrintFlowHeads(to)
		}
	}
	err := flags.client().Observe(ctx, q, heads, func(e *inspect.FlowEvent) error {
		switch {
		case flags.Format == "json": // one line each
			return inspect.EncodeLine(to, e)
		case flags.Format == "yaml":
			fmt.Fprintln(to, "---")
		}
		return flags.print(cmd, e, func(to io.Writer) error { return e.Print(to, flags.Wide()) })
	})
	return errors.Join(failed, err)
}
