package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/sluice-proxy/sluice/internal/daemon"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/daemon/demo"
	"github.com/sluice-proxy/sluice/internal/daemon/offline"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/internal/host/sandbox"
)

func demoCommand() *cobra.Command {
	o := daemon.Options{Options: setup.Options{Version: version}}
	keep := false
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Tell a story in a minute: real rules, real connections, a change under load, a panic, a hang",
		Long: `Tell a story in a minute, in a sandbox: sample manifests, real backends, rules in
the real kernel, a thousand real connections, an endpoint replaced under load, an
actor that panics and one that hangs. The exit status is 0 only if every check
succeeded. With --keep, the sandbox stays afterwards, with the sample Services and
backends that answer, and lines to paste into another terminal.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Load(); err != nil {
				return err
			}
			if o.KubeProxy.Mode == config.ModeUserspace {
				return setup.UsageError{Err: errors.New("--proxy-mode userspace: the demo shows rules, and supports nftables and iptables; " +
					"sluice run --sandbox --backends --manifests DIR shows this mode without a cluster")}
			}
			if o.KubeProxy.Mode == config.ModeIPVS {
				return setup.UsageError{Err: errors.New("--proxy-mode ipvs: the demo supports nftables and iptables; " +
					"IPVS mode needs root and a module of the host's kernel")}
			}
			return playDemo(cmd, &o, keep)
		},
	}
	o.Flags = config.BindMode(cmd.Flags())
	cmd.Flags().BoolVar(&keep, "keep", false, "keep the sandbox running until interrupted")
	return cmd
}

// playDemo plays the demo: in the sandbox, or by entering it. It checks that the host's rules are as before.
func playDemo(cmd *cobra.Command, o *daemon.Options, keep bool) error {
	if sandbox.Inside() {
		if err := sandbox.Enter(); err != nil {
			return err
		}
		verbose := cmd.Flags().Changed("log-level")
		err := offline.Demo(cmd.Context(), &o.Options, cmd.OutOrStdout(), verbose)
		if err == nil && keep {
			err = daemon.KeepDemo(cmd.Context(), o, cmd.OutOrStdout(), verbose)
		}
		return err
	}
	before, err := demo.HostRules(cmd.Context())
	if err != nil {
		return err
	}
	if err := enterSandbox(); err != nil {
		return err
	}
	after, err := demo.HostRules(context.WithoutCancel(cmd.Context())) // --keep ends by a signal
	if err != nil {
		return err
	}
	if err := before.Compare(after); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "         host: %s\n         Every check succeeded.\n", after)
	return nil
}

func renderCommand() *cobra.Command {
	o := setup.Options{Version: version}
	var dir, family string
	cmd := &cobra.Command{
		Use:   "render --manifests DIR [--proxy-mode MODE] [--family FAMILY]",
		Short: "Print the rules for a directory of manifests, and change nothing",
		Long: `Print the rules that Sluice would load for the Services, EndpointSlices and Nodes
in the YAML and JSON files in DIR. It needs no privilege and changes nothing. If a
file has a mistake, only the mistakes are printed.

In nftables mode, the default here, the output is for nft -f, and replaces
Sluice's tables. In iptables mode it is for iptables-restore or ip6tables-restore,
and for tables without rules of Sluice. With --noflush these leave other chains
alone, except for KUBE-FIREWALL, which the kubelet also uses.`,
		Example: `  sluice render --manifests examples/web --proxy-mode iptables --family ipv6`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkManifests(dir); err != nil {
				return err
			}
			if err := o.Load(); err != nil {
				return err
			}
			text, err := offline.Render(&o, dir, family)
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), text)
			return err
		},
	}
	o.Flags = config.BindRender(cmd.Flags())
	groupFlags(cmd)
	manifestsFlag(cmd, &dir)
	cmd.Flags().StringVar(&family, "family", "", "ipv4 or ipv6; empty means both (nftables) or ipv4 (iptables)")
	return cmd
}

// cleanupName is the command that removes rules.
const cleanupName = "cleanup"

func cleanupCommand() *cobra.Command {
	o := setup.Options{Version: version}
	dry := false
	cmd := &cobra.Command{
		Use:   cleanupName,
		Short: "Remove the rules that Sluice or kube-proxy left on this node, and nothing else",
		Long: `Remove the rules that Sluice or kube-proxy left on this node: both variants of
iptables, and nftables, in both families; and IPVS virtual servers, sets and the
device kube-ipvs0, except for virtual servers of other programs; and the local
addresses of userspace mode, by their protocol number. KUBE-FIREWALL,
which the kubelet also uses, stays, and so does everything with another name.
Kernel settings that Sluice changed are restored, unless another program has
changed them since. A running proxy would write its rules again, so the command
fails while one is running, unless --force is set.

With --dry-run, it prints the same and changes nothing. The exit status is then 0
if there is nothing to remove or restore, 2 if there is, and 1 after any error.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Load(); err != nil {
				return err
			}
			if err := setup.NeedPrivilege(""); err != nil {
				return err
			}
			if !dry {
				return offline.CleanUp(cmd.Context(), &o, cmd.OutOrStdout())
			}
			found, err := offline.WouldCleanUp(cmd.Context(), &o, cmd.OutOrStdout())
			if err == nil && found {
				err = exitError(exitDiffers)
			}
			return err
		},
	}
	o.Flags = config.BindState(cmd.Flags())
	cmd.Flags().BoolVar(&dry, "dry-run", false, "print what would be removed and restored, and change nothing")
	return cmd
}

// version is set by the linker (see Makefile); a plain go build leaves "devel".
var version = "devel"

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), versionText())
			return err
		},
	}
}

// printVersion answers kube-proxy's --version. Programs parse the first line.
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
