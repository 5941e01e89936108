package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/internal/inspect"
)

func statusCommand() *cobra.Command {
	var flags clientFlags
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the state of the running proxy",
		Long: `Show the state of the proxy running on this node: version, mode, node name, API sync
status, the number of applied, pending and quarantined Services in each domain
(backend and IP family), and all health findings.`,
		Example: "  sluice status\n  sluice status -o json",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := flags.check(); err != nil {
				return err
			}
			status, err := flags.client().Status(cmd.Context())
			if err != nil {
				return err
			}
			return flags.print(cmd.OutOrStdout(), status, status.Print)
		},
	}
	flags.bind(cmd)
	return cmd
}

// clientFlags are the flags of the commands that query a running proxy.
type clientFlags struct {
	socket, output string
	outputs        []string
	socketGiven    func() bool
}

// bind adds the flags. More names the outputs in addition to json and yaml.
func (flags *clientFlags) bind(cmd *cobra.Command, more ...string) {
	flags.bindSocket(cmd)
	flags.outputs = append(more, "json", "yaml")
	cmd.Flags().StringVarP(&flags.output, "output", "o", "", fmt.Sprintf("format of the output: %s (default: a table)", list(flags.outputs)))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(flags.outputs, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
}

func (flags *clientFlags) bindSocket(cmd *cobra.Command) {
	cmd.Flags().StringVar(&flags.socket, "socket", inspect.DefaultSocket, "path of the proxy's Unix socket")
	flags.socketGiven = func() bool { return cmd.Flags().Changed("socket") }
}

// client returns a client of the proxy at the given socket, on this node, or in the only sandbox.
func (flags *clientFlags) client() *inspect.Client {
	if flags.socketGiven() {
		return inspect.NewClient(flags.socket)
	}
	return inspect.NewClient(sandboxSocket())
}

// check rejects an unknown output before any query.
func (flags *clientFlags) check() error {
	for _, known := range append(flags.outputs, "", "table") {
		if flags.output == known {
			return nil
		}
	}
	return setup.UsageError{Err: fmt.Errorf("--output %q: must be %s", flags.output, list(flags.outputs))}
}

// print prints an answer in the wanted format; table prints it for people.
func (flags *clientFlags) print(to io.Writer, answer any, table func(io.Writer) error) error {
	switch flags.output {
	case "json":
		encoder := json.NewEncoder(to)
		encoder.SetIndent("", "  ")
		return encoder.Encode(answer)
	case "yaml":
		text, err := yaml.Marshal(answer)
		if err != nil {
			return err
		}
		_, err = to.Write(text)
		return err
	default:
		var all bytes.Buffer // in one write, so that no warning comes between parts of a line
		if err := table(&all); err != nil {
			return err
		}
		_, err := to.Write(all.Bytes())
		return err
	}
}

// list joins words as a sentence does.
func list(words []string) string {
	text := ""
	for i, word := range words {
		switch {
		case i == 0:
		case i == len(words)-1:
			text += " or "
		default:
			text += ", "
		}
		text += word
	}
	return text
}
