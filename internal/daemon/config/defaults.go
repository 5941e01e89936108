package config

import (
	"net"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kube-proxy/config/v1alpha1"
	netutils "k8s.io/utils/net"
	"k8s.io/utils/ptr"
)

// The proxy modes of kube-proxy. ModeBest is its default, and one thing that is
// different here: nftables where the kernel can, iptables elsewhere.
const (
	ModeBest     v1alpha1.ProxyMode = ""
	ModeIPTables v1alpha1.ProxyMode = "iptables"
	ModeIPVS     v1alpha1.ProxyMode = "ipvs"
	ModeNFTables v1alpha1.ProxyMode = "nftables"
)

// How packets from local pods are recognised.
const (
	localClusterCIDR         v1alpha1.LocalMode = "ClusterCIDR"
	localNodeCIDR            v1alpha1.LocalMode = "NodeCIDR"
	localBridgeInterface     v1alpha1.LocalMode = "BridgeInterface"
	localInterfaceNamePrefix v1alpha1.LocalMode = "InterfaceNamePrefix"
)

// nodePortPrimary stands for the node's own addresses in nodePortAddresses.
const nodePortPrimary = "primary"

// Default ports of the health and metrics servers.
const (
	healthzPort int32 = 10256
	metricsPort int32 = 10249
)

// syncDefault is the syncPeriod of all modes.
const syncDefault = 30 * time.Second

// minSyncDefault is the minSyncPeriod of modes iptables and nftables.
const minSyncDefault = time.Second

// setDefaults fills in what a file leaves out. Zero means "the default" in all of
// these fields, so that, for example, no file can ask for a minSyncPeriod of 0.
func setDefaults(c *v1alpha1.KubeProxyConfiguration) {
	c.APIVersion, c.Kind = v1alpha1.SchemeGroupVersion.String(), kubeProxyKind
	setServerDefaults(c)
	setClientDefaults(&c.ClientConnection)
	setConntrackDefaults(&c.Conntrack)
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
	if c.BindAddress == "" {
		c.BindAddress = "0.0.0.0"
	}
	healthz, metrics := "0.0.0.0", "127.0.0.1"
	if netutils.ParseIPSloppy(c.BindAddress).To4() == nil {
		healthz, metrics = "::", "::1"
	}
	if c.HealthzBindAddress == "" {
		c.HealthzBindAddress = healthz
	}
	if c.MetricsBindAddress == "" {
		c.MetricsBindAddress = metrics
	}
	c.HealthzBindAddress = withPort(c.HealthzBindAddress, healthzPort)
	c.MetricsBindAddress = withPort(c.MetricsBindAddress, metricsPort)
}

func setClientDefaults(c *clientConnection) {
	if c.ContentType == "" {
		c.ContentType = "application/vnd.kubernetes.protobuf"
	}
	if c.QPS == 0 {
		c.QPS = 5
	}
	if c.Burst == 0 {
		c.Burst = 10
	}
}

func setConntrackDefaults(c *v1alpha1.KubeProxyConntrackConfiguration) {
	setPointer(&c.MaxPerCore, 32*1024)
	setPointer(&c.Min, 128*1024)
	setPointer(&c.TCPEstablishedTimeout, metav1.Duration{Duration: 24 * time.Hour})
	setPointer(&c.TCPCloseWaitTimeout, metav1.Duration{Duration: time.Hour})
}

// setModeDefaults fills in what depends on other settings, flags included.
func setModeDefaults(c *v1alpha1.KubeProxyConfiguration) {
	if c.DetectLocalMode == "" {
		c.DetectLocalMode = localClusterCIDR
	}
	if c.Mode == ModeNFTables && len(c.NodePortAddresses) == 0 {
		c.NodePortAddresses = []string{nodePortPrimary}
	}
}

// withPort adds a port to an address that has none; what is no address stays for
// the checks to find.
func withPort(address string, port int32) string {
	if netutils.ParseIPSloppy(address) == nil {
		return address
	}
	return net.JoinHostPort(address, strconv.Itoa(int(port)))
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
