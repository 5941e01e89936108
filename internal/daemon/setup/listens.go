// SPDX-License-Identifier: Apache-2.0

package setup

import "net/netip"

// Listen is an address on which the proxy listens on a node of a cluster, named by its field of the configuration.
type Listen struct {
	Field, Address string
	// Hard means that the proxy does not start without it.
	Hard bool
}

// Listens returns all addresses on which the proxy serves HTTP.
func (o *Options) Listens() (all []Listen) {
	hard, health := o.KubeProxy.BindAddressHardFail, o.KubeProxy.HealthzBindAddress
	if health != "" {
		all = append(all, Listen{"healthzBindAddress", health, hard})
	}
	if probe := o.Sluice.Healthz.ProbeAddress; probe != "" && !Covers(health, probe) {
		all = append(all, Listen{"healthz.probeAddress", probe, hard})
	}
	all = append(all, Listen{"metricsBindAddress", o.KubeProxy.MetricsBindAddress, hard})
	if address := o.Sluice.Inspection.BindAddress; address != "" {
		all = append(all, Listen{"inspection.bindAddress", address, false})
	}
	return all
}

// Covers reports whether a server that listens at one address answers at the other one, too.
func Covers(address, other string) bool {
	a, errA := netip.ParseAddrPort(address)
	b, errB := netip.ParseAddrPort(other)
	return errA == nil && errB == nil && a.Port() == b.Port() && (a.Addr().IsUnspecified() || a.Addr() == b.Addr())
}
