// SPDX-License-Identifier: Apache-2.0

// Package config reads the command line and the configuration file of the proxy. The commands and package daemon call
// it, and build everything else from the result.
//
//	flags ──┐
//	        ├─► Load ─► Config ─► NodeSettings, Pace, Log …   what the proxy is made of
//	file ───┘    ▲        │
//	  │          │        └─► WriteFile                       the effective configuration as a file
//	  └─► Watch ─┘
//	        └─► Update, with Compare(old, new)                what changed
//
// A file holds up to two YAML documents. The first is kube-proxy's own KubeProxyConfiguration, unchanged. The second,
// SluiceConfiguration, holds what kube-proxy has no name for. kube-proxy v1.37 reads only the first document, so one
// file serves both programs, and a rollback to kube-proxy stays possible.
//
// Names, defaults and rules are those of kube-proxy v1.37 on Linux; docs/configuration.md
// lists the deliberate differences. All values are checked together: an InvalidError
// reports every error with file and line or flag, field, value and what is allowed.
package config

import (
	"net"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	componentbase "k8s.io/component-base/config/v1alpha1"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kube-proxy/config/v1alpha1"
	netutils "k8s.io/utils/net"
	"k8s.io/utils/ptr"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/proxy"
)

// kubeProxyKind is the kind of kube-proxy's document.
const kubeProxyKind = "KubeProxyConfiguration"

// Mode names a kernel backend, as kube-proxy's mode does.
type Mode = v1alpha1.ProxyMode

// The modes. ModeBest is the default, and differs from kube-proxy: it means nftables if
// the kernel supports it, otherwise iptables.
const (
	ModeBest     Mode = ""
	ModeIPTables Mode = "iptables"
	ModeIPVS     Mode = "ipvs"
	ModeNFTables Mode = "nftables"
	// ModeUserspace is Sluice's own: kube-proxy has had none since v1.26.
	ModeUserspace Mode = "userspace"
)

const (
	// Words in nodePortAddresses: the node's own addresses, the loopback addresses, all addresses.
	nodePortPrimary, nodePortLocalhost, nodePortAll = "primary", "localhost", "all"
	// syncDefault is the default syncPeriod of all modes.
	syncDefault = 30 * time.Second
	// minSyncDefault is the default minSyncPeriod of modes iptables and nftables.
	minSyncDefault = time.Second
	// The default ports of the health and metrics servers.
	healthzPort int32 = 10256
	metricsPort int32 = 10249
)

// Config is the effective configuration: defaults, file and flags combined and checked.
// It does not change after Load.
type Config struct {
	Control
	// KubeProxy has every field set to its value or its default; see MinSyncPeriod
	// for the one default that does not count.
	KubeProxy v1alpha1.KubeProxyConfiguration
	Sluice    SluiceConfiguration

	// KubeProxyFile is the file with kube-proxy's document; empty without one.
	KubeProxyFile string
	// NamesServers is set if the configuration names an address of the health or metrics server.
	NamesServers bool

	// minSyncNamed is set if the configuration names the minSyncPeriod of the mode.
	minSyncNamed bool
	// flagged are the fields that a flag sets although there is a file.
	flagged map[string]bool
}

// Control holds the flags that concern the process and are in no file.
type Control struct {
	// Files are those of --config.
	Files []string
	// WriteTo is --write-config-to: the file to write the configuration to,
	// instead of doing anything else.
	WriteTo string
	// Cleanup is --cleanup, and InitOnly --init-only.
	Cleanup, InitOnly bool
	// Force is --force: clean up while a proxy is running.
	Force bool
	// Master is --master, the API server's URL; it overrides the kubeconfig.
	Master string
	// Version is --version.
	Version Version
}

// periods are the two periods of a mode, and the section that holds them.
type periods struct {
	field         string
	sync, minSync *metav1.Duration
}

// periodsOf returns the periods of the configured mode. As in kube-proxy, an unset mode
// has those of iptables.
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

// SyncPeriod returns the syncPeriod of the mode. Health tolerates an unwritten change
// for twice as long.
func (c *Config) SyncPeriod() time.Duration { return c.periods().sync.Duration }

// MinSyncPeriod returns the minSyncPeriod of the mode. named is false if it is just
// kube-proxy's default, which Pace does not follow.
func (c *Config) MinSyncPeriod() (period time.Duration, named bool) {
	return c.periods().minSync.Duration, c.minSyncNamed
}

const (
	// patienceMax bounds the waits that a shorter syncPeriod shortens.
	patienceMax = 30 * time.Second
	// backoffMin is the first pause after a failed write, which doubles with each failure.
	backoffMin = 100 * time.Millisecond
)

// Patience is how long the first rules wait for the Node, and the longest pause after failed writes.
func (c *Config) Patience() time.Duration { return min(patienceMax, c.SyncPeriod()) }

// Pace returns the numbers for an aggregator's pacer, given those that a backend
// prefers. A minSyncPeriod that is named replaces the backend's, and raises the deadline.
func (c *Config) Pace(backend aggregator.Pace) aggregator.Pace {
	if spacing, named := c.MinSyncPeriod(); named {
		backend.MinInterval, backend.MaxWriteShare = spacing, 0
	}
	backend.MaxDelay = max(time.Second, backend.MinInterval)
	if period := c.SyncPeriod(); period != syncDefault || backend.Audit == 0 {
		backend.Audit = period
	}
	backend.BackoffMax = c.Patience()
	backend.BackoffMin = min(backoffMin, backend.BackoffMax)
	return backend
}

// setDefaults fills in what a file omits. Zero means "the default" in all of these
// fields, so that, for example, no file can ask for a minSyncPeriod of 0.
func setDefaults(c *v1alpha1.KubeProxyConfiguration) {
	c.APIVersion, c.Kind = v1alpha1.SchemeGroupVersion.String(), kubeProxyKind
	setServerDefaults(c)
	setClientDefaults(&c.ClientConnection)
	setPointer(&c.Conntrack.MaxPerCore, 32*1024)
	setPointer(&c.Conntrack.Min, 128*1024)
	setPointer(&c.Conntrack.TCPEstablishedTimeout, metav1.Duration{Duration: 24 * time.Hour})
	setPointer(&c.Conntrack.TCPCloseWaitTimeout, metav1.Duration{Duration: time.Hour})
	for _, p := range []*metav1.Duration{&c.IPTables.SyncPeriod, &c.IPVS.SyncPeriod, &c.NFTables.SyncPeriod} {
		setDuration(p, syncDefault)
	}
	setDuration(&c.IPTables.MinSyncPeriod, minSyncDefault)
	setDuration(&c.NFTables.MinSyncPeriod, minSyncDefault)
	setDuration(&c.ConfigSyncPeriod, 15*time.Minute)
	setPointer(&c.IPTables.MasqueradeBit, 14)
	setPointer(&c.NFTables.MasqueradeBit, 14)
	setPointer(&c.IPTables.LocalhostNodePorts, true)
	setPointer(&c.OOMScoreAdj, -999)
	if c.FeatureGates == nil {
		c.FeatureGates = map[string]bool{}
	}
	logsapi.SetRecommendedLoggingConfiguration(&c.Logging)
}

func setServerDefaults(c *v1alpha1.KubeProxyConfiguration) {
	setText(&c.BindAddress, "0.0.0.0")
	healthz, metrics := "0.0.0.0", "127.0.0.1"
	if netutils.ParseIPSloppy(c.BindAddress).To4() == nil {
		healthz, metrics = "::", "::1"
	}
	setText(&c.HealthzBindAddress, healthz)
	setText(&c.MetricsBindAddress, metrics)
	c.HealthzBindAddress = withPort(c.HealthzBindAddress, healthzPort)
	c.MetricsBindAddress = withPort(c.MetricsBindAddress, metricsPort)
}

func setClientDefaults(c *componentbase.ClientConnectionConfiguration) {
	setText(&c.ContentType, "application/vnd.kubernetes.protobuf")
	if c.QPS == 0 {
		c.QPS = 5
	}
	if c.Burst == 0 {
		c.Burst = 10
	}
}

// setModeDefaults fills in what depends on other settings, flags included.
func setModeDefaults(c *v1alpha1.KubeProxyConfiguration) {
	if c.DetectLocalMode == "" {
		c.DetectLocalMode = v1alpha1.LocalMode(proxy.DetectClusterCIDR)
	}
	if c.Mode == ModeNFTables && len(c.NodePortAddresses) == 0 {
		c.NodePortAddresses = []string{nodePortPrimary}
	}
}

// withPort adds a port to an address that has none. It leaves anything that is not an
// address for the checks to find.
func withPort(address string, port int32) string {
	if netutils.ParseIPSloppy(address) == nil {
		return address
	}
	return net.JoinHostPort(address, strconv.Itoa(int(port)))
}

func setText(p *string, value string) {
	if *p == "" {
		*p = value
	}
}

func setDuration(p *metav1.Duration, value time.Duration) {
	if p.Duration == 0 {
		p.Duration = value
	}
}

func setPointer[T any](p **T, value T) {
	if *p == nil {
		*p = ptr.To(value)
	}
}
