// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"github.com/sluice-proxy/sluice/dataplane"
	iptrender "github.com/sluice-proxy/sluice/dataplane/iptables/render"
	ipvsrender "github.com/sluice-proxy/sluice/dataplane/ipvs/render"
	nftrender "github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/service"
)

// The renderers of the modes. Domains use them, and so do the commands that print and explain rules without a kernel.

// Renderer returns the renderer of a family in nftables mode.
func (o *NFTablesOptions) Renderer(family service.Family) dataplane.Renderer {
	return nftrender.NewRenderer(family, nftrender.Options{MasqueradeBit: o.MasqueradeBit, CountEndpoints: o.CountEndpoints, Seed: o.HashSeed})
}

// Found contains the features of a node on which the rules of iptables mode and IPVS mode depend.
type Found struct {
	// RandomFully means that iptables supports the option, and Liberal that conntrack accepts invalid TCP packets.
	RandomFully, Liberal bool
	// Accounting means that rules can count packets.
	Accounting bool
}

// Renderer returns the renderer of a family in iptables mode.
func (o *IPTablesOptions) Renderer(family service.Family, found Found) dataplane.Renderer {
	return iptrender.NewRenderer(family, iptrender.Options{
		MasqueradeBit: o.MasqueradeBit, RandomFully: found.RandomFully, InvalidDropOmitted: found.Liberal, Accounting: found.Accounting,
	})
}

// Renderer returns the renderer of a family in IPVS mode.
func (o *IPVSOptions) Renderer(family service.Family, found Found) *ipvsrender.Renderer {
	return ipvsrender.NewRenderer(family, ipvsrender.Options{
		Scheduler: o.Scheduler, MasqueradeBit: o.MasqueradeBit, RandomFully: found.RandomFully,
		DrainDeadline: o.DrainDeadline,
	})
}
