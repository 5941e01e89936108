// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-proxy/sluice/internal/daemon"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/daemon/feed"
	"github.com/sluice-proxy/sluice/internal/daemon/offline"
	"github.com/sluice-proxy/sluice/internal/daemon/plan"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/internal/host/sandbox"
	"github.com/sluice-proxy/sluice/internal/inspect"
)

func runCommand() *cobra.Command {
	o := daemon.Options{Options: setup.Options{Version: version}}
	lab := daemon.Lab{}
	var page bool
	cmd := &cobra.Command{
		Use:   "run DIR [--sandbox]",
		Short: "Serve Services from a directory of manifests",
		Long: `Serve the Services, EndpointSlices and Nodes in the YAML and JSON files in DIR,
and follow the files as they change. An invalid file is rejected as a
whole; its previous content remains applied.

With --sandbox, everything runs in private user, mount and network namespaces, so no
privilege is needed and the host is not modified. Sluice also starts a test pod for
each endpoint address in the manifests; its servers reply with their name. This node is
the only Node of the manifests, unless --hostname-override names another one. Health
and metrics are served inside; sluice sandbox shell enters the sandbox. The web UI is
served outside, at a port of 127.0.0.1 that is printed.`,
		Example: `  sluice run examples/demo --sandbox`,
		Args:    directory(&lab.Dir),
		RunE: func(cmd *cobra.Command, _ []string) error {
			lab.Out = cmd.ErrOrStderr()
			if err := checkRun(cmd, &o, &lab); err != nil {
				return err
			}
			if o.Sandboxed && !sandbox.Inside() {
				return enterSandbox(page)
			}
			if o.Sandboxed {
				if err := sandbox.Enter(); err != nil {
					return err
				}
				lab.Page = sandbox.Listener()
				o.Lab = &lab
			}
			printNotes(cmd, &o.Options, lab.Dir)
			if err := setup.NeedPrivilege("; to try Sluice without it, use --sandbox"); err != nil {
				return err
			}
			return logged(&o.Options, daemon.Run(cmd.Context(), &o, feed.Manifests(lab.Dir)))
		},
	}
	o.Flags = config.BindServing(cmd.Flags())
	groupFlags(cmd)
	manifestsFlag(cmd, &lab.Dir)
	cmd.Flags().BoolVar(&o.Sandboxed, "sandbox", false, "run in private namespaces: needs no privilege, changes nothing on this host")
	cmd.Flags().BoolVar(&page, "page", true, "in a sandbox, serve the web UI at a free port of this host's 127.0.0.1")
	cmd.Flags().BoolVar(&lab.TestPods, "test-pods", true, "in a sandbox, start servers for the endpoints that the manifests name")
	return cmd
}

// checkRun checks the flags that only sluice run has, and loads the options from the others.
func checkRun(cmd *cobra.Command, o *daemon.Options, lab *daemon.Lab) error {
	if err := checkManifests(lab.Dir); err != nil {
		return err
	}
	if cmd.Flags().Changed("test-pods") && lab.TestPods && !o.Sandboxed {
		return inspect.Misused("--test-pods: only with --sandbox, where it can change nothing on this host")
	}
	if err := o.Load(); err != nil {
		return err
	}
	o.WithoutCluster = o.Sandboxed || o.NamesServers
	if only := plan.OnlyNode(lab.Dir); o.Sandboxed && o.KubeProxy.HostnameOverride == "" && only != "" {
		o.Flags.SetHostname(only)
		return o.Load()
	}
	return nil
}

// printNotes prints notes about manifests that may not be the intended ones.
func printNotes(cmd *cobra.Command, o *setup.Options, dir string) {
	for _, note := range plan.ManifestNotes(o, dir) {
		fmt.Fprintln(cmd.ErrOrStderr(), "Note: "+note)
	}
}

func manifestsFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "manifests", "", "directory of manifests (*.yaml, *.yml, *.json)")
}

// directory returns a check of the arguments that accepts the value of --manifests as the only argument.
func directory(dir *string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 && *dir == "" {
			*dir, args = args[0], nil
		}
		return noArguments(cmd, args)
	}
}

// checkManifests checks the directory of manifests.
func checkManifests(dir string) error {
	if dir == "" {
		return inspect.Misused("a directory of manifests is required")
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return inspect.Misused("manifests %s: not a readable directory", dir)
	}
	return nil
}

// enterSandbox runs this command again inside a sandbox. If page is set, the sandbox serves the web UI on this host.
func enterSandbox(page bool) error {
	var listener *os.File
	if page {
		var err error
		if listener, err = daemon.ListenForPage(); err != nil { // the loopback may be down
			fmt.Fprintln(os.Stderr, "The web UI is not served on this host:", err)
		} else {
			defer listener.Close() // nothing was written
		}
	}
	status, err := sandbox.Run(listener)
	if err == nil && status != 0 {
		err = exitError(status)
	}
	return err
}

// proxyName is the command that replaces kube-proxy.
const proxyName = "proxy"

func proxyCommand() *cobra.Command {
	o := daemon.Options{Options: setup.Options{Version: version}}
	cmd := &cobra.Command{
		Use:   proxyName + " --config FILE | --kubeconfig FILE --hostname-override NODE",
		Short: "Run the proxy on a cluster node (kube-proxy replacement)",
		Long: `Run the proxy on a cluster node (kube-proxy replacement). It accepts
every flag and every field of the configuration file of kube-proxy v1.37. A
second document in the file (kind SluiceConfiguration) holds settings specific to
Sluice. Given --config, kube-proxy's flags for fields of the file are ignored, as by
kube-proxy; docs/configuration.md describes the precedence.`,
		Example: `  # as a DaemonSet runs it
  sluice proxy --config=/var/lib/kube-proxy/config.conf --hostname-override=$(NODE_NAME)

  # without a file
  sluice proxy --kubeconfig=/etc/kubernetes/proxy.kubeconfig --proxy-mode=nftables --cluster-cidr=10.244.0.0/16

  # print the effective configuration, including defaults
  sluice proxy --config=config.conf --write-config-to=/dev/stdout

  # log every change of a Service, in JSON
  sluice proxy --config=config.conf -v=2 --logging-format=json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return logged(&o.Options, serveCluster(cmd.Context(), &o, cmd.OutOrStdout()))
		},
	}
	o.Flags = config.BindProxy(cmd.Flags())
	groupFlags(cmd)
	o.FlagValues = func() map[string]string {
		values := make(map[string]string)
		cmd.Flags().VisitAll(func(f *pflag.Flag) { values[f.Name] = f.Value.String() })
		return values
	}
	return cmd
}

// serveCluster serves a cluster, or does what one of the flags requests instead.
func serveCluster(ctx context.Context, o *daemon.Options, out io.Writer) error {
	if asked := o.Flags.Version; asked.Show {
		return printVersion(out, asked)
	}
	if err := o.Load(); err != nil {
		return err
	}
	if o.WriteTo != "" {
		return o.WriteFile(o.WriteTo)
	}
	if err := setup.NeedPrivilege(""); err != nil {
		return err
	}
	switch {
	case o.Cleanup:
		return offline.Cleanup(ctx, &o.Options, out)
	case o.InitOnly:
		return setup.Initialize(ctx, &o.Options)
	default:
		return daemon.Run(ctx, o, feed.Cluster)
	}
}
