// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/fleet"
	"github.com/sluice-proxy/sluice/test/doctest"
)

// TestCLI_Reference compares docs/cli.md with the commands.
func TestCLI_Reference(t *testing.T) {
	settings := pflag.NewFlagSet("", pflag.ContinueOnError)
	config.BindProxy(settings)
	var b strings.Builder
	print := func(cmd *cobra.Command) {
		b.WriteString("## " + cmd.CommandPath() + "\n\n" + describe(cmd) + "\n\n")
		b.WriteString("```text\n" + cmd.UseLine() + "\n```\n\n")
		if cmd.Example != "" {
			b.WriteString("Examples:\n\n```text\n" + strings.ReplaceAll(strings.TrimSpace(cmd.Example), "\n  ", "\n") + "\n```\n\n")
		}
		b.WriteString(flagsOf(cmd, settings))
	}
	walk(rootCommand(), print)
	walk(fleet.Command("kubectl-sluice", version), print)
	doctest.Generated(t, "../../docs/cli.md", "commands", b.String())
}

// walk visits the commands that do something, in the order of the help.
func walk(cmd *cobra.Command, visit func(*cobra.Command)) {
	if cmd.Runnable() && cmd.HasParent() && !cmd.HasSubCommands() {
		visit(cmd)
	}
	for _, child := range cmd.Commands() {
		if child.IsAvailableCommand() && child.Name() != "completion" && child.Name() != "help" {
			walk(child, visit)
		}
	}
}

// describe returns the description of a command. Its indented lines are code.
func describe(cmd *cobra.Command) string {
	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}
	var b strings.Builder
	for _, paragraph := range strings.Split(strings.TrimSpace(text), "\n\n") {
		if strings.HasPrefix(paragraph, "  ") {
			paragraph = "```text\n" + paragraph + "\n```"
		}
		b.WriteString(paragraph + "\n\n")
	}
	return strings.TrimSpace(b.String())
}

// flagsOf returns a table of the flags of a command, and names those of the configuration.
func flagsOf(cmd *cobra.Command, settings *pflag.FlagSet) string {
	var rows [][]string
	var shared []string
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		switch s := settings.Lookup(f.Name); {
		case f.Hidden || f.Name == "help":
		case s != nil && s.Usage == f.Usage:
			shared = append(shared, "`--"+f.Name+"`")
		default:
			name := "`--" + f.Name + "`"
			if f.Shorthand != "" {
				name = "`-" + f.Shorthand + "`, " + name
			}
			value := f.DefValue
			if value == "[]" {
				value = ""
			}
			rows = append(rows, []string{name, value, f.Usage})
		}
	})
	text := ""
	if len(rows) > 0 {
		text = doctest.Table([]string{"Flag", "Default", "Meaning"}, rows) + "\n"
	}
	const flags = "[configuration flags](configuration.md)"
	switch n := len(shared); {
	case n == 0:
	case cmd.Name() == proxyName:
		text += "It accepts all " + flags + ".\n\n"
	case n > 6:
		text += fmt.Sprintf("It also accepts %d %s; `%s --help` lists them.\n\n", n, flags, cmd.CommandPath())
	default:
		text += "It also accepts these " + flags + ": " + strings.Join(shared, ", ") + ".\n\n"
	}
	return text
}
