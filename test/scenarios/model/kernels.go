package model

import (
	"fmt"

	proxy "github.com/sluice-proxy/sluice"
	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane/iptables"
	"github.com/sluice-proxy/sluice/dataplane/memory"
	"github.com/sluice-proxy/sluice/dataplane/memory/nft"
	"github.com/sluice-proxy/sluice/dataplane/nftables"
	"github.com/sluice-proxy/sluice/service"
)

// masqueradeBit is the default of the bit of the mark that asks for source NAT.
const masqueradeBit = 14

// makeKernels makes the kernels of the mode, and the domains that write to them.
func (w *World) makeKernels() error {
	switch w.options.Mode {
	case "iptables":
		for _, family := range service.Families {
			k := memory.NewKernel(family)
			k.SetLocal(hostAddresses()...)
			w.kernels[family] = k
			w.domains = append(w.domains, proxy.Domain{
				Name: "iptables/" + family.String(), Family: family,
				Renderer: iptables.NewRenderer(family, iptables.Options{MasqueradeBit: masqueradeBit}),
				Layout:   iptables.NewLayout(family),
				Writer:   iptables.NewWriter(family, k, iptables.WriterConfig{}),
				Pace:     aggregator.Pace{WriteShare: 0.5},
			})
		}
	case "nftables":
		k := nft.NewKernel()
		k.SetAddresses(hostAddresses()...)
		for _, family := range service.Families {
			w.kernels[family] = k
			w.domains = append(w.domains, proxy.Domain{
				Name: "nftables/" + family.String(), Family: family,
				Renderer: nftables.NewRenderer(family, nftables.Options{MasqueradeBit: masqueradeBit}),
				Writer:   unwatched{nftables.NewWriter(family, nftables.WriterConfig{Open: k.Open})},
			})
		}
	default:
		return fmt.Errorf("there is no model of mode %q", w.options.Mode)
	}
	return nil
}
