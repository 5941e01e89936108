package setup

import (
	"github.com/sluice-proxy/sluice/dataplane"
	iptrender "github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/host/sysctl"
	"github.com/sluice-proxy/sluice/service"
)

// Renderer returns how a mode renders a family with this configuration on a node where such things were found, as its
// domain does, and an empty layout or nil. Modes without rules render as nftables does.
func (o *Options) Renderer(mode config.Mode, family service.Family, found backend.Found) (dataplane.Renderer, dataplane.Layout, error) {
	switch mode {
	case config.ModeIPVS:
		options := o.ipvs(sysctl.Files{}, nil)
		return options.Renderer(family, found), nil, nil
	case config.ModeIPTables:
		options, err := o.iptables(sysctl.Files{}, nil)
		return options.Renderer(family, found), iptrender.NewLayout(family), err
	default:
		options := o.nftables(nil)
		return options.Renderer(family), nil, nil
	}
}
