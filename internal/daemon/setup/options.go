// Package setup turns a configuration into what every command needs: the options of the backend, the
// backend itself, and the settings of the node. A start, a plan, a preflight and a clean-up share it,
// so that each sees what the others do.
package setup

import (
	"errors"
	"os"
	"slices"
	"strings"

	"go.uber.org/zap"

	ipvswire "github.com/sluice-proxy/sluice/dataplane/ipvs/wire"
	"github.com/sluice-proxy/sluice/dataplane/userspace"
	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/host/sysctl"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/source/reduce"
)

// Options are the flags of a command, and what they and the file that they name amount to.
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
	case o.Sandboxed && o.KubeProxy.Mode == config.ModeIPVS && os.Geteuid() != 0:
		// Only the host's root may change virtual servers (GENL_ADMIN_PERM).
		return UsageError{Err: errors.New(`--proxy-mode "ipvs": needs root in a sandbox; use nftables`)}
	case o.Sandboxed && o.Sluice.IPTables.Variant == "legacy" && os.Geteuid() != 0:
		// Only the host's root may read /proc/net/ip_tables_names.
		return UsageError{Err: errors.New("--sluice-iptables-variant legacy: needs root in a sandbox; use nft")}
	}
	if _, err := o.NodeName(); err != nil {
		return UsageError{Err: err}
	}
	return nil
}

// UsageError is an error in the flags or settings, which the user can correct.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the error.
func (e UsageError) Unwrap() error { return e.Err }

// Warn logs what is unusual in the configuration.
func Warn(log *zap.Logger, warnings []config.Warning) {
	for _, w := range warnings {
		log.Warn("configuration warning", zap.Stringer("at", w.Position), zap.String("problem", w.Message))
	}
}

// reach says where node ports answer if nftables mode is chosen.
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

// Objects says what API objects may ask for with a backend.
func (o *Options) Objects(b *Backend, warn func(service.Warning)) source.Options {
	return source.Options{
		Warn:                     warn,
		IgnoreExternalIPs:        !o.GateEnabled(config.GateAllowServiceExternalIPs),
		ExternalIPsInServiceCIDR: o.Sluice.Addresses.ExternalIPsInServiceCIDR,
		Policy: reduce.Policy{
			Addresses: o.Addresses(), DeniedPorts: o.DeniedPorts(), Schedulers: o.Sluice.IPVS.ServiceSchedulers, NoBalancing: b.impossibleBalancing(),
			Unobserved: b.unobserved(o), UnobservedLeast: b.Mode == config.ModeNFTables,
			Drain:       o.Sluice.Balancing.DrainDeadline.Duration,
			NoEndpoints: impossibleWithoutEndpoints(b.Mode), NoDenyRanges: map[config.Mode]string{
				config.ModeIPVS: "not possible in IPVS mode",
			}[b.Mode],
		},
	}
}

// unobserved returns a function that reports whether a namespace is not observed. Userspace mode need not observe any.
func (b *Backend) unobserved(o *Options) func(namespace string) bool {
	if b.Mode == config.ModeUserspace {
		return nil
	}
	return func(namespace string) bool { return !o.Sluice.Balancing.ObserveConnections.In(namespace) }
}

// impossibleBalancing returns the algorithms that a node cannot do, with the reason.
func (b *Backend) impossibleBalancing() map[service.Balancing]string {
	impossible := map[service.Balancing]string{}
	for by := range service.Balancing(len(service.Balancings())) {
		switch {
		case b.Mode == config.ModeIPTables && by != service.Random:
			impossible[by] = "is not possible in iptables mode"
		case b.NoHashing && by.Hashes():
			impossible[by] = "needs the kernel option CONFIG_NFT_HASH, which this node lacks"
		}
	}
	return impossible
}

// impossibleWithoutEndpoints returns what a mode cannot do with connections to a Service without endpoints.
func impossibleWithoutEndpoints(mode config.Mode) map[service.NoEndpoints]string {
	switch mode {
	case config.ModeIPVS:
		const why = "is not possible in IPVS mode, in which the kernel decides"
		return map[service.NoEndpoints]string{service.NoEndpointsReject: why, service.NoEndpointsDrop: why, service.NoEndpointsPass: why}
	case config.ModeUserspace:
		const why = "is not possible in userspace mode, in which the addresses of Services are addresses of the node"
		return map[service.NoEndpoints]string{service.NoEndpointsPass: why}
	}
	return nil
}

// Addresses says which addresses are denied to Services.
func (o *Options) Addresses() service.AddressPolicy {
	return service.AddressPolicy{Denied: o.DeniedAddresses()}
}

func (o *Options) nftables(log *zap.Logger) backend.NFTablesOptions {
	return backend.NFTablesOptions{
		MasqueradeBit: o.MasqueradeBit(), CountEndpoints: o.Sluice.Traffic.Endpoints, HashSeed: uint32(o.Sluice.Balancing.Seed), LocalPorts: o.ForwardsLocalhost(),
		DryRun: o.Dry != nil, Log: log,
	}
}

func (o *Options) iptables(files sysctl.Files, log *zap.Logger) (backend.IPTablesOptions, error) {
	settings, err := o.NodeSettings(config.ModeIPTables)
	return backend.IPTablesOptions{
		Variant: o.Sluice.IPTables.Variant, MasqueradeBit: o.MasqueradeBit(), LocalhostNodePorts: settings.LocalhostNodePorts,
		PrivateLock: o.Sandboxed, Sysctls: files, Log: log,
	}, err
}

func (o *Options) ipvs(files sysctl.Files, log *zap.Logger) backend.IPVSOptions {
	c := &o.KubeProxy.IPVS
	return backend.IPVSOptions{
		Variant: o.Sluice.IPTables.Variant, MasqueradeBit: o.MasqueradeBit(), Scheduler: o.Scheduler(),
		Excluded: o.ExcludedCIDRs(), DrainDeadline: o.Sluice.IPVS.DrainDeadline.Duration, StrictARP: c.StrictARP,
		Timeouts:    ipvswire.Timeouts{TCP: c.TCPTimeout.Duration, TCPFin: c.TCPFinTimeout.Duration, UDP: c.UDPTimeout.Duration},
		PrivateLock: o.Sandboxed, Sysctls: files, DryRun: o.Dry != nil, Log: log,
	}
}

func (o *Options) userspace(files sysctl.Files, log *zap.Logger) backend.UserspaceOptions {
	u := &o.Sluice.Userspace
	return backend.UserspaceOptions{
		Settings: userspace.Settings{
			LeastConnections: u.Balancing == config.BalanceLeastConnections, Seed: uint32(o.Sluice.Balancing.Seed), HealthPort: o.HealthPort(),
		},
		ExposeHostPorts: u.ExposeHostPorts, AnswerARP: u.AnswerARP, Sysctls: files, Log: log,
	}
}
