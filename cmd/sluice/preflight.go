package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/daemon/preflight"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/internal/terminal"
)

func preflightCommand() *cobra.Command {
	o := setup.Options{Version: version}
	var format string
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
			if format != "table" && format != "json" {
				return setup.UsageError{Err: fmt.Errorf("--output %q: must be table or json", format)}
			}
			report, err := preflight.Run(cmd.Context(), &o)
			if err != nil {
				return err
			}
			if err := printPreflight(cmd.OutOrStdout(), report, format); err != nil {
				return err
			}
			if report.Result == preflight.Fail {
				return exitError(exitFailed)
			}
			return nil
		},
	}
	o.Flags = config.BindPreflight(cmd.Flags())
	cmd.Flags().StringVarP(&format, "output", "o", "table", "table or json")
	return cmd
}

func printPreflight(out io.Writer, report *preflight.Report, format string) error {
	if format == "json" {
		to := json.NewEncoder(out)
		to.SetIndent("", "  ")
		return to.Encode(report)
	}
	terminal.Clean(report)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "RESULT\tCHECK\tFOUND")
	count := map[preflight.Result]int{}
	for _, c := range report.Checks {
		count[c.Result]++
		fmt.Fprintf(table, "%s\t%s\t%s\n", c.Result, c.Name, c.Message)
		if c.Remedy != "" {
			fmt.Fprintf(table, "\t\t-> %s\n", c.Remedy)
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	verdict := fmt.Sprintf("The proxy would start in %s mode.", report.Mode)
	if report.Result == preflight.Fail {
		verdict = "The proxy would not start."
	}
	_, err := fmt.Fprintf(out, "\n%s Failed: %d, warnings: %d.\n", verdict, count[preflight.Fail], count[preflight.Warn])
	return err
}
