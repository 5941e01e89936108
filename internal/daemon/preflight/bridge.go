package preflight

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/host/bridge"
	"github.com/sluice-proxy/sluice/service"
)

// bridges warns of bridges with pods that reach each other without the rules. Mode userspace
// translates nothing, so the answers need no rules.
func (p *preflight) bridges() {
	const check = "bridges"
	if p.backend.Mode == config.ModeUserspace {
		return
	}
	found, err := bridge.Find()
	if err != nil {
		p.add(check, Warn, "", "%v", err)
		return
	}
	found = slices.DeleteFunc(found, func(b bridge.Bridge) bool { return !p.hasPods(b) })
	for _, b := range found {
		if len(b.Unruled) == 0 {
			p.add(check, OK, "", "%s takes packets between pods through the rules", b.Name)
			continue
		}
		var families, names []string
		for _, family := range b.Unruled {
			families = append(families, family.String())
			names = append(names, bridge.Setting(family))
		}
		p.add(check, Warn, "load module br_netfilter, and set "+strings.Join(names, " and ")+" to 1",
			"%s takes packets between its pods past the rules (%s): a pod that gets an endpoint on this bridge from a Service "+
				"does not understand the answer", b.Name, strings.Join(families, ", "))
	}
	if len(found) == 0 {
		p.add(check, OK, "", "none with pods")
	}
}

// hasPods reports whether the containers on a bridge can be pods of the cluster, as far as the
// configuration says where these are.
func (p *preflight) hasPods(b bridge.Bridge) bool {
	settings, err := p.options.NodeSettings(p.backend.Mode)
	if err != nil {
		return true
	}
	known := slices.DeleteFunc(settings.ClusterCIDRs[:], func(r netip.Prefix) bool { return !r.IsValid() })
	if len(known) == 0 {
		return true
	}
	return slices.ContainsFunc(known, func(pods netip.Prefix) bool {
		return slices.ContainsFunc(b.Ranges, func(r netip.Prefix) bool {
			return service.FamilyOf(r.Addr()) == service.FamilyOf(pods.Addr()) && pods.Overlaps(r)
		})
	})
}
