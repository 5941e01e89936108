// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"testing"

	iptkernel "github.com/sluice-proxy/sluice/dataplane/iptables/kernel"
	iptrender "github.com/sluice-proxy/sluice/dataplane/iptables/render"
	ipvsrender "github.com/sluice-proxy/sluice/dataplane/ipvs/render"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/service"
)

// TestIPVSOwnership_HasScaffold: the ownership of IPVS mode contains each chain and hook that the renderer makes in
// iptables, in the same form.
func TestIPVSOwnership_HasScaffold(t *testing.T) {
	ownership := IPVSOwnership()
	hooks := map[string]string{}
	for _, h := range ownership.Hooks {
		o := h.Object()
		hooks[o.ID.Container+" "+o.ID.Name] = o.Body
	}
	for _, o := range ipvsrender.NewRenderer(service.IPv4, ipvsrender.Options{}).Node(&service.NodeFacts{}) {
		switch table := iptrender.Table(o.ID.Container); table {
		case iptrender.NAT, iptrender.Filter, iptrender.Mangle:
			if !ownership.Owns(table, o.ID.Name) {
				t.Errorf("chain %s of table %s is not in the ownership", o.ID.Name, table)
			}
			continue
		}
		if o.ID.Container == ipvsrender.ContainerSet || o.ID.Container == ipvsrender.ContainerDevice {
			continue
		}
		name := o.ID.Container + " " + o.ID.Name
		if body, known := hooks[name]; !known || body != o.Body {
			t.Errorf("hook %q is %q in the ownership, want %q", name, body, o.Body)
		}
		delete(hooks, name)
	}
	for name := range hooks {
		t.Errorf("hook %q is in the ownership only", name)
	}
}

// TestIPVSOwnership_SharedChainsStay: chains that IPVS mode shares with iptables mode remain when either mode serves.
func TestIPVSOwnership_SharedChainsStay(t *testing.T) {
	for _, c := range []struct {
		mode  config.Mode
		chain string
		used  bool
		other bool
	}{
		{config.ModeNFTables, "KUBE-SERVICES", true, true},
		{config.ModeNFTables, "KUBE-NODE-PORT", true, true},
		{config.ModeNFTables, "KUBE-SVC-A", true, true},
		{config.ModeIPTables, "KUBE-SERVICES", false, false},
		{config.ModeIPTables, "KUBE-NODE-PORT", true, true},
		{config.ModeIPTables, "KUBE-SVC-A", false, false},
		{config.ModeIPVS, "KUBE-SERVICES", false, true},
		{config.ModeIPVS, "KUBE-NODE-PORT", false, true},
		{config.ModeIPVS, "KUBE-SVC-A", true, true},
		{config.ModeIPVS, "KUBE-IPTABLES-HINT", false, false},
	} {
		of := (&Sweep{Keep: keep[c.mode], Variant: iptkernel.NFT}).owned
		if got := of(iptkernel.NFT).Owns(iptrender.NAT, c.chain); got != c.used {
			t.Errorf("%s: %s goes from the variant in use: %v", c.mode, c.chain, got)
		}
		if got := of(iptkernel.Legacy).Owns(iptrender.NAT, c.chain); got != c.other {
			t.Errorf("%s: %s goes from the other variant: %v", c.mode, c.chain, got)
		}
	}
}
