package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	proxy "github.com/sluice-proxy/sluice"
	"github.com/sluice-proxy/sluice/dataplane/iptables"
	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/host/sandbox"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/source/manifest"
)

func runCommand() *cobra.Command {
	o := options{}
	var dir string
	cmd := &cobra.Command{
		Use:   "run --manifests DIR [--sandbox]",
		Short: "Serve the Services in a directory of manifests, and follow them as they change",
		Long: `Serve the Services, EndpointSlices and Nodes that the YAML and JSON files in DIR
describe, and follow the files as they change. A file with a mistake is refused
whole; what it said before stays in force.

With --sandbox everything happens in private user, mount and network namespaces:
no privilege is needed, and nothing on this host changes.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkManifests(dir); err != nil {
				return err
			}
			if err := o.load(); err != nil {
				return err
			}
			if o.sandboxed && !sandbox.Inside() {
				return enterSandbox()
			}
			if o.sandboxed {
				if err := sandbox.Enter(); err != nil {
					return err
				}
				o.ready = func(mode backend.Mode) { hint(cmd.ErrOrStderr(), mode, o.Sluice.IPTables.Variant) }
			}
			if err := needPrivilege("; without it, --sandbox is there to try things out"); err != nil {
				return err
			}
			from := func(s *server) proxy.Source {
				return func(ctx context.Context, cache *source.Cache) error {
					return manifest.New(dir, cache, s.settings.Name, manifest.Options{Log: s.log.Logger}).Run(ctx)
				}
			}
			return serve(cmd.Context(), &o, func(*options) (*rest.Config, feed, error) { return nil, from, nil })
		},
	}
	o.flags = config.BindServing(cmd.Flags())
	cmd.Flags().StringVar(&dir, "manifests", "", "directory of manifests (*.yaml, *.yml, *.json)")
	cmd.Flags().BoolVar(&o.sandboxed, "sandbox", false, "run in private namespaces: no privilege needed, nothing on this host changes")
	return cmd
}

// enterSandbox runs this command again inside a sandbox.
func enterSandbox() error {
	status, err := sandbox.Run()
	if err != nil {
		return err
	}
	if status != 0 {
		return exitError(status)
	}
	return nil
}

// hint tells how to look inside the sandbox that this process runs in.
func hint(out io.Writer, mode backend.Mode, variant string) {
	program := "iptables-save"
	switch {
	case mode == backend.ModeNFTables:
		program = "nft list ruleset"
	case mode == backend.ModeIPVS:
		program = "ipvsadm -ln"
	case variant != iptables.Auto:
		program = "iptables-" + variant + "-save"
	}
	fmt.Fprintf(out, "In a sandbox. To look at its rules from another terminal:\n"+
		"  nsenter --target %d --user --net --mount --preserve-credentials %s\n", os.Getpid(), program)
}
