package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "sluice",
		Short: "A node service proxy for Kubernetes: every Service an actor, every change one batch",
		Long: `Sluice makes the Service addresses of a Kubernetes cluster work on one node.
Each Service is owned by one supervised goroutine; their rules reach the kernel
in atomic batches.

Without a cluster, start here:

  sluice demo                                  a story in a minute, in a sandbox
  sluice run --manifests DIR --sandbox         serve the manifests in DIR`,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cmd.Help()
		},
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w (see %s --help)", err, cmd.CommandPath())}
	})
	// kube-proxy accepts underscores for hyphens; so do we.
	root.SetGlobalNormalizationFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(strings.ReplaceAll(name, "_", "-"))
	})
	root.AddCommand(runCommand(), proxyCommand(), demoCommand(), cleanupCommand(), versionCommand())
	for _, c := range root.Commands() {
		c.Args = noArguments
	}
	return root
}

// noArguments refuses words behind the flags, naming the first.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("%s takes no arguments, got %q (see %s --help)", cmd.CommandPath(), args[0], cmd.CommandPath())}
	}
	return nil
}
