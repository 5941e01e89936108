// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-proxy/sluice/internal/host/sandbox"
	"github.com/sluice-proxy/sluice/internal/inspect"
)

func sandboxCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sandbox",
		Short: "Run a command or a shell in a running sandbox",
		Args:  noOtherResource,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var pid int
	cmd.PersistentFlags().IntVar(&pid, "pid", 0, "process ID of the sandbox, if several are running")
	cmd.AddCommand(&cobra.Command{
		Use:     "exec -- COMMAND [ARGUMENT...]",
		Short:   "Run a command in the sandbox",
		Long:    "Run a command in the sandbox of sluice run --sandbox.",
		Example: "  sluice sandbox exec -- nft list ruleset",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return inspect.Misused("sluice sandbox exec: name a command (see sluice sandbox exec --help)")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error { return inSandbox(pid, args...) },
	}, &cobra.Command{
		Use:   "shell",
		Short: "Start a shell in the sandbox",
		Long:  "Start a shell ($SHELL) in the sandbox of sluice run --sandbox.",
		Args:  noArguments,
		RunE:  func(*cobra.Command, []string) error { return inSandbox(pid) },
	})
	return cmd
}

// inSandbox runs a command in a sandbox: the only one, unless its process ID is given.
func inSandbox(pid int, command ...string) error {
	if pid == 0 {
		found := sandbox.Running()
		switch len(found) {
		case 0:
			return errors.New("no sandbox is running; start one: sluice run DIR --sandbox")
		case 1:
			pid = found[0]
		default:
			return fmt.Errorf("%d sandboxes are running; choose one: --pid %s", len(found), strings.Trim(fmt.Sprint(found), "[]"))
		}
	}
	return sandbox.Exec(pid, command...)
}

// sandboxSocket returns the default socket if it exists, and otherwise the socket of the proxy in the only sandbox.
func sandboxSocket() string {
	if _, err := os.Stat(inspect.DefaultSocket); err == nil {
		return inspect.DefaultSocket
	}
	var found []int
	for _, pid := range sandbox.Running() {
		if _, err := os.Stat(sandbox.Path(pid, inspect.DefaultSocket)); err == nil {
			found = append(found, pid)
		}
	}
	if len(found) > 1 {
		fmt.Fprintf(os.Stderr, "no proxy on this node, but %d sandboxes are running; choose one: sluice sandbox exec --pid %d -- sluice …\n",
			len(found), found[0])
	}
	if len(found) != 1 {
		return inspect.DefaultSocket
	}
	fmt.Fprintf(os.Stderr, "no proxy on this node; querying the one in the sandbox of process %d\n", found[0])
	return sandbox.Path(found[0], inspect.DefaultSocket)
}
