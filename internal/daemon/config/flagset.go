package config

import (
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
)

// flagNFTablesLocalhost names a flag whose default depends on the mode.
const flagNFTablesLocalhost = "sluice-nftables-localhost-nodeports"

// bindControl adds the flags that are in no file.
func (f *Flags) bindControl() {
	f.bindFile()
	f.set.StringVar(&f.WriteTo, "write-config-to", "", "write the effective configuration to this file and exit")
	f.set.BoolVar(&f.Cleanup, "cleanup", false, "remove the rules of every mode, restore kernel settings, and exit")
	f.bindForce()
	f.set.BoolVar(&f.InitOnly, "init-only", false, "do what needs full privileges and exit; CAP_NET_ADMIN then suffices to run")
	f.bindMaster()
	f.set.Var(&f.Version, "version", "print the version and exit; raw prints details, and a version like v1.36.0 is reported instead of the real one")
	f.set.Lookup("version").NoOptDefVal = "true"
	const ignored = "accepted for compatibility; no effect"
	f.set.String("machine-id-file", "/etc/machine-id,/var/lib/dbus/machine-id", ignored)
	f.set.String("boot-id-file", "/proc/sys/kernel/random/boot_id", ignored)
}

func (f *Flags) bindFile() {
	f.set.StringVar(&f.File, "config", "",
		"configuration file; kube-proxy's flags for its fields are then ignored, except --hostname-override and those for logs")
}

func (f *Flags) bindMaster() {
	f.set.StringVar(&f.Master, "master", "", "URL of the API server; overrides the kubeconfig")
}

func (f *Flags) bindKubeconfig() {
	f.text(&f.kubeProxy.ClientConnection.Kubeconfig, "kubeconfig", "clientConnection.kubeconfig",
		"kubeconfig file; empty means the pod's service account")
}

// bindCluster adds the flags that name a cluster.
func (f *Flags) bindCluster() {
	f.bindFile()
	f.bindMaster()
	f.bindKubeconfig()
}

// bindForce adds the flag that overrides the lock.
func (f *Flags) bindForce() {
	f.set.BoolVar(&f.Force, "force", false, "clean up even if a proxy is running, which may write its rules again")
}

// bindNode adds the flags about this node.
func (f *Flags) bindNode() {
	f.bindRules()
	f.text(&f.sluice.IPTables.Variant, "sluice-iptables-variant", sluicePrefix+"iptables.variant", "iptables programs: auto, legacy or nft")
	f.flag(f.sluice.NFTables.LocalhostNodePorts, flagNFTablesLocalhost, sluicePrefix+"nftables.localhostNodePorts",
		"let node ports answer on 127.0.0.1 and ::1 in mode nftables (default: only if --proxy-mode is not set)")
}

// bindRules adds the flags that the text of the rules depends on.
func (f *Flags) bindRules() {
	k := &f.kubeProxy
	f.bindMode()
	f.text(&f.hostname, "hostname-override", "hostnameOverride", "name of this node in the API; empty means the host's name")
	f.number(k.IPTables.MasqueradeBit, "iptables-masquerade-bit", "iptables.masqueradeBit",
		"packet mark bit that requests source NAT (0 to 31); mode nftables has its own in the file")
	f.flag(&f.modal.masqueradeAll, "masquerade-all", "masqueradeAll", "apply source NAT to all ClusterIP traffic")
	f.flag(k.IPTables.LocalhostNodePorts, "iptables-localhost-nodeports", "iptables.localhostNodePorts",
		"let node ports answer on 127.0.0.1 (IPv4, mode iptables)")
	f.text((*string)(&k.DetectLocalMode), "detect-local-mode", "detectLocalMode",
		"how to recognize packets from local pods: ClusterCIDR (default), NodeCIDR, BridgeInterface or InterfaceNamePrefix")
	f.text(&k.DetectLocal.BridgeInterface, "pod-bridge-interface", "detectLocal.bridgeInterface", "bridge of the pods, for BridgeInterface")
	f.text(&k.DetectLocal.InterfaceNamePrefix, "pod-interface-name-prefix", "detectLocal.interfaceNamePrefix",
		"name prefix of the pods' interfaces, for InterfaceNamePrefix")
	f.text(&k.ClusterCIDR, "cluster-cidr", "clusterCIDR", "range of pod addresses, or a dual-stack pair separated by a comma")
	f.texts(&k.NodePortAddresses, "nodeport-addresses", "nodePortAddresses",
		"ranges of host addresses on which node ports answer, or primary for the node's own; "+
			"empty means all, or the node's own with --proxy-mode nftables")
	f.bindAddressPolicy()
}

// bindMode adds the flag that selects the kernel backend.
func (f *Flags) bindMode() {
	f.text((*string)(&f.kubeProxy.Mode), "proxy-mode", "mode",
		"kernel backend: nftables, iptables or ipvs, or userspace for none; empty means nftables if the kernel supports it, otherwise iptables")
}

// bindLog adds Sluice's own flags about logs.
func (f *Flags) bindLog() {
	f.text(&f.sluice.Log.Level, "log-level", sluicePrefix+"log.level", "lowest level to log: debug, info, warn or error; decides instead of -v")
	f.text(&f.sluice.Log.Format, "log-format", sluicePrefix+"log.format", "log format: text as klog writes it, json, console for people, or auto (console on a terminal, otherwise json)")
	f.without("log-level", "info")
	if f.sluice.Log.Format == "" {
		f.without("log-format", "the value of --logging-format")
	}
}

// bindVerbosity adds the flag -v.
func (f *Flags) bindVerbosity() {
	f.set.VarP(logsapi.VerbosityLevelPflag(&f.kubeProxy.Logging.Verbosity), "v", "v",
		"log verbosity: 2 adds a line per change of a Service, 4 or more debugging")
	f.fields["v"] = "logging.verbosity"
}

// bindClient adds the flags about the API server, the process and its features.
func (f *Flags) bindClient() {
	k := &f.kubeProxy
	f.bindKubeconfig()
	f.text(&k.ClientConnection.ContentType, "kube-api-content-type", "clientConnection.contentType", "encoding of requests to the API server")
	f.set.Float32Var(&k.ClientConnection.QPS, "kube-api-qps", k.ClientConnection.QPS, "requests per second to the API server; negative means no limit")
	f.fields["kube-api-qps"] = "clientConnection.qps"
	f.number(&k.ClientConnection.Burst, "kube-api-burst", "clientConnection.burst", "requests to the API server in a burst")
	f.duration(&k.ConfigSyncPeriod.Duration, "config-sync-period", "configSyncPeriod", "accepted for compatibility; watches need no resync")
	f.value(cliflag.NewMapStringBool(&k.FeatureGates), "feature-gates", "featureGates", "feature gates of Kubernetes v1.36: GATE=true|false,…")
	f.number(k.OOMScoreAdj, "oom-score-adj", "oomScoreAdj", "OOM score adjustment (-1000 to 1000)")
}

// bindServers adds the flags about addresses and HTTP servers.
func (f *Flags) bindServers() {
	k := &f.kubeProxy
	f.value(addressValue{to: &k.BindAddress}, "bind-address", "bindAddress", "primary address of this node, unless 0.0.0.0 or ::; nothing listens there")
	f.bindAddresses()
	f.flag(&k.BindAddressHardFail, "bind-address-hard-fail", "bindAddressHardFail", "exit if one of these servers cannot listen, instead of retrying")
	f.flag(&k.EnableProfiling, "profiling", "enableProfiling", "serve /debug/pprof and /debug/flags at the metrics address")
	f.text(&k.ShowHiddenMetricsForVersion, "show-hidden-metrics-for-version", "showHiddenMetricsForVersion",
		"show the metrics hidden since this release; must be "+previousMinor)
	f.number(&f.healthzPort, "healthz-port", "healthz-port", "port of the health server unless its address has one; 0 disables it")
	f.number(&f.metricsPort, "metrics-port", "metrics-port", "port of the metrics server unless its address has one")
	// MarkDeprecated fails only for an unknown flag.
	_ = f.set.MarkDeprecated("healthz-port", "use --healthz-bind-address")
	_ = f.set.MarkDeprecated("metrics-port", "use --metrics-bind-address")
}

// bindAddresses adds the flags about where the HTTP servers listen.
func (f *Flags) bindAddresses() {
	k := &f.kubeProxy
	f.value(addressValue{to: &k.HealthzBindAddress, port: true}, "healthz-bind-address", "healthzBindAddress", "address of the health server")
	f.value(addressValue{to: &k.MetricsBindAddress, port: true}, "metrics-bind-address", "metricsBindAddress", "address of the metrics server")
}

// bindIPVS adds the flags of mode ipvs.
func (f *Flags) bindIPVS() {
	v := &f.kubeProxy.IPVS
	f.text(&v.Scheduler, "ipvs-scheduler", "ipvs.scheduler", "IPVS scheduler; empty means rr")
	f.texts(&v.ExcludeCIDRs, "ipvs-exclude-cidrs", "ipvs.excludeCIDRs", "ranges of virtual servers that belong to other programs")
	f.flag(&v.StrictARP, "ipvs-strict-arp", "ipvs.strictARP", "set arp_ignore to 1 and arp_announce to 2")
	f.duration(&v.TCPTimeout.Duration, "ipvs-tcp-timeout", "ipvs.tcpTimeout", "timeout of idle TCP connections; 0 keeps the kernel's")
	f.duration(&v.TCPFinTimeout.Duration, "ipvs-tcpfin-timeout", "ipvs.tcpFinTimeout", "timeout of TCP connections after a FIN; 0 keeps the kernel's")
	f.duration(&v.UDPTimeout.Duration, "ipvs-udp-timeout", "ipvs.udpTimeout", "timeout of UDP flows; 0 keeps the kernel's")
	f.duration(&f.sluice.IPVS.DrainDeadline.Duration, "sluice-ipvs-drain-deadline", sluicePrefix+"ipvs.drainDeadline",
		"longest time that a removed TCP endpoint keeps its connections (mode ipvs)")
	f.texts(&f.sluice.IPVS.ServiceSchedulers, "sluice-ipvs-service-schedulers", sluicePrefix+"ipvs.serviceSchedulers",
		"schedulers that a Service may choose by annotation (mode ipvs)")
}

// bindUserspace adds the flags of mode userspace.
func (f *Flags) bindUserspace() {
	u, p := &f.sluice.Userspace, sluicePrefix+"userspace."
	f.text(&u.Balancing, "sluice-userspace-balancing", p+"balancing",
		"which endpoint the next client gets: "+BalanceRoundRobin+" or "+BalanceLeastConnections+" (mode userspace)")
	f.flag(&u.AccessLog, "sluice-userspace-access-log", p+"accessLog", "log a line for each connection that has ended (mode userspace)")
	f.flag(&u.ExposeHostPorts, "sluice-userspace-expose-host-ports", p+"exposeHostPorts",
		"start without nf_tables, although programs that listen on all addresses answer at addresses of Services (mode userspace)")
	f.flag(&u.AnswerARP, "sluice-userspace-answer-arp", p+"answerARP",
		"do not set arp_ignore to 1 and arp_announce to 2, so that every node answers ARP requests for addresses of Services (mode userspace)")
	f.number(&u.ConnectionsPerClient, "sluice-userspace-connections-per-client", p+"connectionsPerClient",
		"maximum number of TCP connections, and of UDP sessions, of one client address; 0 means a 64th of all, at least 256 (mode userspace)")
}

// bindPeriods adds the flags for the two periods of each mode.
func (f *Flags) bindPeriods() {
	m, k := &f.modal, &f.kubeProxy
	m.iptablesSync, m.iptablesMin = k.IPTables.SyncPeriod.Duration, k.IPTables.MinSyncPeriod.Duration
	m.ipvsSync, m.ipvsMin = k.IPVS.SyncPeriod.Duration, k.IPVS.MinSyncPeriod.Duration
	f.duration(&m.iptablesSync, "iptables-sync-period", "syncPeriod",
		"interval between audits of the kernel; a change that waits twice as long makes the node unhealthy (every mode but ipvs)")
	f.duration(&m.iptablesMin, "iptables-min-sync-period", "minSyncPeriod", "shortest pause between two writes (every mode but ipvs)")
	f.duration(&m.ipvsSync, "ipvs-sync-period", "syncPeriod", "like --iptables-sync-period, for mode ipvs")
	f.duration(&m.ipvsMin, "ipvs-min-sync-period", "minSyncPeriod", "like --iptables-min-sync-period, for mode ipvs")
	f.without("iptables-min-sync-period", "the value of --sluice-spacing")
	f.without("ipvs-min-sync-period", "the value of --sluice-spacing")
}

// bindConntrack adds the flags about connection tracking.
func (f *Flags) bindConntrack() {
	c := &f.kubeProxy.Conntrack
	f.number(c.MaxPerCore, "conntrack-max-per-core", "conntrack.maxPerCore", "tracked connections per core; 0 keeps the kernel's limit")
	f.number(c.Min, "conntrack-min", "conntrack.min", "minimum number of tracked connections, regardless of cores")
	f.duration(&c.TCPEstablishedTimeout.Duration, "conntrack-tcp-timeout-established", "conntrack.tcpEstablishedTimeout",
		"timeout of idle TCP connections; 0 keeps the kernel's")
	f.duration(&c.TCPCloseWaitTimeout.Duration, "conntrack-tcp-timeout-close-wait", "conntrack.tcpCloseWaitTimeout",
		"timeout of TCP connections in CLOSE_WAIT; 0 keeps the kernel's")
	f.flag(&c.TCPBeLiberal, "conntrack-tcp-be-liberal", "conntrack.tcpBeLiberal", "accept TCP packets outside the window as valid")
	f.duration(&c.UDPTimeout.Duration, "conntrack-udp-timeout", "conntrack.udpTimeout", "timeout of unanswered UDP flows; 0 keeps the kernel's")
	f.duration(&c.UDPStreamTimeout.Duration, "conntrack-udp-timeout-stream", "conntrack.udpStreamTimeout", "timeout of answered UDP flows; 0 keeps the kernel's")
}

// bindKlog adds the flags about logs that all Kubernetes components have.
func (f *Flags) bindKlog() {
	const ignored = "accepted for compatibility; no effect"
	l := &f.kubeProxy.Logging
	f.text(&l.Format, "logging-format", "logging.format", "log format: text or json")
	f.duration(&l.FlushFrequency.Duration.Duration, "log-flush-frequency", "logging.flushFrequency", "accepted for compatibility; logs are not buffered")
	f.value(logsapi.VModuleConfigurationPflag(&l.VModule), "vmodule", "logging.vmodule", "log verbosity of libraries by file: PATTERN=N,…")
	f.flag(&l.Options.Text.SplitStream, "log-text-split-stream", "logging.options.text.splitStream", "in text format, write all but errors to standard output; needs the feature gate LoggingAlphaOptions")
	f.value(&l.Options.Text.InfoBufferSize, "log-text-info-buffer-size", "logging.options.text.infoBufferSize", ignored)
	f.flag(&l.Options.JSON.SplitStream, "log-json-split-stream", "logging.options.json.splitStream", "in JSON format, write all but errors to standard output; needs the feature gate LoggingAlphaOptions")
	f.value(&l.Options.JSON.InfoBufferSize, "log-json-info-buffer-size", "logging.options.json.infoBufferSize", ignored)
}

// bindSluice adds Sluice's own flags that need a cluster to make sense.
func (f *Flags) bindSluice() {
	s, p := &f.sluice, sluicePrefix
	f.value(optionalDuration(&s.Pace.Spacing), "sluice-spacing", p+"pace.spacing", "shortest pause between the end of one write and the start of the next")
	f.value(optionalDuration(&s.Pace.Deadline), "sluice-deadline", p+"pace.deadline", "longest time from a change to the start of its write")
	f.value(optionalShare(&s.Pace.WriteShare), "sluice-write-share", p+"pace.writeShare", "largest share of time spent writing (0 to 1; 0 means no limit)")
	f.value(optionalDuration(&s.Pace.AuditInterval), "sluice-audit-interval", p+"pace.auditInterval", "interval between audits of the kernel")
	f.duration(&s.Pace.BackoffMin.Duration, "sluice-backoff-min", p+"pace.backoffMin", "pause after a failed write; it doubles with each failure")
	f.duration(&s.Pace.BackoffMax.Duration, "sluice-backoff-max", p+"pace.backoffMax", "longest pause after failed writes")
	f.duration(&s.Start.NodeWait.Duration, "sluice-node-wait", p+"start.nodeWait", "how long the first rules wait for the Node object; 0 means not at all")
	f.duration(&s.Start.GateWait.Duration, "sluice-gate-wait", p+"start.gateWait", "how long the first rules wait for Services that are not ready")
	f.duration(&s.Actors.MessageDeadline.Duration, "sluice-message-deadline", p+"actors.messageDeadline", "longest time an actor may spend on one message before it is replaced")
	f.duration(&s.Conntrack.Gather.Duration, "sluice-conntrack-gather", p+"conntrack.gather", "how long the removal of stale flows waits for more changes")
	f.number(&s.Metrics.ServicesMax, "sluice-metrics-services-max", p+"metrics.servicesMax", "maximum number of Services with their own metrics at /metrics; /metrics/services has all")
	f.texts(&s.Metrics.Hosts, "sluice-metrics-hosts", p+"metrics.hosts", "further host names that requests to the metrics address may have, besides those of this node; * means all")
	f.flag(&s.UI.Enabled, "sluice-ui", p+"ui.enabled", "serve a page about Services and the pipeline at /ui/ of the metrics address, to everybody who can reach it")
	f.bindState()
	f.without("sluice-spacing", "0s in mode nftables, by --sluice-write-share in mode iptables")
	f.without("sluice-deadline", "1s, or the spacing if that is longer")
	f.without("sluice-write-share", "0.25 in mode iptables without a spacing, otherwise 0")
	f.without("sluice-audit-interval", "the sync period of the mode if that is not 30s, otherwise 5m in mode nftables and 30s in mode iptables")
}

// bindLimits adds the flag about how much a Service may ask for.
func (f *Flags) bindLimits() {
	f.number(&f.sluice.Actors.ObjectsMax, "sluice-objects-max", sluicePrefix+"actors.objectsMax",
		"maximum number of objects that one Service may ask for in one domain, about its frontends times its endpoints")
}

// bindAddressPolicy adds the flags about the addresses of Services.
func (f *Flags) bindAddressPolicy() {
	a, p := &f.sluice.Addresses, sluicePrefix+"addresses."
	f.texts(&a.Denied, "sluice-denied-addresses", p+"denied",
		"ranges that no endpoint, external IP or load balancer IP may be in, besides loopback, link-local, multicast and unspecified addresses")
	f.flag(&a.ExternalIPsInServiceCIDR, "sluice-external-ips-in-service-cidr", p+"externalIPsInServiceCIDR",
		"serve external IPs inside the ranges of ClusterIPs")
}

// bindState adds the flag about what outlives the process.
func (f *Flags) bindState() {
	f.text(&f.sluice.State.Dir, "sluice-state-dir", sluicePrefix+"state.dir", "directory of the record from which a clean-up restores kernel settings")
}
