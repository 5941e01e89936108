package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/daemon/plan"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
)

// planName is the command that compares.
const planName = "plan"

func planCommand() *cobra.Command {
	o := setup.Options{Version: version}
	var dir, output string
	var diff bool
	cmd := &cobra.Command{
		Use:   planName + " DIR | --config FILE | --kubeconfig FILE",
		Short: "Preview the changes of a proxy start on this node (dry run)",
		Long: `Preview the changes of a proxy start in this node's kernel, by Service; change
nothing. It reads the kernel state as the proxy does at startup and compares it with
the rules for the manifests in DIR or for the current API objects. If a proxy is
already running, the plan shows the difference from its rules.

The exit status is 0 if nothing would change, 2 if something would, and 1 after any
error.`,
		Example: `  sluice plan DIR --hostname-override NODE --diff
  sluice plan --config /var/lib/kube-proxy/config.conf --hostname-override NODE`,
		Args: directory(&dir),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkPlan(&o, dir, output); err != nil {
				return err
			}
			if err := o.Load(); err != nil {
				return err
			}
			if err := setup.NeedPrivilege(", and so does reading them"); err != nil {
				return err
			}
			if dir != "" {
				printNotes(cmd, &o, dir)
			}
			report, err := plan.Make(cmd.Context(), &o, dir)
			if err == nil {
				err = printPlan(cmd.OutOrStdout(), report, output, diff)
			}
			if err == nil && report.Differs() {
				return exitError(exitDiffers)
			}
			return err
		},
	}
	o.Flags = config.BindPlan(cmd.Flags())
	manifestsFlag(cmd, &dir)
	cmd.Flags().BoolVarP(&diff, "diff", "v", false, "also print the changed lines")
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return cmd
}

// checkPlan checks the flags of the plan alone.
func checkPlan(o *setup.Options, dir, output string) error {
	cluster := len(o.Flags.Files) > 0 || o.Flags.Master != "" || o.Flags.Kubeconfig() != ""
	switch {
	case output != "table" && output != "json":
		return setup.UsageError{Err: fmt.Errorf("--output %q: must be table or json", output)}
	case dir == "" && !cluster:
		return setup.UsageError{Err: errors.New("one of --manifests, --config or --kubeconfig is required")}
	case dir != "" && (o.Flags.Master != "" || o.Flags.Kubeconfig() != ""):
		return setup.UsageError{Err: errors.New("--manifests: cannot be combined with --kubeconfig or --master; " +
			"with --config it is taken instead of the API server")}
	case dir != "":
		return checkManifests(dir)
	}
	return nil
}

func printPlan(out io.Writer, report *plan.Report, output string, diff bool) error {
	if output == "table" {
		return report.Print(out, diff)
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(report)
}
