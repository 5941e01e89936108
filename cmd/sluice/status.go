package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/sluice-proxy/sluice/internal/client"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/internal/inspect"
)

func statusCommand() *cobra.Command {
	var flags clientFlags
	var watch, verdict bool
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
			err := flags.show(cmd, watch, false, func(ctx context.Context) (inspect.Answer, error) {
				status, err := flags.client().Status(ctx)
				if err != nil {
					return inspect.Answer{}, err
				}
				if len(status.Findings) > 0 || slices.ContainsFunc(status.Domains, func(d inspect.Domain) bool { return d.Held > 0 }) {
					exit = exitFailed
				}
				return inspect.Answer{Object: status, Table: status.Print}, nil
			})
			switch {
			case !verdict || errors.As(err, new(setup.UsageError)):
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
	bindWatch(cmd, &watch)
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
	// asked is the client once there is one.
	asked *inspect.Client
}

// bind adds the flags of all commands.
func (flags *clientFlags) bind(cmd *cobra.Command) {
	flags.bindSocket(cmd)
	client.BindTables(cmd, &flags.Output)
}

func bindWatch(cmd *cobra.Command, watch *bool) {
	cmd.Flags().BoolVarP(watch, "watch", "w", false, "keep running, and print what changes (polls every second)")
}

func (flags *clientFlags) bindSocket(cmd *cobra.Command) {
	cmd.Flags().StringVar(&flags.socket, "socket", inspect.DefaultSocket, "path of the proxy's Unix socket")
	cmd.Flags().DurationVar(&flags.patience, "request-timeout", inspect.RequestTimeout, "how long the proxy may be silent before the command fails; 0 means forever")
	flags.socketGiven = func() bool { return cmd.Flags().Changed("socket") }
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

// check rejects an unknown output before any query.
func (flags *clientFlags) check() error {
	err := flags.Check()
	if err == nil && flags.patience < 0 {
		err = fmt.Errorf("request-timeout %v: must not be negative", flags.patience)
	}
	if err != nil {
		return setup.UsageError{Err: fmt.Errorf("--%w", err)}
	}
	return nil
}

// show prints an answer, once or as it changes. Rows is that of inspect.Output.Watch.
func (flags *clientFlags) show(cmd *cobra.Command, watch, rows bool, ask func(context.Context) (inspect.Answer, error)) error {
	if err := flags.check(); err != nil {
		return err
	}
	if watch {
		flags.prepare(cmd)
		return flags.Watch(cmd.Context(), cmd.OutOrStdout(), rows, ask)
	}
	answer, err := ask(cmd.Context())
	if err != nil {
		return err
	}
	return flags.print(cmd, answer.Object, answer.Table)
}

// print prints an answer in the wanted format; table prints it for people.
func (flags *clientFlags) print(cmd *cobra.Command, answer any, table func(io.Writer) error) error {
	flags.prepare(cmd)
	return flags.Print(cmd.OutOrStdout(), answer, table)
}

// prepare turns on colors for a terminal, see https://no-color.org, and says where notes go.
func (flags *clientFlags) prepare(cmd *cobra.Command) {
	flags.Notes, flags.Within = cmd.ErrOrStderr(), flags.namespace
	file, is := cmd.OutOrStdout().(*os.File)
	flags.Color = is && term.IsTerminal(int(file.Fd())) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}
