// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/sluice-proxy/sluice/internal/client"
	"github.com/sluice-proxy/sluice/internal/daemon"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/daemon/demo"
	"github.com/sluice-proxy/sluice/internal/daemon/offline"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/internal/host/sandbox"
	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/internal/terminal"
)

func demoCommand() *cobra.Command {
	o := daemon.Options{Options: setup.Options{Version: version}}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run a one-minute demo in a sandbox",
		Long: `Run a demo in a sandbox: load sample manifests, program real rules, open a thousand
connections, replace an endpoint under load, and recover from an actor that panics and
one that hangs. The exit status is 0 only if every check succeeds.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Load(); err != nil {
				return err
			}
			if mode := o.Assumed(); mode.Text == nil {
				return inspect.Misused("--proxy-mode %s: the demo shows rules, and supports nftables and iptables; "+
					"sluice run DIR --sandbox shows this mode without a cluster (IPVS needs root and the host's module)", mode.Name)
			}
			return playDemo(cmd, &o)
		},
	}
	o.Flags = config.BindMode(cmd.Flags())
	return cmd
}

// playDemo runs the demo. Outside of a sandbox, it runs this command again inside one.
func playDemo(cmd *cobra.Command, o *daemon.Options) error {
	if sandbox.Inside() {
		if err := sandbox.Enter(); err != nil {
			return err
		}
		return demo.Run(cmd.Context(), o, cmd.OutOrStdout(), cmd.Flags().Changed("v"))
	}
	if err := enterSandbox(false); err != nil {
		return err
	}
	demo.NewPage(cmd.OutOrStdout()).End()
	return nil
}

// cleanupName is the command that removes rules.
const cleanupName = "cleanup"

func cleanupCommand() *cobra.Command {
	o := setup.Options{Version: version}
	dry := false
	cmd := &cobra.Command{
		Use:   cleanupName,
		Short: "Remove all Sluice and kube-proxy rules from this node",
		Long: `Remove all Sluice and kube-proxy rules from this node: both variants of iptables and
nftables, in both IP families; IPVS virtual servers, sets and the device kube-ipvs0,
except for virtual servers of other programs; and the local addresses of userspace
mode. KUBE-FIREWALL is kept because the kubelet also uses it; objects with other names
are never touched. Sysctls changed by Sluice are restored unless another process
changed them later. The command fails while a proxy is running, because the proxy
would recreate its rules; use --force to override.

With --dry-run, it prints these changes and makes none. The exit status is 0 if there
is nothing to remove or restore, 2 if there is, and 1 after an error.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Load(); err != nil {
				return err
			}
			if err := setup.NeedPrivilege(""); err != nil {
				return err
			}
			if !dry {
				return offline.Cleanup(cmd.Context(), &o, cmd.OutOrStdout())
			}
			found, err := offline.CleanupDryRun(cmd.Context(), &o, cmd.OutOrStdout())
			if err == nil && found {
				err = exitError(exitDiffers)
			}
			return err
		},
	}
	o.Flags = config.BindState(cmd.Flags())
	cmd.Flags().BoolVar(&dry, "dry-run", false, "print the planned removals and restorations, and change nothing")
	return cmd
}

// version is set by the linker (see Makefile); a plain go build leaves "devel".
var version = "devel"

// Version is what sluice version prints.
type Version struct {
	Version    string `json:"version"`
	Revision   string `json:"revision,omitempty"`
	Compatible string `json:"compatible"`
	GoVersion  string `json:"goVersion"`
	Platform   string `json:"platform"`
}

// Print implements inspect.Answer.
func (*Version) Print(to *terminal.Page) { to.Say("%s\n", versionText()) }

func versionCommand() *cobra.Command {
	var output inspect.Output
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Long: `Print the version of this program. sluice status shows the version of the running
proxy.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			made := &Version{version, setup.Revision(), setup.Compatible, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			return output.Print(cmd.OutOrStdout(), made)
		},
	}
	client.BindFormat(cmd, &output, inspect.Outputs...)
	return cmd
}

// printVersion prints the answer to kube-proxy's --version. Other programs parse the first line.
func printVersion(out io.Writer, asked config.Version) error {
	if _, err := fmt.Fprintln(out, "Kubernetes", cmp.Or(asked.Reported, setup.Release)); err != nil || !asked.Raw {
		return err
	}
	_, err := fmt.Fprintln(out, versionText())
	return err
}

func versionText() string {
	commit := "unknown commit"
	if revision := setup.Revision(); revision != "" {
		commit = "commit " + revision[:min(12, len(revision))]
	}
	return fmt.Sprintf("sluice %s (%s, %s/%s, %s), behaves like kube-proxy %s",
		version, commit, runtime.GOOS, runtime.GOARCH, runtime.Version(), setup.Compatible)
}
