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
	var a asking
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Print the state of the running proxy",
		Long: `Print the state of the proxy that runs on this node: its version, mode and node,
since when its source is synced, how many Services are in force, wait or are in
quarantine in each domain of the kernel, and what health finds wrong.`,
		Example: "  sluice status\n  sluice status -o json",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.check(); err != nil {
				return err
			}
			status, err := a.client().Status(cmd.Context())
			if err != nil {
				return err
			}
			return a.print(cmd.OutOrStdout(), status, status.Print)
		},
	}
	a.bind(cmd)
	return cmd
}

// asking has the flags of the commands that ask a running proxy.
type asking struct {
	socket, output string
	outputs        []string
}

// bind adds the flags. More names the outputs besides json and yaml.
func (a *asking) bind(cmd *cobra.Command, more ...string) {
	a.bindSocket(cmd)
	a.outputs = append(more, "json", "yaml")
	cmd.Flags().StringVarP(&a.output, "output", "o", "", fmt.Sprintf("format of the output: %s (default: a table)", list(a.outputs)))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(a.outputs, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
}

func (a *asking) bindSocket(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.socket, "socket", inspect.DefaultSocket, "socket of the proxy")
}

func (a *asking) client() *inspect.Client { return inspect.NewClient(a.socket) }

// check rejects an unknown output before anything is asked.
func (a *asking) check() error {
	for _, known := range append(a.outputs, "", "table") {
		if a.output == known {
			return nil
		}
	}
	return setup.UsageError{Err: fmt.Errorf("--output %q: want %s", a.output, list(a.outputs))}
}

// print prints an answer in the wanted format; table prints it for people.
func (a *asking) print(to io.Writer, answer any, table func(io.Writer) error) error {
	switch a.output {
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
