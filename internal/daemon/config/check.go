package config

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-proxy/config/v1alpha1"
)

// previousMinor is the only value that showHiddenMetricsForVersion may have.
const previousMinor = "1.35"

// check finds every mistake in a configuration that has its defaults; the
// warnings are about what is odd and accepted.
func (c *Config) check() (found findings, warnings []finding) {
	k := &c.KubeProxy
	warnings = checkGates(k.FeatureGates, &found)
	checkMode(k, &found)
	checkPeriods(c, &found)
	checkConntrack(&k.Conntrack, &found)
	checkAddresses(c, &found)
	checkLocal(k, &found)
	checkLogging(k, &found)
	if *k.OOMScoreAdj < -1000 || *k.OOMScoreAdj > 1000 {
		found.wrong("oomScoreAdj", *k.OOMScoreAdj, "-1000 to 1000")
	}
	if k.ClientConnection.Burst < 0 {
		found.wrong("clientConnection.burst", k.ClientConnection.Burst, "0 or more")
	}
	if v := k.ShowHiddenMetricsForVersion; v != "" && v != previousMinor {
		found.wrong("showHiddenMetricsForVersion", v, "%s, the release before this one, or nothing", previousMinor)
	}
	if k.HostnameOverride != "" && strings.TrimSpace(k.HostnameOverride) == "" {
		found.wrong("hostnameOverride", k.HostnameOverride, "a name, or nothing for that of the host")
	}
	c.checkSluice(&found)
	return found, warnings
}

// checkMode checks the mode, and the settings of the mode.
func checkMode(k *v1alpha1.KubeProxyConfiguration, found *findings) {
	switch k.Mode {
	case ModeBest, ModeIPTables:
	case ModeIPVS:
		for _, d := range []struct {
			field string
			value metav1.Duration
		}{
			{"ipvs.tcpTimeout", k.IPVS.TCPTimeout},
			{"ipvs.tcpFinTimeout", k.IPVS.TCPFinTimeout},
			{"ipvs.udpTimeout", k.IPVS.UDPTimeout},
		} {
			notNegative(d.field, d.value, found)
		}
		checkRanges("ipvs.excludeCIDRs", k.IPVS.ExcludeCIDRs, found)
		checkScheduler(k.IPVS.Scheduler, found)
	case ModeNFTables:
		checkBit("nftables.masqueradeBit", *k.NFTables.MasqueradeBit, found)
	default:
		found.wrong("mode", string(k.Mode), "nftables, iptables or ipvs, or nothing for nftables where the kernel can, else iptables")
	}
	checkBit("iptables.masqueradeBit", *k.IPTables.MasqueradeBit, found)
}

func checkBit(field string, bit int32, found *findings) {
	if bit < 0 || bit > 31 {
		found.wrong(field, bit, "0 to 31")
	}
}

// checkPeriods checks the periods of the mode; nobody uses the others.
func checkPeriods(c *Config, found *findings) {
	p := c.periods()
	if p.sync.Duration <= 0 {
		found.wrong(p.field+".syncPeriod", p.sync.Duration, "more than 0")
	}
	switch {
	case p.minSync.Duration < 0:
		found.wrong(p.field+".minSyncPeriod", p.minSync.Duration, "0 or more")
	case p.minSync.Duration > p.sync.Duration:
		found.wrong(p.field+".minSyncPeriod", p.minSync.Duration, "at most the syncPeriod, which is %v", p.sync.Duration)
	}
	if d := c.KubeProxy.ConfigSyncPeriod.Duration; d <= 0 {
		found.wrong("configSyncPeriod", d, "more than 0")
	}
}

func checkConntrack(k *v1alpha1.KubeProxyConntrackConfiguration, found *findings) {
	if *k.MaxPerCore < 0 {
		found.wrong("conntrack.maxPerCore", *k.MaxPerCore, "0 or more")
	}
	if *k.Min < 0 {
		found.wrong("conntrack.min", *k.Min, "0 or more")
	}
	notNegative("conntrack.tcpEstablishedTimeout", *k.TCPEstablishedTimeout, found)
	notNegative("conntrack.tcpCloseWaitTimeout", *k.TCPCloseWaitTimeout, found)
	notNegative("conntrack.udpTimeout", k.UDPTimeout, found)
	notNegative("conntrack.udpStreamTimeout", k.UDPStreamTimeout, found)
}

func notNegative(field string, d metav1.Duration, found *findings) {
	if d.Duration < 0 {
		found.wrong(field, d.Duration, "0 or more")
	}
}
