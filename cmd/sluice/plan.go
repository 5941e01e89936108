// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/sluice-proxy/sluice/internal/client"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/daemon/offline"
	"github.com/sluice-proxy/sluice/internal/daemon/plan"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/internal/inspect"
)

// planName is the command that previews the changes of a start.
const planName = "plan"

func planCommand() *cobra.Command {
	o := setup.Options{Version: version}
	output := inspect.Output{Own: outputRules}
	var dir, family string
	var diff bool
	cmd := &cobra.Command{
		Use:   planName + " DIR | --config FILE | --kubeconfig FILE",
		Short: "Preview the changes of a proxy start on this node (dry run)",
		Long: `Preview the changes of a proxy start in this node's kernel, by Service; change
nothing. It reads the kernel state as the proxy does at startup and compares it with
the rules for the manifests in DIR or for the current API objects. If a proxy is
already running, the plan shows the difference from its rules.

With --output rules, it prints the rules for the manifests in DIR instead. It then does
not look at the kernel, needs no privilege, and assumes nftables mode unless another one is
set. In nftables mode, the output is input for nft -f and replaces Sluice's tables. In
iptables mode, it is input for iptables-restore or ip6tables-restore and assumes that no
Sluice rules exist. With --noflush these leave other chains alone, except for KUBE-FIREWALL,
shared with the kubelet.

The exit status is 0 if nothing would change, 2 if something would, and 1 after any
error.`,
		Example: `  sluice plan DIR --hostname-override NODE --diff
  sluice plan --config /var/lib/kube-proxy/config.conf --hostname-override NODE
  sluice plan examples/web -o rules --proxy-mode iptables --family ipv6`,
		Args: directory(&dir),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkPlan(&o, dir, family, &output); err != nil {
				return err
			}
			if err := o.Load(); err != nil {
				return err
			}
			if output.Format == outputRules {
				return printRules(cmd.OutOrStdout(), &o, dir, family)
			}
			if err := setup.NeedPrivilege(", and so does reading them"); err != nil {
				return err
			}
			if dir != "" {
				printNotes(cmd, &o, dir)
			}
			if diff && output.Table() {
				output.Format = "wide"
			}
			report, err := plan.Make(cmd.Context(), &o, dir)
			if err == nil {
				err = output.Print(cmd.OutOrStdout(), report)
			}
			if err == nil && report.Differs() {
				return exitError(exitDiffers)
			}
			return err
		},
	}
	cmd.Flags().BoolVarP(&diff, "diff", "v", false, "also print the changed lines")
	o.Flags = config.BindPlan(cmd.Flags())
	manifestsFlag(cmd, &dir)
	client.BindFormat(cmd, &output, append([]string{outputRules}, inspect.Outputs...)...)
	cmd.Flags().StringVar(&family, "family", "", "with --output rules: ipv4 or ipv6; empty means both (nftables) or ipv4 (iptables)")
	return cmd
}

// outputRules is the value of --output for rules that nft -f and iptables-restore accept.
const outputRules = "rules"

// checkPlan checks the combination of the flags of sluice plan.
func checkPlan(o *setup.Options, dir, family string, output *inspect.Output) error {
	if output.Format == outputRules {
		return checkManifests(dir)
	}
	if family != "" {
		return inspect.Misused("--family: only with --output rules")
	}
	cluster := len(o.Flags.Files) > 0 || o.Flags.Master != "" || o.Flags.Kubeconfig() != ""
	switch {
	case dir == "" && !cluster:
		return inspect.Misused("one of --manifests, --config or --kubeconfig is required")
	case dir != "" && (o.Flags.Master != "" || o.Flags.Kubeconfig() != ""):
		return inspect.Misused("--manifests: cannot be combined with --kubeconfig or --master; " +
			"with --config it is taken instead of the API server")
	case dir != "":
		return checkManifests(dir)
	}
	return nil
}

// printRules prints the rules for manifests.
func printRules(to io.Writer, o *setup.Options, dir, family string) error {
	text, err := offline.Render(o, dir, family)
	if err == nil {
		_, err = io.WriteString(to, text)
	}
	return err
}
