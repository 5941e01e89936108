// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-proxy/sluice/internal/client"
	"github.com/sluice-proxy/sluice/internal/inspect"
)

func statusCommand() *cobra.Command {
	var flags clientFlags
	verdict := false
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the state of the running proxy",
		Long: `Show the state of the proxy running on this node: version, mode, node name, API sync
status, the number of applied, pending and held Services in each domain
(backend and IP family), and all health findings.`,
		Example: "  sluice status\n  sluice status -o json",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			exit := exitDone
			err := flags.show(cmd, false, func(ctx context.Context) (inspect.Answer, error) {
				status, err := flags.client().Status(ctx)
				if err == nil && (len(status.Findings) > 0 || slices.ContainsFunc(status.Domains, func(d inspect.Domain) bool { return d.Held > 0 })) {
					exit = exitFailed
				}
				return status, err
			})
			switch {
			case !verdict:
				return err
			case err != nil:
				printError(cmd, err)
				return exitError(exitUnknown)
			case exit != exitDone:
				return exitError(exit)
			}
			return nil
		},
	}
	flags.bind(cmd)
	flags.bindWatch(cmd)
	cmd.Flags().BoolVar(&verdict, "exit-code", false, "exit with status 1 if there are findings or held Services, and 2 if no proxy answers")
	return cmd
}

// clientFlags are the flags of the commands that query a running proxy.
type clientFlags struct {
	inspect.Output
	nameFlags
	socket      string
	socketGiven func() bool
	// patience is how long the proxy may be silent; 0 means no bound.
	patience time.Duration
	watch    bool
	// asked is the client that the first query made, for later queries.
	asked *inspect.Client
}

// bind adds the flags of all commands.
func (flags *clientFlags) bind(cmd *cobra.Command) {
	flags.bindSocket(cmd)
	client.BindTables(cmd, &flags.Output)
}

// bindList adds the flags of a command that lists Services, or parts of them.
func (flags *clientFlags) bindList(cmd *cobra.Command) {
	flags.bindNames(cmd)
	flags.bindWatch(cmd)
}

func (flags *clientFlags) bindWatch(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&flags.watch, "watch", "w", false, "keep running, and print what changes (polls every second)")
}

func (flags *clientFlags) bindSocket(cmd *cobra.Command) {
	cmd.Flags().StringVar(&flags.socket, "socket", inspect.DefaultSocket, "path of the proxy's Unix socket")
	cmd.Flags().DurationVar(&flags.patience, "request-timeout", inspect.RequestTimeout, "how long the proxy may be silent before the command fails; 0 means forever")
	flags.socketGiven = func() bool { return cmd.Flags().Changed("socket") }
	client.Before(cmd, func(*cobra.Command) error {
		if flags.Within = flags.namespace; flags.patience < 0 {
			return fmt.Errorf("request-timeout %v: must not be negative", flags.patience)
		}
		return nil
	})
}

// client returns a client of the proxy at the given socket, on this node, or in the only sandbox.
func (flags *clientFlags) client() *inspect.Client {
	if flags.asked == nil {
		socket := flags.socket
		if !flags.socketGiven() {
			socket = sandboxSocket()
		}
		flags.asked = flags.clientAt(socket)
	}
	return flags.asked
}

// clientAt returns a client of the proxy at a socket.
func (flags *clientFlags) clientAt(socket string) *inspect.Client {
	c := inspect.NewClient(socket)
	c.Patience = flags.patience
	return c
}

// show prints an answer, once or as it changes. Rows is the parameter of inspect.Output.Watch.
func (flags *clientFlags) show(cmd *cobra.Command, rows bool, ask func(context.Context) (inspect.Answer, error)) error {
	if flags.watch {
		return flags.Watch(cmd.Context(), cmd.OutOrStdout(), rows, ask)
	}
	answer, err := ask(cmd.Context())
	if err != nil {
		return err
	}
	return flags.Print(cmd.OutOrStdout(), answer)
}
