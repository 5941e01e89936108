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
)

func preflightCommand() *cobra.Command {
	o := setup.Options{Version: version}
	var format string
	cmd := &cobra.Command{
		Use:   "preflight [--config FILE]",
		Short: "Check whether the proxy would start on this node, and change nothing",
		Long: `Check whether the proxy would start on this node with these flags, which mode it
would choose and why, and what it would find: kernel features, iptables, mounts,
capabilities, other proxies, their rules, and kernel settings that would change.
It asks the kernel what a start asks, in the same way, and changes nothing; the
kernel may load modules to answer. It needs no API server.

The exit status is 0 if the proxy would start, 1 if something prevents that, and
2 for a mistake in the flags.`,
		Example: "  sluice preflight --config /var/lib/kube-proxy/config.conf",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if format != "table" && format != "json" {
				return setup.UsageError{Err: fmt.Errorf("--output %q: want table or json", format)}
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
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "RESULT\tCHECK\tFOUND")
	count := map[preflight.Result]int{}
	for _, c := range report.Checks {
		count[c.Result]++
		fmt.Fprintf(table, "%s\t%s\t%s\n", c.Result, c.Name, c.Found)
		if c.Do != "" {
			fmt.Fprintf(table, "\t\t-> %s\n", c.Do)
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	verdict := fmt.Sprintf("The proxy would start in mode %s.", report.Mode)
	if report.Result == preflight.Fail {
		verdict = "The proxy would not start."
	}
	_, err := fmt.Fprintf(out, "\n%s Failed: %d, warnings: %d.\n", verdict, count[preflight.Fail], count[preflight.Warn])
	return err
}
