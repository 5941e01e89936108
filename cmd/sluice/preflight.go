// SPDX-License-Identifier: Apache-2.0

package main

import (
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
			report, err := preflight.Run(cmd.Context(), &o)
			if err != nil {
				return err
			}
			if err := output.Print(cmd.OutOrStdout(), report); err != nil {
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
