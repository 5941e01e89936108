package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	proxy "github.com/sluice-proxy/sluice"
	"github.com/sluice-proxy/sluice/internal/sandbox"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/source/manifest"
)

func runCommand() *cobra.Command {
	var o options
	var dir string
	var boxed bool
	cmd := &cobra.Command{
		Use:   "run --manifests DIR [--sandbox]",
		Short: "Serve the Services in a directory of manifests, and follow them as they change",
		Long: `Serve the Services, EndpointSlices and Nodes that the YAML and JSON files in DIR
describe, and follow the files as they change. A file with a mistake is refused
whole; what it said before stays in force.

With --sandbox everything happens in private user, mount and network namespaces:
no privilege is needed, and nothing on this host changes.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir == "" {
				return usageError{fmt.Errorf("--manifests: name the directory that holds the manifests")}
			}
			if info, err := os.Stat(dir); err != nil || !info.IsDir() {
				return usageError{fmt.Errorf("--manifests %s: not a directory that can be read", dir)}
			}
			if boxed && !sandbox.Inside() {
				return enterSandbox()
			}
			if boxed {
				if err := furnish(cmd); err != nil {
					return err
				}
			}
			return serve(cmd.Context(), &o, func(log *zap.Logger, s proxy.NodeSettings) proxy.Source {
				return func(ctx context.Context, cache *source.Cache) error {
					return manifest.New(dir, cache, s.Name, manifest.Options{Log: log}).Run(ctx)
				}
			})
		},
	}
	o.bind(cmd.Flags())
	cmd.Flags().StringVar(&dir, "manifests", "", "directory of manifests (*.yaml, *.yml, *.json)")
	cmd.Flags().BoolVar(&boxed, "sandbox", false, "run in private namespaces: no privilege needed, nothing on this host changes")
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

// furnish prepares the sandbox that this process runs in, and tells how to look
// inside.
func furnish(cmd *cobra.Command) error {
	if err := sandbox.Enter(); err != nil {
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "In a sandbox. To look at its rules from another terminal:\n"+
		"  nsenter --target %d --user --net --mount --preserve-credentials iptables-save\n", os.Getpid())
	return nil
}
