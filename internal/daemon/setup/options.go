// SPDX-License-Identifier: Apache-2.0

// Package setup turns a configuration into what every command needs: the options of the backend, the backend itself,
// and the settings of the node. A start, a plan, a preflight and a cleanup share it, so that each sees what the others
// do.
package setup

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/host/sysctl"
	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
)

// Options are the flags of a command, and the configuration that results from them and the files that they name.
type Options struct {
	*config.Config
	Flags *config.Flags
	// Version is the version of the program.
	Version string
	// Sandboxed keeps everything in private namespaces.
	Sandboxed bool
	// Warnings are about what is unusual in the configuration.
	Warnings []config.Warning
	// Dry, if set, keeps this process from changing anything on the node, and receives the
	// kernel settings that it would change.
	Dry func(sysctl.Change)
}

// Load reads flags and file, and rejects what cannot work before anything is touched.
func (o *Options) Load() (err error) {
	if o.Config, o.Warnings, err = o.Flags.Load(); err != nil {
		return err
	}
	return o.Check()
}

// Check rejects what this process cannot do.
func (o *Options) Check() error {
	switch {
	case o.Sandboxed && ModeNamed(o.KubeProxy.Mode).NeedsHostRoot && os.Geteuid() != 0:
		return UsageError{Err: fmt.Errorf(`--proxy-mode %q: needs root in a sandbox; use nftables`, o.KubeProxy.Mode)}
	case o.Sandboxed && o.Sluice.IPTables.Variant == "legacy" && os.Geteuid() != 0:
		// Only the host's root may read /proc/net/ip_tables_names.
		return UsageError{Err: errors.New("iptables.variant: legacy needs root in a sandbox; use nft")}
	}
	if _, err := o.NodeName(); err != nil {
		return UsageError{Err: err}
	}
	return nil
}

// UsageError is an error in the flags or settings, which the user can correct.
type UsageError = inspect.UsageError

// Warn logs what is unusual in the configuration.
func Warn(log *zap.Logger, warnings []config.Warning) {
	for _, w := range warnings {
		log.Warn("configuration warning", zap.Stringer("at", w.Position), zap.String("problem", w.Message))
	}
}

// reach describes where node ports answer if nftables mode is chosen.
func (o *Options) reach() string {
	where := "all addresses"
	if listed := o.KubeProxy.NodePortAddresses; len(listed) > 0 {
		where = strings.Join(slices.DeleteFunc(slices.Clone(listed), config.NamesLoopback), " ")
	}
	switch forwards := o.ForwardsLocalhost() != (service.PerFamily[bool]{}); {
	case forwards && where == "":
		return "node ports answer on localhost only,"
	case forwards:
		return "node ports answer on " + where + ", localhost included,"
	case where == "":
		return "node ports answer on no address" // localhost alone is listed, and iptables.localhostNodePorts is off
	default:
		return "node ports answer on " + where + " but not on localhost"
	}
}

// Objects returns what API objects may request with a backend.
func (o *Options) Objects(b *Backend, warn func(service.Warning)) source.Options {
	policy := b.Mode.Policy
	policy.NoBalancing = b.impossibleBalancing()
	policy.Addresses, policy.DeniedPorts, policy.Schedulers = o.Addresses(), o.DeniedPorts(), o.Sluice.IPVS.ServiceSchedulers
	policy.Drain = o.Sluice.Balancing.DrainDeadline.Duration
	if !b.Mode.Forwards { // such a process need not observe what it forwards
		policy.Unobserved = func(namespace string) bool { return !o.Sluice.Balancing.ObserveConnections.In(namespace) }
	}
	return source.Options{
		Warn:                     warn,
		IgnoreExternalIPs:        !o.GateEnabled(config.GateAllowServiceExternalIPs),
		ExternalIPsInServiceCIDR: o.Sluice.Addresses.ExternalIPsInServiceCIDR,
		Policy:                   policy,
	}
}

// impossibleBalancing returns the algorithms that a node does not support, with the reason.
func (b *Backend) impossibleBalancing() map[service.Balancing]string {
	if !b.NoHashing {
		return b.Mode.Policy.NoBalancing
	}
	impossible := map[service.Balancing]string{}
	for by := range service.Balancing(len(service.Balancings())) {
		if by.Hashes() {
			impossible[by] = "needs the kernel option CONFIG_NFT_HASH, which this node lacks"
		}
	}
	return impossible
}

// Addresses returns which addresses are denied to Services.
func (o *Options) Addresses() service.AddressPolicy {
	return service.AddressPolicy{Denied: o.DeniedAddresses()}
}
