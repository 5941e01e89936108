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
	"github.com/sluice-proxy/sluice/internal/host/sandbox"
)

func runCommand() *cobra.Command {
	o := daemon.Options{Version: version}
	var dir string
	cmd := &cobra.Command{
		Use:   "run --manifests DIR [--sandbox]",
		Short: "Serve the Services in a directory of manifests, and follow changes",
		Long: `Serve the Services, EndpointSlices and Nodes in the YAML and JSON files in DIR,
and follow the files as they change. A file with a mistake is rejected as a
whole; its previous content stays in force.

With --sandbox, everything runs in private user, mount and network namespaces:
it needs no privilege, and nothing on this host changes.`,
		Example: `  sluice run --manifests examples/web --sandbox`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkManifests(dir); err != nil {
				return err
			}
			if err := o.Load(); err != nil {
				return err
			}
			if o.Sandboxed && !sandbox.Inside() {
				return enterSandbox()
			}
			if o.Sandboxed {
				if err := sandbox.Enter(); err != nil {
					return err
				}
				o.Ready = func(mode config.Mode) { hint(cmd.ErrOrStderr(), mode, o.Sluice.IPTables.Variant) }
			}
			if err := daemon.NeedPrivilege("; to try Sluice without it, use --sandbox"); err != nil {
				return err
			}
			return daemon.Run(cmd.Context(), &o, daemon.Manifests(dir))
		},
	}
	o.Flags = config.BindServing(cmd.Flags())
	groupFlags(cmd)
	manifestsFlag(cmd, &dir)
	cmd.Flags().BoolVar(&o.Sandboxed, "sandbox", false, "run in private namespaces: needs no privilege, changes nothing on this host")
	return cmd
}

func manifestsFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "manifests", "", "directory of manifests (*.yaml, *.yml, *.json)")
}

// checkManifests checks --manifests.
func checkManifests(dir string) error {
	if dir == "" {
		return daemon.UsageError{Err: fmt.Errorf("--manifests: name the directory of the manifests")}
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return daemon.UsageError{Err: fmt.Errorf("--manifests %s: not a readable directory", dir)}
	}
	return nil
}

// enterSandbox runs this command again inside a sandbox.
func enterSandbox() error {
	status, err := sandbox.Run()
	if err == nil && status != 0 {
		err = exitError(status)
	}
	return err
}

// hint prints how to look inside the sandbox that this process runs in.
func hint(out io.Writer, mode config.Mode, variant string) {
	program := "iptables-save"
	switch {
	case mode == config.ModeNFTables:
		program = "nft list ruleset"
	case mode == config.ModeIPVS:
		program = "ipvsadm -ln"
	case variant != "auto":
		program = "iptables-" + variant + "-save"
	}
	fmt.Fprintf(out, "Running in a sandbox. To see its rules from another terminal:\n"+
		"  nsenter --target %d --user --net --mount --preserve-credentials %s\n", os.Getpid(), program)
}

// proxyName is the command that replaces kube-proxy.
const proxyName = "proxy"

func proxyCommand() *cobra.Command {
	o := daemon.Options{Version: version}
	cmd := &cobra.Command{
		Use:   proxyName + " --config FILE | --kubeconfig FILE --hostname-override NODE",
		Short: "Serve the Services of a cluster on this node, in place of kube-proxy",
		Long: `Serve the Services of a cluster on this node, in place of kube-proxy. It accepts
every flag and every field of the configuration file of kube-proxy v1.36. A
second document in the file (kind SluiceConfiguration) holds settings that
kube-proxy does not have. Given --config, kube-proxy's flags for fields of the file
are ignored, as by kube-proxy; docs/configuration.md has the precedence.`,
		Example: `  # as a DaemonSet runs it
  sluice proxy --config=/var/lib/kube-proxy/config.conf --hostname-override=$(NODE_NAME)

  # without a file
  sluice proxy --kubeconfig=/etc/kubernetes/proxy.kubeconfig --proxy-mode=nftables --cluster-cidr=10.244.0.0/16

  # print what a file amounts to, with all defaults, and change nothing
  sluice proxy --config=config.conf --write-config-to=/dev/stdout

  # log every change of a Service, in JSON
  sluice proxy --config=config.conf -v=2 --logging-format=json`,
		RunE: func(cmd *cobra.Command, _ []string) error { return serveCluster(cmd.Context(), &o, cmd.OutOrStdout()) },
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
	if err := daemon.NeedPrivilege(""); err != nil {
		return err
	}
	switch {
	case o.Cleanup:
		return daemon.CleanUp(ctx, o, out)
	case o.InitOnly:
		return daemon.Initialise(ctx, o)
	default:
		return daemon.Run(ctx, o, daemon.Cluster)
	}
}
