package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	proxy "github.com/sluice-proxy/sluice"
	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/daemon/demo"
	"github.com/sluice-proxy/sluice/internal/host/sandbox"
)

func demoCommand() *cobra.Command {
	o := options{}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Tell a story in a minute: real rules, real connections, a change under load, a panic, a hang",
		Long: `Tell a story in a minute, in a sandbox: sample manifests, real backends, rules in
the real kernel, a thousand real connections, an endpoint replaced under load, an
actor that panics and one that hangs. Exit status 0 only if all of it held.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.load(); err != nil {
				return err
			}
			if o.mode() == backend.ModeIPVS {
				return usageError{errors.New("--proxy-mode ipvs: the demo shows nftables or iptables; IPVS mode takes root and a module of the host's kernel")}
			}
			if sandbox.Inside() {
				return tell(cmd, &o)
			}
			before, err := demo.HostRules(cmd.Context())
			if err != nil {
				return err
			}
			if err := enterSandbox(); err != nil {
				return err
			}
			after, err := demo.HostRules(cmd.Context())
			if err != nil {
				return err
			}
			if err := before.Compare(after); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "         host: %s\n         All of it held.\n", after)
			return nil
		},
	}
	o.flags = config.BindMode(cmd.Flags())
	return cmd
}

// tell tells the story inside the sandbox.
func tell(cmd *cobra.Command, o *options) error {
	log := zap.NewNop() // the story speaks for itself; its panics are on purpose
	if cmd.Flags().Changed("log-level") {
		opened, err := newLogger(o.Log())
		if err != nil {
			return err
		}
		log = opened.Logger
	}
	if err := sandbox.Enter(); err != nil {
		return err
	}
	release, err := takeAlone(false)
	if err != nil {
		return err
	}
	defer release()
	return demo.Tell(cmd.Context(), cmd.OutOrStdout(), log, func(ctx context.Context, log *zap.Logger) ([]proxy.Domain, error) {
		_, domains, err := backend.Build(o.mode(), &backend.Choice{Reach: "node ports answer on all addresses", Log: log}, backend.Builders{
			NFTables: func() ([]proxy.Domain, error) {
				return backend.NFTables(ctx, backend.NFTablesOptions{MasqueradeBit: 14, Log: log})
			},
			IPTables: func() ([]proxy.Domain, error) {
				return backend.IPTables(ctx, backend.IPTablesOptions{Variant: "auto", MasqueradeBit: 14, Log: log})
			},
		})
		return domains, err
	})
}
