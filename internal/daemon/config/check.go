// SPDX-License-Identifier: Apache-2.0

package config

import (
	"math"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kube-proxy/config/v1alpha1"
	netutils "k8s.io/utils/net"

	"github.com/sluice-proxy/sluice/internal/document"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
)

// previousMinor is the only value that showHiddenMetricsForVersion may have.
const previousMinor = "1.36"

// schedulers are the kernel's IPVS schedulers by name (net/netfilter/ipvs, as of Linux 6.18). At startup, the proxy
// checks whether this kernel has the configured one.
var schedulers = []string{"dh", "fo", "lblc", "lblcr", "lc", "mh", "nq", "ovf", "rr", "sed", "sh", "twos", "wlc", "wrr"}

// check finds every error in a configuration that has its defaults. The warnings are
// about values that are unusual but accepted.
func (c *Config) check() (found findings, warnings []finding) {
	k := &c.KubeProxy
	warnings = append(checkGates(k.FeatureGates, &found), c.Sluice.checkObserved(&found)...)
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
		found.wrong("showHiddenMetricsForVersion", v, "%s (the previous release) or nothing", previousMinor)
	}
	if k.HostnameOverride != "" && strings.TrimSpace(k.HostnameOverride) == "" {
		found.wrong("hostnameOverride", k.HostnameOverride, "a name, or nothing for the host's name")
	}
	c.Sluice.check(&found)
	return found, warnings
}

// checkMode checks the mode, and the settings of the mode.
func checkMode(k *v1alpha1.KubeProxyConfiguration, found *findings) {
	switch k.Mode {
	case ModeBest, ModeIPTables, ModeUserspace:
	case ModeIPVS:
		if !effectiveGates(k.FeatureGates)[gateIPVS].Enabled {
			found.wrong("mode", string(k.Mode), "nftables, iptables or userspace, because the feature gate %s is off", gateIPVS)
		}
		found.notNegative("ipvs.tcpTimeout", k.IPVS.TCPTimeout.Duration)
		found.notNegative("ipvs.tcpFinTimeout", k.IPVS.TCPFinTimeout.Duration)
		found.notNegative("ipvs.udpTimeout", k.IPVS.UDPTimeout.Duration)
		for i, text := range k.IPVS.ExcludeCIDRs {
			checkRange(document.Index("ipvs.excludeCIDRs", i), text, found)
		}
		if name := k.IPVS.Scheduler; name != "" && !slices.Contains(schedulers, name) {
			found.wrong("ipvs.scheduler", name, "one of %s, or nothing for rr", strings.Join(schedulers, ", "))
		}
	case ModeNFTables:
		checkBit("nftables.masqueradeBit", *k.NFTables.MasqueradeBit, found)
	default:
		found.wrong("mode", string(k.Mode),
			"nftables, iptables, ipvs or userspace, or nothing for nftables if the kernel supports it, otherwise iptables")
	}
	checkBit("iptables.masqueradeBit", *k.IPTables.MasqueradeBit, found)
}

func checkBit(field string, bit int32, found *findings) {
	if bit < 0 || bit > 31 {
		found.wrong(field, bit, "0 to 31")
	}
}

// checkPeriods checks the periods of the mode; the others have no effect.
func checkPeriods(c *Config, found *findings) {
	p := c.periods()
	found.positive(p.field+".syncPeriod", p.sync.Duration)
	found.notNegative(p.field+".minSyncPeriod", p.minSync.Duration)
	if p.sync.Duration > 0 && p.minSync.Duration > p.sync.Duration {
		if c.minSyncNamed {
			found.wrong(p.field+".minSyncPeriod", p.minSync.Duration, "at most the syncPeriod, which is %v", p.sync.Duration)
		} else { // kube-proxy's default, which it would not accept either
			found.wrong(p.field+".syncPeriod", p.sync.Duration, "at least the minSyncPeriod, which is %v by default", p.minSync.Duration)
		}
	}
	found.positive("configSyncPeriod", c.KubeProxy.ConfigSyncPeriod.Duration)
}

func checkConntrack(k *v1alpha1.KubeProxyConntrackConfiguration, found *findings) {
	if *k.MaxPerCore < 0 {
		found.wrong("conntrack.maxPerCore", *k.MaxPerCore, "0 or more")
	}
	if *k.Min < 0 {
		found.wrong("conntrack.min", *k.Min, "0 or more")
	}
	found.notNegative("conntrack.tcpEstablishedTimeout", k.TCPEstablishedTimeout.Duration)
	found.notNegative("conntrack.tcpCloseWaitTimeout", k.TCPCloseWaitTimeout.Duration)
	found.notNegative("conntrack.udpTimeout", k.UDPTimeout.Duration)
	found.notNegative("conntrack.udpStreamTimeout", k.UDPStreamTimeout.Duration)
}

func (f *findings) notNegative(field string, d time.Duration) {
	if d < 0 {
		f.wrong(field, d, "0 or more")
	}
}

func (f *findings) positive(field string, d time.Duration) {
	if d <= 0 {
		f.wrong(field, d, "more than 0")
	}
}

// checkAddresses checks addresses, with or without a port, and ranges of them.
func checkAddresses(c *Config, found *findings) {
	k := &c.KubeProxy
	if netutils.ParseIPSloppy(k.BindAddress) == nil {
		found.wrong("bindAddress", k.BindAddress, "an IP address")
	}
	if k.HealthzBindAddress != "" || !c.Sluice.Healthz.Disabled {
		checkHostPort("healthzBindAddress", k.HealthzBindAddress, found)
	}
	checkHostPort("metricsBindAddress", k.MetricsBindAddress, found)
	for i, text := range k.NodePortAddresses {
		field := document.Index("nodePortAddresses", i)
		_, isRange := parseRange(text)
		switch word := slices.Contains([]string{nodePortPrimary, nodePortLocalhost, nodePortAll}, text); {
		case word && slices.Contains(k.NodePortAddresses[:i], text):
			found.wrong(field, text, "listed once")
		case !word && !isRange:
			found.wrong(field, text, "a range like 192.168.0.0/24, or primary, localhost or all")
		}
	}
}

func checkHostPort(field, address string, found *findings) {
	if !isAddress(address) {
		found.wrong(field, address, wantAddress)
	}
}

const (
	wantAddress = "an IP address and a port from 1 to 65535, like 0.0.0.0:10256 or [::]:10256"
	wantRange   = "a range like 192.168.0.0/24"
)

// isAddress reports whether a text is an IP address with a port.
func isAddress(text string) bool {
	host, port, err := net.SplitHostPort(text)
	number, numberErr := strconv.Atoi(port)
	return err == nil && netutils.ParseIPSloppy(host) != nil && numberErr == nil && number > 0 && number < 1<<16
}

func checkRange(field, text string, found *findings) {
	if _, ok := parseRange(text); !ok {
		found.wrong(field, text, wantRange)
	}
}

// isHost reports whether metrics.hosts may contain a name: without a port, in upper or lower case, with or without the
// trailing dot. The only pattern is *.
func isHost(name string) bool {
	return name == AllHosts || len(validation.IsDNS1123Subdomain(strings.TrimSuffix(strings.ToLower(name), "."))) == 0
}

// checkLocal checks how packets from local pods are recognized.
func checkLocal(k *v1alpha1.KubeProxyConfiguration, found *findings) {
	switch proxy.DetectLocal(k.DetectLocalMode) {
	case proxy.DetectNodeCIDR:
	case proxy.DetectClusterCIDR:
		checkClusterCIDR(k.ClusterCIDR, found)
	case proxy.DetectBridgeInterface:
		if k.DetectLocal.BridgeInterface == "" {
			found.wrong("detectLocal.bridgeInterface", "", "the bridge of the pods, which detectLocalMode %s needs", k.DetectLocalMode)
		}
		checkInterface("detectLocal.bridgeInterface", k.DetectLocal.BridgeInterface, found)
	case proxy.DetectInterfaceNamePrefix:
		if k.DetectLocal.InterfaceNamePrefix == "" {
			found.wrong("detectLocal.interfaceNamePrefix", "",
				"the name prefix of the pods' interfaces, which detectLocalMode %s needs", k.DetectLocalMode)
		}
		checkInterface("detectLocal.interfaceNamePrefix", k.DetectLocal.InterfaceNamePrefix, found)
	default:
		found.wrong("detectLocalMode", string(k.DetectLocalMode), "ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix")
	}
}

// interfaceMax is the maximum length of the name of an interface (IFNAMSIZ without the terminating zero).
const interfaceMax = 15

// checkInterface rejects characters that no interface name can contain (dev_valid_name), and those that would end a
// quoted string in a rule.
func checkInterface(field, name string, found *findings) {
	odd := func(r rune) bool {
		return !unicode.IsGraphic(r) || unicode.IsSpace(r) || strings.ContainsRune(`/:"'\\`, r)
	}
	if len(name) > interfaceMax || strings.ContainsFunc(name, odd) {
		found.wrong(field, name, "at most %d bytes without spaces, control characters, quotes, backslashes, / and :", interfaceMax)
	}
}

func checkClusterCIDR(text string, found *findings) {
	if text == "" {
		return
	}
	parts := strings.Split(text, ",")
	var families []service.Family
	for _, part := range parts {
		r, ok := parseRange(part)
		if !ok {
			found.wrong("clusterCIDR", part, "a range like 10.244.0.0/16, or one of each family separated by a comma")
			return
		}
		families = append(families, service.FamilyOf(r.Addr()))
	}
	if len(parts) > 2 || (len(parts) == 2 && families[0] == families[1]) {
		found.wrong("clusterCIDR", text, "one range, or one of each family")
	}
}

// parseRange parses a range of addresses as kube-proxy does: an octet may have leading
// zeros, an IPv4 range may be written as an IPv6 one, and host bits are ignored.
func parseRange(text string) (netip.Prefix, bool) {
	_, network, err := netutils.ParseCIDRSloppy(strings.TrimSpace(text))
	if err != nil {
		return netip.Prefix{}, false
	}
	address, _ := netip.AddrFromSlice(network.IP) // a parsed address has four or sixteen bytes
	bits, _ := network.Mask.Size()
	if address.Is4In6() && bits >= 96 {
		address, bits = address.Unmap(), bits-96
	}
	return netip.PrefixFrom(address, bits), true
}

// parseAddress parses an address in the same way. The result is invalid if text is no address.
func parseAddress(text string) netip.Addr {
	address, _ := netip.AddrFromSlice(netutils.ParseIPSloppy(text))
	return address.Unmap()
}

// checkLogging checks the logging section as every Kubernetes component does.
func checkLogging(k *v1alpha1.KubeProxyConfiguration, found *findings) {
	l, gates := &k.Logging, effectiveGates(k.FeatureGates)
	switch {
	case l.Format != logsapi.DefaultLogFormat && l.Format != logsapi.JSONLogFormat:
		found.wrong("logging.format", l.Format, "text or json")
	case l.Format == logsapi.JSONLogFormat && !gates[gateLoggingBetaOptions].Enabled:
		found.wrong("logging.format", l.Format, "text, unless the feature gate %s is on", gateLoggingBetaOptions)
	}
	found.positive("logging.flushFrequency", l.FlushFrequency.Duration.Duration)
	checkVerbosity("logging.verbosity", l.Verbosity, found)
	for i, item := range l.VModule {
		field := document.Index("logging.vmodule", i)
		if item.FilePattern == "" || strings.ContainsAny(item.FilePattern, "=,") {
			found.wrong(field+".filePattern", item.FilePattern, "a pattern for file names, without = and commas")
		}
		checkVerbosity(field+".verbosity", item.Verbosity, found)
	}
	if len(l.VModule) > 0 && l.Format == logsapi.JSONLogFormat {
		found.wrong("logging.vmodule", logsapi.VModuleConfigurationPflag(&l.VModule).String(), "nothing, because logging.format is json")
	}
	if !gates[gateLoggingAlphaOptions].Enabled {
		checkRouting("logging.options.text", &l.Options.Text.OutputRoutingOptions, found)
		checkRouting("logging.options.json", &l.Options.JSON.OutputRoutingOptions, found)
	}
}

func checkVerbosity(field string, v logsapi.VerbosityLevel, found *findings) {
	if v > math.MaxInt32 {
		found.wrong(field, v, "0 to %d", math.MaxInt32)
	}
}

// checkRouting rejects the options that need a feature gate.
func checkRouting(field string, o *logsapi.OutputRoutingOptions, found *findings) {
	if o.SplitStream {
		found.wrong(field+".splitStream", true, "false, unless the feature gate %s is on", gateLoggingAlphaOptions)
	}
	if o.InfoBufferSize.Value() != 0 {
		found.wrong(field+".infoBufferSize", o.InfoBufferSize.String(), "0, unless the feature gate %s is on", gateLoggingAlphaOptions)
	}
}
