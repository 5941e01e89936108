package offline

import (
	"context"
	"io"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/internal/daemon/demo"
	"github.com/sluice-proxy/sluice/internal/daemon/logging"
	"github.com/sluice-proxy/sluice/internal/daemon/rival"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/proxy"
)

// Demo tells the story of package demo, inside a sandbox. Without verbose it logs nothing:
// the story speaks for itself, and its panics are intended.
func Demo(ctx context.Context, o *setup.Options, out io.Writer, verbose bool) error {
	log := zap.NewNop()
	if verbose {
		opened, err := logging.New(o.Log())
		if err != nil {
			return err
		}
		log = opened.Logger
	}
	release, err := rival.TakeAlone(false)
	if err != nil {
		return err
	}
	defer release()
	return demo.Tell(ctx, out, log, func(ctx context.Context, log *zap.Logger) ([]proxy.Domain, error) {
		choice := &backend.Choice{Reach: "node ports answer on all addresses", Log: log}
		_, domains, err := backend.Build(o.KubeProxy.Mode, choice, backend.Builders{
			NFTables: func(whole bool) ([]proxy.Domain, error) {
				return backend.NFTables(ctx, backend.NFTablesOptions{MasqueradeBit: 14, Whole: whole, Log: log})
			},
			IPTables: func() ([]proxy.Domain, error) {
				domains, _, err := backend.IPTables(ctx, backend.IPTablesOptions{Variant: "auto", MasqueradeBit: 14, Log: log})
				return domains, err
			},
		})
		return domains, err
	})
}
