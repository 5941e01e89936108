// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/terminal"
)

// helpWidth is the width of the help, unless the command prints it to a narrower terminal.
const helpWidth = 100

// groupFlags makes the help of a command show its flags under headings.
func groupFlags(cmd *cobra.Command) {
	cmd.SetUsageFunc(func(cmd *cobra.Command) error {
		out := cmd.OutOrStdout()
		fmt.Fprintf(out, "Usage:\n  %s\n", cmd.UseLine())
		if cmd.Example != "" {
			fmt.Fprintf(out, "\nExamples:\n%s\n", cmd.Example)
		}
		columns := width(out)
		for _, group := range config.Groups(cmd.Flags()) {
			usages := strings.TrimRight(group.Flags.FlagUsagesWrapped(columns), "\n")
			fmt.Fprintf(out, "\n%s:\n%s\n", group.Title, usages)
		}
		return nil
	})
}

// width returns the width for help that is printed to out.
func width(out io.Writer) int {
	if file := terminal.File(out); file != nil {
		if columns, _, err := term.GetSize(int(file.Fd())); err == nil && columns > 0 {
			return min(columns, helpWidth)
		}
	}
	return helpWidth
}
