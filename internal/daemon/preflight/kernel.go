// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	iptkernel "github.com/sluice-proxy/sluice/dataplane/iptables/kernel"
	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/daemon/feed"
	"github.com/sluice-proxy/sluice/internal/daemon/offload"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/internal/host/hostaddress"
	"github.com/sluice-proxy/sluice/service"
)

// features reports the features that each mode would find. A missing one is no failure here: what the configured mode
// lacks is reported with the mode.
func (p *preflight) features(ctx context.Context) {
	p.add("kernel", OK, "", "Linux %s", setup.KernelRelease())
	if !p.privileged {
		return
	}
	for _, m := range setup.Modes() {
		for _, f := range m.Features(ctx, p.options) {
			result := Info
			if f.OK {
				result = OK
			}
			p.add(f.Name, result, "", "%s", f.Text)
		}
	}
	p.hashing()
	p.families(ctx)
	p.offload()
	p.resets()
	p.variant(ctx)
}

// nodeMax bounds the request for the Node.
const nodeMax = 5 * time.Second

// families reports each family that the mode does not serve. A start ends with an error if the Node has an InternalIP of
// it. Without an answer of the API server, the addresses of the host count.
func (p *preflight) families(ctx context.Context) {
	served := p.backend.Families()
	if len(served) == 0 || len(served) == len(service.Families) {
		return // all is well, or the check of the mode failed
	}
	ctx, cancel := context.WithTimeout(ctx, nodeMax)
	defer cancel()
	node, err := p.theNode(ctx)
	if err == nil {
		if err := p.backend.Unserved(node); err != nil {
			p.add("family", Fail, "correct the cause, or choose another mode", "%s; a start ends with an error", setup.OneLine(errors.Unwrap(err)))
		}
		return
	}
	p.familiesOfTheHost(served, err)
}

// theNode asks the API server for the Node.
func (p *preflight) theNode(ctx context.Context) (*service.NodeObject, error) {
	if !p.reachable {
		return nil, errors.New("no API server is configured")
	}
	name, err := p.options.NodeName()
	if err != nil {
		return nil, err
	}
	return feed.Node(ctx, p.options, name)
}

// familiesOfTheHost reports each family of the host's addresses that the mode does not serve.
func (p *preflight) familiesOfTheHost(served []service.Family, unknown error) {
	addrs, err := hostaddress.List()
	if err != nil {
		return
	}
	for _, family := range service.Families {
		on := slices.IndexFunc(addrs, func(a netip.Addr) bool { return service.FamilyOf(a) == family && a.IsGlobalUnicast() })
		if on < 0 || slices.Contains(served, family) {
			continue
		}
		// Many hosts of a cluster without IPv6 have IPv6 addresses.
		result := Fail
		if family == service.IPv6 {
			result = Warn
		}
		p.add("family "+family.String(), result, "see the checks of the modes for the reason, or choose another mode",
			"mode %s cannot serve %s, and the host has the address %s; a start ends with an error if the Node has an %s address (unknown: %s)",
			p.backend.Mode.Name, family, addrs[on], family, setup.OneLine(unknown))
	}
}

// hashing warns if Services cannot choose endpoints by a hash.
func (p *preflight) hashing() {
	for _, family := range p.backend.Families() {
		if p.backend.Mode.LacksHashing(family) {
			p.add("hashing "+family.String(), Warn, "use a kernel with CONFIG_NFT_HASH", "Services with sluice.dev/balancing sourceHash or connectionHash choose endpoints at random")
		}
	}
}

// offload reports whether the kernel can offload connections, and warns if the configured offload has no effect.
func (p *preflight) offload() {
	asked := p.options.Sluice.NFTables.Offload
	err := offload.Check()
	switch {
	case err == nil && asked != config.OffloadOff && !p.backend.Mode.Offloads:
		p.add("offload", Warn, "use nftables mode, or set nftables.offload to off", "nftables.offload has no effect in mode %s", p.backend.Mode.Name)
	case err == nil:
		p.add("offload", OK, "", "the kernel can offload connections; nftables.offload is %s", asked)
	case asked != config.OffloadOff:
		p.add("offload", Warn, "use a kernel that can, or set nftables.offload to off", "nftables.offload has no effect: %s", setup.OneLine(err))
	default:
		p.add("offload", Info, "", "%s", setup.OneLine(err))
	}
}

// resets warns if a drain deadline ends connections without a reset, since the kernel drops packets of connections that
// it does not know.
func (p *preflight) resets() {
	loose, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_tcp_loose")
	if err == nil && strings.TrimSpace(string(loose)) == "0" && !p.backend.Mode.Forwards && !p.backend.Mode.DrainsItself && p.options.Sluice.Balancing.DrainDeadline.Duration > 0 {
		p.add("drain deadline", Warn, "set net.netfilter.nf_conntrack_tcp_loose to 1",
			"nf_conntrack_tcp_loose is 0: clients get no reset when balancing.drainDeadline ends their connections")
	}
}

// variant reports which variant of iptables would be used, and why.
func (p *preflight) variant(ctx context.Context) {
	found, err := iptkernel.Detect(ctx, p.options.Sluice.IPTables.Variant, []service.Family{service.IPv4})
	switch {
	case err != nil && p.backend.Mode.WithoutIPTables:
		p.add("iptables variant", Info, "", "none can be used; %s mode needs none", p.backend.Mode.Name)
	case err != nil:
		p.add("iptables variant", Warn, "install iptables, or use the image that includes it", "%s", setup.OneLine(err))
	default:
		p.add("iptables variant", OK, "", "%s: %s", found.Variant, found.Reason)
	}
}

// leftovers reports which rules of a proxy are on the node, and what a start would do with them.
func (p *preflight) leftovers(ctx context.Context) {
	if !p.privileged {
		return
	}
	found := false
	tell := func(kept bool, what string) {
		found = true
		fate := "removed once the new rules are applied"
		if kept {
			fate = "taken over"
		}
		p.add("rules", OK, "", "%s: %s", what, fate)
	}
	left, err := (&backend.Sweep{Dry: true, WithoutTables: true, Keep: p.backend.Mode.Keep, Families: service.Families[:]}).Run(ctx)
	if err != nil {
		p.add("rules", Warn, "", "%s", setup.OneLine(err))
	}
	for i := range left {
		if l := &left[i]; l.What != "" {
			tell(l.Kept, l.Of+" has "+l.What)
		}
	}
	for _, f := range backend.FindFormer(ctx) {
		p.marks(f)
		if f.ServicePorts == 0 {
			continue
		}
		what, own := f.String(), p.backend.Mode.Keep.IPTables
		if own && f.Variant != p.backend.Variant {
			found = true
			p.add("rules", Warn, "remove them with sluice cleanup", "%s: they remain, and still affect packets", what)
			continue
		}
		tell(own, what)
	}
	if !found {
		p.add("rules", OK, "", "no kube-proxy or Sluice rules found")
	}
}

// marks warns of rules that set the bit of the packet mark that requests source NAT.
func (p *preflight) marks(f iptkernel.Former) {
	bit := p.options.MasqueradeBit()
	if chains := f.Marking(bit); len(chains) > 0 {
		p.add("packet mark", Warn, "choose a bit that no other program sets (masqueradeBit of the mode)",
			"%s %s: rules in %s set bit %d (0x%x): the packets that they mark are masqueraded",
			f.Variant, f.Family, strings.Join(chains, ", "), bit, 1<<bit)
	}
}

// loadedModules lists the loaded modules of the kernel.
func loadedModules() []string {
	text, err := os.ReadFile("/proc/modules")
	if err != nil {
		return nil
	}
	var names []string
	for line := range strings.Lines(string(text)) {
		name, _, _ := strings.Cut(line, " ")
		names = append(names, name)
	}
	return names
}

// modules reports which modules the kernel has loaded for these checks, as it does at any start.
func (p *preflight) modules(before []string) {
	known := func(name string) bool { return slices.Contains(before, name) }
	if loaded := slices.DeleteFunc(loadedModules(), known); len(loaded) > 0 {
		p.add("kernel modules", OK, "", "the kernel loaded %s for these checks",
			strings.Join(loaded, ", "))
	}
}
