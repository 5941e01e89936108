package main

import "github.com/spf13/cobra"

func describeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "describe",
		Short: "Print everything that the running proxy knows about a Service",
		Args:  noOtherResource,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(describeServiceCommand())
	return cmd
}

func describeServiceCommand() *cobra.Command {
	var a asking
	cmd := &cobra.Command{
		Use:     "service NAMESPACE/NAME",
		Aliases: []string{"services", "svc"},
		Short:   "Print everything that the running proxy knows about a Service",
		Long: `Print everything that the proxy on this node knows about a Service: its frontends
and policies, its state and its objects in each domain of the kernel, the kernel's
words if it is in quarantine, and its last twenty changes: when each was received,
seen by the Service's actor, rendered, put into a batch, and in force.`,
		Example: "  sluice describe service shop/web",
		RunE: func(cmd *cobra.Command, args []string) error {
			namespace, name, err := a.serviceNamed(cmd, args)
			if err != nil {
				return err
			}
			found, err := a.client().Service(cmd.Context(), namespace, name)
			if err != nil {
				return err
			}
			return a.print(cmd.OutOrStdout(), found, found.Print)
		},
	}
	a.bind(cmd)
	cmd.ValidArgsFunction = a.completeService
	return cmd
}
