package offline

import (
	"context"
	"io"
	"net/netip"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/dataplane"
	iptrender "github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/daemon/demo"
	"github.com/sluice-proxy/sluice/internal/daemon/logging"
	"github.com/sluice-proxy/sluice/internal/daemon/peer"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/internal/explain"
	"github.com/sluice-proxy/sluice/internal/host/hostaddress"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
)

// Demo runs package demo inside a sandbox. Without verbose it logs nothing:
// the output is complete without a log, and the panics are intended.
func Demo(ctx context.Context, o *setup.Options, out io.Writer, verbose bool) error {
	log := zap.NewNop()
	if verbose {
		opened, err := logging.New(o.Log())
		if err != nil {
			return err
		}
		log = opened.Logger
	}
	release, err := peer.TakeAlone(false)
	if err != nil {
		return err
	}
	defer release()
	return demo.Run(ctx, out, log, func(ctx context.Context, log *zap.Logger) ([]proxy.Domain, error) {
		choice := &backend.Choice{Reach: "node ports answer on all addresses", Log: log}
		_, domains, err := backend.Build(o.KubeProxy.Mode, choice, func(mode config.Mode, whole bool) ([]proxy.Domain, error) {
			if mode == config.ModeNFTables {
				return backend.NFTables(ctx, backend.NFTablesOptions{MasqueradeBit: 14, Whole: whole, Log: log})
			}
			domains, _, err := backend.IPTables(ctx, backend.IPTablesOptions{Variant: "auto", MasqueradeBit: 14, Log: log})
			return domains, err
		})
		return domains, err
	}, explainDemo)
}

// explainDemo answers as sluice explain does, from the renderers of the running proxy.
func explainDemo(p *proxy.Proxy, domains []proxy.Domain, client, to netip.AddrPort) (string, error) {
	q, err := explain.ParseFlow(client.String(), to.String(), "")
	if err != nil {
		return "", err
	}
	addresses, err := hostaddress.List()
	if err != nil {
		return "", err
	}
	mode := config.ModeNFTables
	if !strings.HasPrefix(domains[0].Name, string(mode)) {
		mode = config.ModeIPTables
	}
	answer, err := explain.Explain(&explain.State{
		Mode: string(mode), Services: p, Node: p.Node(), Facts: p.Facts(), Addresses: addresses, Towards: hostaddress.Towards,
		Domain: func(family service.Family) (dataplane.Renderer, dataplane.Layout) {
			at := slices.IndexFunc(domains, func(d proxy.Domain) bool { return d.Family == family && !d.Auxiliary })
			if domains[at].Layout != nil {
				return domains[at].Renderer, iptrender.NewLayout(family)
			}
			return domains[at].Renderer, nil
		},
	}, q)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	err = answer.Print(&text)
	return text.String(), err
}
