// SPDX-License-Identifier: Apache-2.0

package config

import (
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/sluice-proxy/sluice/proxy"
)

// noEffect is the help of flags that kube-proxy has and Sluice does not need.
const noEffect = "accepted for compatibility; no effect"

// bindControl adds the flags that are in no file.
func (f *Flags) bindControl() {
	f.set.StringArrayVar(&f.Files, "config", nil,
		"configuration `FILE`; overrides kube-proxy's flags, except --hostname-override and log flags; can be repeated")
	f.set.StringVar(&f.WriteTo, "write-config-to", "", "write the effective configuration to this file and exit")
	f.set.BoolVar(&f.Cleanup, "cleanup", false, "remove the rules of every mode, restore kernel settings, and exit")
	f.set.BoolVar(&f.Force, "force", false, "clean up even if a proxy is running; it may recreate its rules")
	f.set.BoolVar(&f.InitOnly, "init-only", false, "perform the privileged setup (sysctls) and exit; afterwards the proxy needs only CAP_NET_ADMIN")
	f.set.StringVar(&f.Master, "master", "", "URL of the API server; overrides the kubeconfig")
	f.set.Var(&f.Version, "version", "print the version and exit; raw prints details, and vX.Y.Z is reported instead of the real version")
	f.set.Lookup("version").NoOptDefVal = "true"
	f.set.String("machine-id-file", "/etc/machine-id,/var/lib/dbus/machine-id", noEffect)
	f.set.String("boot-id-file", "/proc/sys/kernel/random/boot_id", noEffect)
}

// bindNode adds the flags about this node and its rules.
func (f *Flags) bindNode() {
	k := &f.kubeProxy
	f.text((*string)(&f.kubeProxy.Mode), "proxy-mode", "mode",
		"proxy mode: nftables, iptables, ipvs or userspace; empty means nftables if the kernel supports it, otherwise iptables")
	f.text(&f.hostname, "hostname-override", "hostnameOverride", "name of this node in the API; empty means the host's name")
	f.number(k.IPTables.MasqueradeBit, "iptables-masquerade-bit", "iptables.masqueradeBit",
		"bit of the packet mark that requests source NAT (0 to 31), in all modes except nftables")
	f.flag(&f.modal.masqueradeAll, "masquerade-all", "masqueradeAll", "apply source NAT to all ClusterIP traffic")
	f.flag(k.IPTables.LocalhostNodePorts, "iptables-localhost-nodeports", "iptables.localhostNodePorts",
		"make node ports respond on 127.0.0.1 (iptables mode), or on 127.0.0.1 and ::1 (userspace mode)")
	f.text((*string)(&k.DetectLocalMode), "detect-local-mode", "detectLocalMode",
		"how to recognize packets from local pods: ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix")
	f.without("detect-local-mode", string(proxy.DetectClusterCIDR))
	f.text(&k.DetectLocal.BridgeInterface, "pod-bridge-interface", "detectLocal.bridgeInterface", "bridge interface of the pods; required for BridgeInterface")
	f.text(&k.DetectLocal.InterfaceNamePrefix, "pod-interface-name-prefix", "detectLocal.interfaceNamePrefix",
		"name prefix of the pods' interfaces; required for InterfaceNamePrefix")
	f.text(&k.ClusterCIDR, "cluster-cidr", "clusterCIDR", "range of pod addresses, or one per IP family separated by a comma")
	f.texts(&k.NodePortAddresses, "nodeport-addresses", "nodePortAddresses",
		"host addresses on which node ports respond: ranges, primary (those of the Node object), localhost or all; "+
			"empty means all, or primary with --proxy-mode nftables")
}

// bindLog adds the flags about logs that all Kubernetes components have.
func (f *Flags) bindLog() {
	f.set.VarP(logsapi.VerbosityLevelPflag(&f.kubeProxy.Logging.Verbosity), "v", "v",
		"log verbosity: 2 adds a line for each change of a Service; 4 and higher add debug output")
	f.fields["v"] = "logging.verbosity"
	l := &f.kubeProxy.Logging
	f.text(&l.Format, "logging-format", "logging.format", "log format: text or json")
	f.duration(&l.FlushFrequency.Duration.Duration, "log-flush-frequency", "logging.flushFrequency", noEffect)
	f.value(logsapi.VModuleConfigurationPflag(&l.VModule), "vmodule", "logging.vmodule", "log verbosity by source file: PATTERN=N,…; not with JSON")
	f.flag(&l.Options.Text.SplitStream, "log-text-split-stream", "logging.options.text.splitStream", "in text format, write all lines except errors to standard output; requires the feature gate LoggingAlphaOptions")
	f.value(&l.Options.Text.InfoBufferSize, "log-text-info-buffer-size", "logging.options.text.infoBufferSize", noEffect)
	f.flag(&l.Options.JSON.SplitStream, "log-json-split-stream", "logging.options.json.splitStream", "in JSON format, write all lines except errors to standard output; requires the feature gate LoggingAlphaOptions")
	f.value(&l.Options.JSON.InfoBufferSize, "log-json-info-buffer-size", "logging.options.json.infoBufferSize", noEffect)
}

// bindClient adds the flags about the API server, the process and its features.
func (f *Flags) bindClient() {
	k := &f.kubeProxy
	f.text(&k.ClientConnection.Kubeconfig, "kubeconfig", "clientConnection.kubeconfig",
		"kubeconfig file; empty means the pod's service account")
	f.text(&k.ClientConnection.ContentType, "kube-api-content-type", "clientConnection.contentType", "encoding of requests to the API server")
	f.set.Float32Var(&k.ClientConnection.QPS, "kube-api-qps", k.ClientConnection.QPS, "maximum requests per second to the API server; negative means no limit")
	f.fields["kube-api-qps"] = "clientConnection.qps"
	f.number(&k.ClientConnection.Burst, "kube-api-burst", "clientConnection.burst", "maximum requests to the API server in a burst")
	f.duration(&k.ConfigSyncPeriod.Duration, "config-sync-period", "configSyncPeriod", noEffect)
	f.value(cliflag.NewMapStringBool(&k.FeatureGates), "feature-gates", "featureGates", "feature gates of Kubernetes v1.37: GATE=true|false,…")
	f.number(k.OOMScoreAdj, "oom-score-adj", "oomScoreAdj", "OOM score adjustment (-1000 to 1000)")
}

// bindServers adds the flags about addresses and HTTP servers.
func (f *Flags) bindServers() {
	k := &f.kubeProxy
	f.value(addressValue{to: &k.BindAddress}, "bind-address", "bindAddress", "primary address of this node, unless it is 0.0.0.0 or ::; Sluice does not listen on it")
	f.value(addressValue{to: &k.HealthzBindAddress, port: true}, "healthz-bind-address", "healthzBindAddress", "address of the health server")
	f.value(addressValue{to: &k.MetricsBindAddress, port: true}, "metrics-bind-address", "metricsBindAddress", "address of the metrics server")
	f.flag(&k.BindAddressHardFail, "bind-address-hard-fail", "bindAddressHardFail", "exit if the health or metrics server cannot listen, instead of retrying")
	f.flag(&k.EnableProfiling, "profiling", "enableProfiling", "serve /debug/pprof and /debug/flags at the metrics address")
	f.text(&k.ShowHiddenMetricsForVersion, "show-hidden-metrics-for-version", "showHiddenMetricsForVersion",
		"show metrics hidden since this release; must be "+previousMinor)
	f.number(&f.healthzPort, "healthz-port", "healthz-port", "port of the health server unless its address contains one; 0 disables it")
	f.number(&f.metricsPort, "metrics-port", "metrics-port", "port of the metrics server unless its address contains one")
	// MarkDeprecated fails only for an unknown flag.
	_ = f.set.MarkDeprecated("healthz-port", "use --healthz-bind-address")
	_ = f.set.MarkDeprecated("metrics-port", "use --metrics-bind-address")
}

// bindIPVS adds the flags of mode ipvs.
func (f *Flags) bindIPVS() {
	v := &f.kubeProxy.IPVS
	f.text(&v.Scheduler, "ipvs-scheduler", "ipvs.scheduler", "IPVS scheduler; empty means rr")
	f.texts(&v.ExcludeCIDRs, "ipvs-exclude-cidrs", "ipvs.excludeCIDRs", "ranges of virtual servers that belong to other processes")
	f.flag(&v.StrictARP, "ipvs-strict-arp", "ipvs.strictARP", "set arp_ignore to 1 and arp_announce to 2")
	f.duration(&v.TCPTimeout.Duration, "ipvs-tcp-timeout", "ipvs.tcpTimeout", "timeout of idle TCP connections; 0 leaves it unchanged")
	f.duration(&v.TCPFinTimeout.Duration, "ipvs-tcpfin-timeout", "ipvs.tcpFinTimeout", "timeout of TCP connections after a FIN; 0 leaves it unchanged")
	f.duration(&v.UDPTimeout.Duration, "ipvs-udp-timeout", "ipvs.udpTimeout", "timeout of UDP flows; 0 leaves it unchanged")
}

// bindPeriods adds the flags for the two periods of each mode.
func (f *Flags) bindPeriods() {
	m, k := &f.modal, &f.kubeProxy
	m.iptablesSync, m.iptablesMin = k.IPTables.SyncPeriod.Duration, k.IPTables.MinSyncPeriod.Duration
	m.ipvsSync, m.ipvsMin = k.IPVS.SyncPeriod.Duration, k.IPVS.MinSyncPeriod.Duration
	f.duration(&m.iptablesSync, "iptables-sync-period", "syncPeriod",
		"interval between audits of the kernel; a change that waits twice as long makes the node unhealthy (all modes except IPVS)")
	f.duration(&m.iptablesMin, "iptables-min-sync-period", "minSyncPeriod", "minimum interval between two writes (all modes except IPVS)")
	f.duration(&m.ipvsSync, "ipvs-sync-period", "syncPeriod", "same as --iptables-sync-period, for IPVS mode")
	f.duration(&m.ipvsMin, "ipvs-min-sync-period", "minSyncPeriod", "same as --iptables-min-sync-period, for IPVS mode")
	f.without("iptables-min-sync-period", "by mode")
	f.without("ipvs-min-sync-period", "by mode")
}

// bindConntrack adds the flags about connection tracking.
func (f *Flags) bindConntrack() {
	c := &f.kubeProxy.Conntrack
	f.number(c.MaxPerCore, "conntrack-max-per-core", "conntrack.maxPerCore", "maximum number of tracked connections per core; the kernel's limit is only raised; 0 leaves it unchanged")
	f.number(c.Min, "conntrack-min", "conntrack.min", "lower bound of that limit, regardless of cores")
	f.duration(&c.TCPEstablishedTimeout.Duration, "conntrack-tcp-timeout-established", "conntrack.tcpEstablishedTimeout",
		"timeout of idle TCP connections; 0 leaves it unchanged")
	f.duration(&c.TCPCloseWaitTimeout.Duration, "conntrack-tcp-timeout-close-wait", "conntrack.tcpCloseWaitTimeout",
		"timeout of TCP connections in CLOSE_WAIT; 0 leaves it unchanged")
	f.flag(&c.TCPBeLiberal, "conntrack-tcp-be-liberal", "conntrack.tcpBeLiberal", "treat TCP packets outside the window as valid")
	f.duration(&c.UDPTimeout.Duration, "conntrack-udp-timeout", "conntrack.udpTimeout", "timeout of unanswered UDP flows; 0 leaves it unchanged")
	f.duration(&c.UDPStreamTimeout.Duration, "conntrack-udp-timeout-stream", "conntrack.udpStreamTimeout", "timeout of answered UDP flows; 0 leaves it unchanged")
}
