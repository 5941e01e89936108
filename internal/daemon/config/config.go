package config

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	componentbase "k8s.io/component-base/config/v1alpha1"
	"k8s.io/kube-proxy/config/v1alpha1"

	"github.com/sluice-proxy/sluice/aggregator"
)

// kubeProxyKind is the kind of kube-proxy's document.
const kubeProxyKind = "KubeProxyConfiguration"

type clientConnection = componentbase.ClientConnectionConfiguration

// Config is the effective configuration: defaults, file and flags put together
// and checked. It is not changed after Load.
type Config struct {
	Control
	// KubeProxy has every field set to its value or its default; see MinSyncPeriod
	// for the one default that does not count.
	KubeProxy v1alpha1.KubeProxyConfiguration
	Sluice    SluiceConfiguration

	// minSyncNamed says that the minSyncPeriod of the mode was asked for, and is
	// not just the default.
	minSyncNamed bool
}

// Control holds the flags that are about the process and in no file.
type Control struct {
	// File is --config: the configuration file, empty without one.
	File string
	// WriteTo is --write-config-to: the file to write the configuration to,
	// instead of doing anything else.
	WriteTo string
	// Cleanup is --cleanup, and InitOnly --init-only.
	Cleanup, InitOnly bool
	// Force is --force: clean up beside a proxy that runs.
	Force bool
	// Master is --master, the API server's URL; it overrules the kubeconfig.
	Master string
	// Version is --version.
	Version Version
}

// periods are the two periods of a mode, and the section that holds them.
type periods struct {
	field         string
	sync, minSync *metav1.Duration
}

// periodsOf gives the periods of the configured mode. An unset mode has those of
// iptables, as for kube-proxy.
func periodsOf(k *v1alpha1.KubeProxyConfiguration) periods {
	switch k.Mode {
	case ModeIPVS:
		return periods{"ipvs", &k.IPVS.SyncPeriod, &k.IPVS.MinSyncPeriod}
	case ModeNFTables:
		return periods{"nftables", &k.NFTables.SyncPeriod, &k.NFTables.MinSyncPeriod}
	default:
		return periods{"iptables", &k.IPTables.SyncPeriod, &k.IPTables.MinSyncPeriod}
	}
}

func (c *Config) periods() periods { return periodsOf(&c.KubeProxy) }

// SyncPeriod is the syncPeriod of the mode. Health allows an unwritten change to
// be twice as old.
func (c *Config) SyncPeriod() time.Duration { return c.periods().sync.Duration }

// MinSyncPeriod is the minSyncPeriod of the mode; named is false when it is just
// kube-proxy's default, which Pace does not follow.
func (c *Config) MinSyncPeriod() (period time.Duration, named bool) {
	return c.periods().minSync.Duration, c.minSyncNamed
}

// MasqueradeBit is the bit of the packet mark that asks for source NAT.
func (c *Config) MasqueradeBit() uint {
	if c.KubeProxy.Mode == ModeNFTables {
		return uint(*c.KubeProxy.NFTables.MasqueradeBit)
	}
	return uint(*c.KubeProxy.IPTables.MasqueradeBit)
}

// MasqueradeAll asks for source NAT of all ClusterIP traffic.
func (c *Config) MasqueradeAll() bool {
	if c.KubeProxy.Mode == ModeNFTables {
		return c.KubeProxy.NFTables.MasqueradeAll
	}
	return c.KubeProxy.IPTables.MasqueradeAll
}

// spacing gives the shortest pause between writes, and whether the configuration
// names one.
func (c *Config) spacing() (spacing time.Duration, named bool) {
	if s := c.Sluice.Pace.Spacing; s != nil {
		return s.Duration, true
	}
	if c.minSyncNamed {
		return c.periods().minSync.Duration, true
	}
	return 0, false
}

// Pace gives the numbers of an aggregator's pacer, from those that a backend
// prefers. Whoever names a spacing gets it: it replaces the backend's, and the
// default deadline makes way.
func (c *Config) Pace(backend aggregator.Pace) aggregator.Pace {
	own := &c.Sluice.Pace
	if spacing, named := c.spacing(); named {
		backend.Spacing, backend.WriteShare = spacing, 0
	}
	if own.WriteShare != nil {
		backend.WriteShare = *own.WriteShare
	}
	backend.Deadline = max(time.Second, backend.Spacing)
	if own.Deadline != nil {
		backend.Deadline = own.Deadline.Duration
	}
	if period := c.SyncPeriod(); period != syncDefault || backend.Audit == 0 {
		backend.Audit = period
	}
	if own.AuditInterval != nil {
		backend.Audit = own.AuditInterval.Duration
	}
	backend.BackoffMin, backend.BackoffMax = own.BackoffMin.Duration, own.BackoffMax.Duration
	return backend
}
