package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/sluice-proxy/sluice/internal/daemon"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/explain"
)

func explainCommand() *cobra.Command {
	o := daemon.Options{Version: version}
	var dir, from, to, iface, output string
	cmd := &cobra.Command{
		Use:   "explain --from IP --to IP:PORT[/PROTOCOL] --manifests DIR",
		Short: "Say what becomes of a connection: Service, rules, endpoints, masquerading, or who refuses it",
		Long: `Say what becomes of a connection: which Service it is for, which rules and map
elements decide at each hook, which endpoints can get it with what probability,
whose address they see, or which rule refuses or drops it, and why.

With --manifests, the answer is about the rules that Sluice would load for the
Services, EndpointSlices and Nodes in DIR. It needs no privilege. Rules of other
programs are not considered.`,
		Example: `  sluice explain --manifests examples/web --from 10.244.1.5 --to 10.96.0.80:80
  sluice explain --manifests examples/web --from 203.0.113.9 --to 192.0.2.10:53/udp -o json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := daemon.ParseQuestion(from, to, iface)
			if err != nil {
				return err
			}
			if output != "table" && output != "json" {
				return daemon.UsageError{Err: fmt.Errorf("--output %q: want table or json", output)}
			}
			if err := checkManifests(dir); err != nil {
				return err
			}
			if err := o.Load(); err != nil {
				return err
			}
			answer, err := daemon.Explain(&o, dir, q)
			if err != nil {
				return err
			}
			return printAnswer(cmd.OutOrStdout(), answer, output)
		},
	}
	o.Flags = config.BindServing(cmd.Flags())
	manifestsFlag(cmd, &dir)
	cmd.Flags().StringVar(&from, "from", "", "the client's address, or its address and port")
	cmd.Flags().StringVar(&to, "to", "", "the destination: address, port and perhaps /tcp (the default), /udp or /sctp")
	cmd.Flags().StringVar(&iface, "iface", "", "interface of this node through which the connection arrives; guessed if empty")
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return cmd
}

func printAnswer(out io.Writer, answer *explain.Answer, output string) error {
	if output == "json" {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		return encoder.Encode(answer)
	}
	return answer.Print(out)
}
