package main

import "github.com/spf13/cobra"

func describeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "describe",
		Short: "Show details of a Service",
		Args:  noOtherResource,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(describeServiceCommand())
	return cmd
}

func describeServiceCommand() *cobra.Command {
	var flags clientFlags
	cmd := &cobra.Command{
		Use:     "service NAMESPACE/NAME",
		Aliases: []string{"services", "svc"},
		Short:   "Show details of a Service",
		Long: `Show details of a Service on this node: frontends and policies, state and kernel
objects in each domain (backend and IP family), the kernel's error if the Service is
quarantined, and the last 20 changes with the time of each step (received, seen,
rendered, batched, applied).`,
		Example: "  sluice describe service shop/web",
		RunE: func(cmd *cobra.Command, args []string) error {
			namespace, name, err := flags.serviceNamed(cmd, args)
			if err != nil {
				return err
			}
			found, err := flags.client().Service(cmd.Context(), namespace, name)
			if err != nil {
				return err
			}
			return flags.print(cmd.OutOrStdout(), found, found.Print)
		},
	}
	flags.bind(cmd)
	cmd.ValidArgsFunction = flags.completeService
	return cmd
}
