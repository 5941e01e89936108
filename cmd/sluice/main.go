// SPDX-License-Identifier: Apache-2.0

// Command sluice is a node service proxy for Kubernetes. This package holds the commands,
// their flags, help texts and exit statuses; package daemon does the work.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-proxy/sluice/internal/client"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/daemon/logging"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/internal/fleet"
	"github.com/sluice-proxy/sluice/internal/inspect"
)

// Exit statuses.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
	// exitDiffers is the status of commands that compare, if they find differences; see oneFailure.
	exitDiffers = 2
	// exitUnknown is the status of sluice status --exit-code if no proxy answers.
	exitUnknown = 2
)

// patience is how long after the first stop signal a second one is ignored. After that, a second stop signal ends the
// program immediately.
const patience = time.Second

// exitError is the exit status of a program that has reported its error itself.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

func main() { os.Exit(run(os.Args)) }

func run(args []string) int {
	defer logging.Flush()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	// A second signal ends the program without an orderly stop. The pause is for signals
	// that arrive twice: from the terminal, and through a sandbox.
	context.AfterFunc(ctx, func() { time.AfterFunc(patience, stop) })
	root := rootCommand()
	words := splitNames(root, args[1:])
	if filepath.Base(args[0]) == "kube-proxy" {
		words = append([]string{proxyName}, words...)
	}
	root.SetArgs(words)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return flagError(cmd, words, err) })
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitDone
	}
	if status, ok := errors.AsType[exitError](err); ok {
		return int(status)
	}
	printError(cmd, err)
	_, usage := errors.AsType[inspect.UsageError](err)
	_, invalid := errors.AsType[*config.InvalidError](err)
	if (usage || invalid) && !oneFailure(cmd) {
		return exitUsage
	}
	return exitFailed
}

// loggingError is an error of a command that logs, with its options.
type loggingError struct {
	error
	options *setup.Options
}

func (e loggingError) Unwrap() error { return e.error }

// logged marks the error of a command that logs.
func logged(o *setup.Options, err error) error {
	if err == nil {
		return nil
	}
	return loggingError{err, o}
}

// printError prints the error with which a command ends. After an error about the flags, the options do not contain
// the format yet, so the flag itself is read.
func printError(cmd *cobra.Command, err error) {
	format := ""
	if of, ok := errors.AsType[loggingError](err); ok && of.options.Config != nil {
		format = of.options.Log().Format
	}
	if f := cmd.Flags().Lookup("logging-format"); f != nil && f.Changed && f.Value.String() == config.FormatJSON {
		format = config.FormatJSON
	}
	logging.PrintError(format, err)
}

// oneFailure reports whether a command has one status for all errors: kube-proxy does, and so
// do commands whose status 2 means that there are differences, as with diff(1).
func oneFailure(cmd *cobra.Command) bool {
	return cmd.Name() == proxyName || cmd.Name() == planName || cmd.Name() == cleanupName && cmd.Flags().Changed("dry-run")
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "sluice",
		Short: "A node-local Service proxy for Kubernetes (kube-proxy replacement)",
		Long: `Sluice implements Kubernetes Services on a node, in place of kube-proxy. It
programs nftables, iptables or IPVS incrementally, in atomic batches.

To try Sluice without a cluster:

  sluice demo                                  run a one-minute demo in a sandbox
  sluice run DIR --sandbox                     serve the Services in DIR, with test pods

To inspect the proxy running on this node:

  sluice status                                show its state and any problems
  sluice get services                          list Services and their state`,
		Version:       versionText(),
		Args:          noOtherCommand,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.Flags().Bool("version", false, "print the version")
	root.SetHelpCommand(helpCommand())
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return flagError(cmd, nil, err) })
	// Like kube-proxy, accept underscores for hyphens.
	root.SetGlobalNormalizationFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(strings.ReplaceAll(name, "_", "-"))
	})
	addGroup(root, "Run the proxy:", runCommand(), proxyCommand(), demoCommand(), sandboxCommand())
	addGroup(root, "Inspect the running proxy:", statusCommand(), getCommand(), topCommand(), observeCommand(), describeCommand(), explainCommand(), traceCommand(), waitCommand(), dumpCommand())
	addGroup(root, "Prepare or clean up this node:", preflightCommand(), planCommand(), cleanupCommand())
	addGroup(root, "Other:", versionCommand())
	plugin := fleet.Command("fleet", version) // for clusters whose administrators have no kubectl plugin
	plugin.Hidden = true
	root.AddCommand(plugin)
	root.SetHelpCommandGroupID("Other:")
	root.SetCompletionCommandGroupID("Other:")
	return root
}

// flagError returns the error about a flag of a command. A command with subcommands does not define their flags: if
// the command line, which is words, contains an unknown subcommand, the error is about the subcommand.
func flagError(cmd *cobra.Command, words []string, err error) error {
	if cmd.HasSubCommands() {
		_, rest, findErr := cmd.Root().Find(words)
		if findErr == nil && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
			return cmd.Args(cmd, rest)
		}
	}
	if gone, ok := errors.AsType[*pflag.NotExistError](err); ok && isFormer(gone.GetSpecifiedName()) {
		err = fmt.Errorf("%w, but a field of SluiceConfiguration in --config FILE may be meant", err)
	}
	return inspect.Misused("%w (see %s --help)", err, cmd.CommandPath())
}

// isFormer reports whether a name looks like a flag that was specific to Sluice and no longer exists.
func isFormer(name string) bool {
	return strings.HasPrefix(name, "sluice-") || name == "log-level" || name == "log-format"
}

// addGroup adds commands under a title of the root's help. Commands that do not set Args take no arguments.
func addGroup(root *cobra.Command, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: title, Title: title})
	for _, c := range commands {
		if c.GroupID = title; c.Args == nil && !c.HasSubCommands() {
			c.Args = noArguments
		}
	}
	root.AddCommand(commands...)
}

// helpCommand returns a command like cobra's help command, except that help about an unknown command is an error.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [command]",
		Short: "Show help for a command",
		RunE: func(cmd *cobra.Command, words []string) error {
			about, rest, err := cmd.Root().Find(words)
			if err != nil {
				return inspect.Misused("%w", err)
			}
			if len(rest) > 0 {
				return noOtherCommand(cmd.Root(), rest)
			}
			return about.Help()
		},
	}
}

// noOtherCommand rejects an unknown command, and suggests similar ones.
func noOtherCommand(root *cobra.Command, words []string) error {
	if len(words) == 0 {
		return nil
	}
	root.SuggestionsMinimumDistance = 2
	hint := ""
	if words[0] == "logs" {
		hint = ", the log is that of the process: kubectl logs -n kube-system -l app.kubernetes.io/name=sluice, or journalctl"
	}
	if like := root.SuggestionsFor(words[0]); len(like) > 0 {
		hint = fmt.Sprintf(", did you mean %s?", strings.Join(like, " or "))
	}
	return inspect.Misused("unknown command %q%s (see %s --help)", words[0], hint, root.CommandPath())
}

// splitNames turns "get svc/web" into "get svc web", for cobra.
func splitNames(root *cobra.Command, words []string) []string {
	cmd, _, err := root.Find(words)
	if err != nil || cmd == root || !cmd.HasSubCommands() {
		return words
	}
	for i, word := range words {
		kind, name, named := strings.Cut(word, "/")
		if named && slices.ContainsFunc(cmd.Commands(), func(c *cobra.Command) bool { return c.Name() == kind || c.HasAlias(kind) }) {
			return slices.Concat(words[:i], []string{kind, name}, words[i+1:])
		}
	}
	return words
}

// noOtherResource rejects an unknown resource of a command that has one command for each.
func noOtherResource(cmd *cobra.Command, words []string) error {
	if len(words) == 0 {
		return nil
	}
	var known []string
	for _, c := range cmd.Commands() {
		known = append(known, c.Name())
	}
	return inspect.Misused("unknown resource %q: must be %s; for other resources use kubectl %s %s (see %s --help)",
		words[0], client.List(known), cmd.Name(), words[0], cmd.CommandPath())
}

// noArguments rejects words after the flags.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	path := cmd.CommandPath()
	return inspect.Misused("%s takes no arguments, got %q (see %s --help)", path, args[0], path)
}
