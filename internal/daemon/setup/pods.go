// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"net/netip"
	"slices"

	"github.com/sluice-proxy/sluice/internal/host/bridge"
	"github.com/sluice-proxy/sluice/service"
)

// HasPods returns a function that reports whether the containers on a bridge can be pods of the cluster: if the
// configuration contains ranges of pods, those of the bridge must overlap them.
func (o *Options) HasPods(mode Mode) func(bridge.Bridge) bool {
	settings, err := o.NodeSettings(mode.Name)
	known := slices.DeleteFunc(settings.ClusterCIDRs[:], func(r netip.Prefix) bool { return !r.IsValid() })
	return func(b bridge.Bridge) bool {
		return err != nil || len(known) == 0 || slices.ContainsFunc(known, func(pods netip.Prefix) bool {
			return slices.ContainsFunc(b.Ranges, func(r netip.Prefix) bool {
				return service.FamilyOf(r.Addr()) == service.FamilyOf(pods.Addr()) && pods.Overlaps(r)
			})
		})
	}
}
