// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/sluice-proxy/sluice/internal/inspect"
)

func describeCommand() *cobra.Command {
	return resourceCommand("describe", "Show details of Services", describeServiceCommand())
}

func describeServiceCommand() *cobra.Command {
	var flags clientFlags
	cmd := &cobra.Command{
		Use:     "service [NAME...]",
		Aliases: []string{"services", "svc"},
		Short:   "Show details of Services",
		Long: `Show details of Services on this node: frontends and policies, state and kernel
objects in each domain (backend and IP family), the kernel's error if the Service is
held, and the last 20 changes with the time of each step (received, seen,
rendered, batched, applied). Without a name, it shows all Services of the namespace.`,
		Example: "  sluice describe service shop/web\n  sluice describe service -n shop",
		RunE: func(cmd *cobra.Command, args []string) error {
			return flags.show(cmd, false, func(context.Context) (inspect.Answer, error) {
				return each[inspect.Details](cmd, &flags, args, (*inspect.Client).Service, (*inspect.Client).AllDetails)
			})
		},
	}
	flags.bindList(cmd)
	return cmd
}
