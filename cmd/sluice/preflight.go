package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/sluice-proxy/sluice/internal/client"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/daemon/preflight"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/internal/inspect"
)

func preflightCommand() *cobra.Command {
	o := setup.Options{Version: version}
	var output inspect.Output
	cmd := &cobra.Command{
		Use:   "preflight [--config FILE]",
		Short: "Check whether the proxy can start on this node",
		Long: `Check whether the proxy can start on this node with the given flags, and
which mode it would select. The checks cover kernel features, iptables, mounts,
capabilities, existing rules, other proxies, and sysctls that would change. Preflight
probes the kernel exactly as the proxy does at startup. It changes nothing, but the
kernel may load modules. No API server is needed. Lines with INFO need no action.

The exit status is 0 if the proxy would start, 1 if something prevents that, and
2 for invalid flags.`,
		Example: "  sluice preflight --config /var/lib/kube-proxy/config.conf",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := output.Check(); err != nil {
				return setup.UsageError{Err: fmt.Errorf("--%w", err)}
			}
			report, err := preflight.Run(cmd.Context(), &o)
			if err != nil {
				return err
			}
			err = output.Print(cmd.OutOrStdout(), report, func(to io.Writer) error { return printPreflight(to, report) })
			if err != nil {
				return err
			}
			if report.Result == preflight.Fail {
				return exitError(exitFailed)
			}
			return nil
		},
	}
	o.Flags = config.BindPreflight(cmd.Flags())
	client.BindFormat(cmd, &output, inspect.Outputs...)
	return cmd
}

func printPreflight(out io.Writer, report *preflight.Report) error {
	var rows [][]string
	count := map[preflight.Result]int{}
	for _, c := range report.Checks {
		count[c.Result]++
		rows = append(rows, []string{string(c.Result), c.Name, c.Message})
		if c.Remedy != "" {
			rows = append(rows, []string{" ", " ", "-> " + c.Remedy})
		}
	}
	if err := inspect.Table(out, []string{"RESULT", "CHECK", "FOUND"}, rows); err != nil {
		return err
	}
	verdict := fmt.Sprintf("The proxy would start in %s mode.", report.Mode)
	if report.Result == preflight.Fail {
		verdict = "The proxy would not start."
	}
	_, err := fmt.Fprintf(out, "\n%s Failed: %d, warnings: %d.\n", verdict, count[preflight.Fail], count[preflight.Warn])
	return err
}
