package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/internal/inspect"
)

func observeCommand() *cobra.Command {
	var flags clientFlags
	var namespace, service, client string
	var verdicts []string
	var all bool
	var lasts time.Duration
	cmd := &cobra.Command{
		Use:   "observe [NAMESPACE/NAME]",
		Args:  cobra.ArbitraryArgs,
		Short: "Show connections to Services as they end or are refused",
		Long: `Show each connection to a Service of this node when it ends, and connections that are
refused or dropped, with the reason. Other programs' rules count as well.

Bytes are known with traffic.accounting, and in userspace mode. While the command runs,
the kernel announces every connection of the node to the proxy; see docs/traffic.md.`,
		Example: "  sluice observe shop/web\n  sluice observe -n shop --verdict refused,dropped\n  sluice observe --client 10.244.1.0/24 --for 1m -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			err := flags.check()
			name := ""
			if service != "" {
				if namespace != "" && !strings.Contains(service, "/") {
					service = namespace + "/" + service
				}
				args = append(args, service)
			}
			if err == nil && len(args) > 0 {
				namespace, name, err = flags.serviceNamed(cmd, args)
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
	flags.bind(cmd, "wide")
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "show those of one namespace (default: all)")
	cmd.Flags().BoolVarP(&all, "all-namespaces", "A", false, "show those of all namespaces (default)")
	cmd.Flags().StringVar(&service, "service", "", "show those of a Service; the same as the argument, but a name is enough with --namespace")
	cmd.Flags().StringVar(&client, "client", "", "show those of a client or of a network, such as 10.0.0.1 or 10.0.0.0/8")
	cmd.Flags().StringSliceVar(&verdicts, "verdict", nil, "show those that were closed, refused or dropped (default: all)")
	cmd.Flags().DurationVar(&lasts, "for", 0, "how long to observe (default: until interrupted)")
	cmd.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
	cmd.ValidArgsFunction = flags.completeService
	flags.completeFlag(cmd, "namespace", completeNamespaces)
	return cmd
}

// observe prints records until the context ends.
func observe(ctx context.Context, cmd *cobra.Command, flags *clientFlags, q inspect.FlowQuery) error {
	to := cmd.OutOrStdout()
	table := flags.output != "json" && flags.output != "yaml"
	var failed error
	heads := func() {
		if table {
			failed = inspect.PrintFlowHeads(to)
		}
	}
	err := flags.client().Observe(ctx, q, heads, func(e *inspect.FlowEvent) error {
		switch {
		case flags.output == "json": // one line each
			return json.NewEncoder(to).Encode(e)
		case flags.output == "yaml":
			fmt.Fprintln(to, "---")
		}
		return flags.print(to, e, func(to io.Writer) error { return e.Print(to, flags.output == "wide") })
	})
	return errors.Join(failed, err)
}
