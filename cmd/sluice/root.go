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
		Version:       versionText(),
		Args:          noOtherCommand,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cmd.Help()
		},
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.Flags().Bool("version", false, "say which version this is")
	root.SetHelpCommand(helpCommand())
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w (see %s --help)", err, cmd.CommandPath())}
	})
	// kube-proxy accepts underscores for hyphens; so do we.
	root.SetGlobalNormalizationFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(strings.ReplaceAll(name, "_", "-"))
	})
	root.AddCommand(runCommand(), proxyCommand(), demoCommand(), renderCommand(), cleanupCommand(), versionCommand())
	for _, c := range root.Commands() {
		c.Args = noArguments
	}
	return root
}

// helpCommand is cobra's, but for the exit status: help about a command that does
// not exist is a mistake.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [command]",
		Short: "Help about any command",
		RunE: func(cmd *cobra.Command, words []string) error {
			about, rest, err := cmd.Root().Find(words)
			if err != nil {
				return usageError{err}
			}
			if len(rest) > 0 {
				return noOtherCommand(cmd.Root(), rest)
			}
			return about.Help()
		},
	}
}

// noOtherCommand refuses a word that is no command, and names those it may have
// been meant for.
func noOtherCommand(root *cobra.Command, words []string) error {
	if len(words) == 0 {
		return nil
	}
	root.SuggestionsMinimumDistance = 2
	hint := ""
	if like := root.SuggestionsFor(words[0]); len(like) > 0 {
		hint = fmt.Sprintf(", did you mean %s?", strings.Join(like, " or "))
	}
	return usageError{fmt.Errorf("unknown command %q%s (see %s --help)", words[0], hint, root.CommandPath())}
}

// noArguments refuses words behind the flags, naming the first.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("%s takes no arguments, got %q (see %s --help)", cmd.CommandPath(), args[0], cmd.CommandPath())}
	}
	return nil
}
