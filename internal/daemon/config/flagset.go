package config

import (
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/sluice-proxy/sluice/proxy"
)

// noEffect is the help of flags that kube-proxy has and Sluice does not need.
const noEffect = "accepted for compatibility; no effect"

// flagNFTablesLocalhost names a flag whose default depends on the mode.
const flagNFTablesLocalhost = "sluice-nftables-localhost-nodeports"

// bindControl adds the flags that are in no file.
func (f *Flags) bindControl() {
	f.bindFile()
	f.set.StringVar(&f.WriteTo, "write-config-to", "", "write the effective configuration to this file and exit")
	f.set.BoolVar(&f.Cleanup, "cleanup", false, "remove the rules of every mode, restore kernel settings, and exit")
	f.bindForce()
	f.set.BoolVar(&f.InitOnly, "init-only", false, "perform the privileged setup (sysctls) and exit; afterwards the proxy needs only CAP_NET_ADMIN")
	f.bindMaster()
	f.set.Var(&f.Version, "version", "print the version and exit; raw prints details, and vX.Y.Z is reported instead of the real version")
	f.set.Lookup("version").NoOptDefVal = "true"
	f.set.String("machine-id-file", "/etc/machine-id,/var/lib/dbus/machine-id", noEffect)
	f.set.String("boot-id-file", "/proc/sys/kernel/random/boot_id", noEffect)
}

func (f *Flags) bindFile() {
	f.set.StringVar(&f.File, "config", "",
		"configuration file; overrides kube-proxy's flags, except --hostname-override and log flags")
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
	f.set.BoolVar(&f.Force, "force", false, "clean up even if a proxy is running; it may recreate its rules")
}

// bindNode adds the flags about this node.
func (f *Flags) bindNode() {
	f.bindRules()
	f.text(&f.sluice.IPTables.Variant, "sluice-iptables-variant", sluicePrefix+"iptables.variant", "iptables binaries to use: auto, legacy or nft")
	f.flag(f.sluice.NFTables.LocalhostNodePorts, flagNFTablesLocalhost, sluicePrefix+"nftables.localhostNodePorts",
		"make node ports respond on 127.0.0.1 and ::1 in nftables mode")
	f.without(flagNFTablesLocalhost, "true unless --proxy-mode is nftables")
	f.text(&f.sluice.NFTables.Offload, "sluice-nftables-offload", sluicePrefix+"nftables.offload",
		"connections to Services that bypass netfilter and routing once they are established: off or tcp (nftables mode)")
}

// bindRules adds the flags that the text of the rules depends on.
func (f *Flags) bindRules() {
	k := &f.kubeProxy
	f.bindMode()
	f.text(&f.hostname, "hostname-override", "hostnameOverride", "name of this node in the API; empty means the host's name")
	f.number(k.IPTables.MasqueradeBit, "iptables-masquerade-bit", "iptables.masqueradeBit",
		"bit of the packet mark that requests source NAT (0 to 31), in all modes except nftables")
	f.flag(&f.sluice.Traffic.Endpoints, "sluice-traffic-endpoints", sluicePrefix+"traffic.endpoints",
		"count new connections by endpoint, in addition to by Service (nftables and IPVS modes; iptables and userspace modes always do)")
	f.number(&f.sluice.Balancing.Seed, "sluice-balancing-seed", sluicePrefix+"balancing.seed",
		"number that hashes of clients begin with, the same on all nodes (nftables and userspace modes)")
	f.duration(&f.sluice.Balancing.DrainDeadline.Duration, "sluice-balancing-drain-deadline", sluicePrefix+"balancing.drainDeadline",
		"maximum lifetime of connections to an endpoint that was removed from a Service without the annotation sluice.dev/drain; 0 means the default of the mode")
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
	f.bindAddressPolicy()
}

// bindMode adds the flag that selects the kernel backend.
func (f *Flags) bindMode() {
	f.text((*string)(&f.kubeProxy.Mode), "proxy-mode", "mode",
		"proxy mode: nftables, iptables, ipvs or userspace; empty means nftables if the kernel supports it, otherwise iptables")
}

// bindLog adds Sluice's own flags about logs.
func (f *Flags) bindLog() {
	f.text(&f.sluice.Log.Level, "log-level", sluicePrefix+"log.level", "minimum log level: debug, info, warn or error; -v then applies to libraries only")
	f.text(&f.sluice.Log.Format, "log-format", sluicePrefix+"log.format", "log format: text (klog's), json, console, or auto (console on a terminal, otherwise json)")
	f.without("log-level", "info")
	if f.sluice.Log.Format == "" {
		f.without("log-format", "the value of --logging-format")
	}
}

// bindVerbosity adds the flag -v.
func (f *Flags) bindVerbosity() {
	f.set.VarP(logsapi.VerbosityLevelPflag(&f.kubeProxy.Logging.Verbosity), "v", "v",
		"log verbosity: 2 adds a line for each change of a Service; 4 and higher add debug output")
	f.fields["v"] = "logging.verbosity"
}

// bindClient adds the flags about the API server, the process and its features.
func (f *Flags) bindClient() {
	k := &f.kubeProxy
	f.bindKubeconfig()
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
	f.bindAddresses()
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
	f.texts(&v.ExcludeCIDRs, "ipvs-exclude-cidrs", "ipvs.excludeCIDRs", "ranges of virtual servers that belong to other processes")
	f.flag(&v.StrictARP, "ipvs-strict-arp", "ipvs.strictARP", "set arp_ignore to 1 and arp_announce to 2")
	f.duration(&v.TCPTimeout.Duration, "ipvs-tcp-timeout", "ipvs.tcpTimeout", "timeout of idle TCP connections; 0 leaves it unchanged")
	f.duration(&v.TCPFinTimeout.Duration, "ipvs-tcpfin-timeout", "ipvs.tcpFinTimeout", "timeout of TCP connections after a FIN; 0 leaves it unchanged")
	f.duration(&v.UDPTimeout.Duration, "ipvs-udp-timeout", "ipvs.udpTimeout", "timeout of UDP flows; 0 leaves it unchanged")
	f.duration(&f.sluice.IPVS.DrainDeadline.Duration, "sluice-ipvs-drain-deadline", sluicePrefix+"ipvs.drainDeadline",
		"maximum lifetime of connections to a removed endpoint (IPVS mode)")
	f.texts(&f.sluice.IPVS.ServiceSchedulers, "sluice-ipvs-service-schedulers", sluicePrefix+"ipvs.serviceSchedulers",
		"schedulers that a Service may select by annotation (IPVS mode)")
}

// bindUserspace adds the flags of mode userspace.
func (f *Flags) bindUserspace() {
	u, p := &f.sluice.Userspace, sluicePrefix+"userspace."
	f.text(&u.Balancing, "sluice-userspace-balancing", p+"balancing",
		"selection of the endpoint for a new client: "+BalanceRoundRobin+" or "+BalanceLeastConnections+" (userspace mode)")
	f.flag(&u.AccessLog, "sluice-userspace-access-log", p+"accessLog", "old name of traffic.flowLog: all (userspace mode)")
	f.flag(&u.ExposeHostPorts, "sluice-userspace-expose-host-ports", p+"exposeHostPorts",
		"start even if the kernel lacks nf_tables and host processes are reachable at Service addresses (userspace mode)")
	f.flag(&u.AnswerARP, "sluice-userspace-answer-arp", p+"answerARP",
		"leave arp_ignore and arp_announce unchanged, so that every node responds to ARP requests for Service addresses (userspace mode)")
	f.number(&u.ConnectionsPerClient, "sluice-userspace-connections-per-client", p+"connectionsPerClient",
		"maximum number of TCP connections, and of UDP sessions, of one client address; 0 means 1/64 of the process limit, at least 256 (userspace mode)")
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
	f.without("iptables-min-sync-period", "the value of --sluice-min-interval")
	f.without("ipvs-min-sync-period", "the value of --sluice-min-interval")
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

// bindTraffic adds the flags about the traffic to Services.
func (f *Flags) bindTraffic() {
	f.flag(f.sluice.SelfTest.Enabled, "sluice-self-test", sluicePrefix+"selfTest.enabled",
		"connect to a frontend on loopback addresses every minute, to check that packets follow the rules (nftables and iptables modes)")
	f.flag(f.sluice.Healthz.Endpoints, "sluice-healthz-endpoints", sluicePrefix+"healthz.endpoints",
		"let the health server answer whether this node sends new connections to an endpoint (GET /endpoints/IP:PORT)")
	f.text((*string)(&f.sluice.Balancing.ObserveConnections), "sluice-balancing-observe-connections", sluicePrefix+"balancing.observeConnections",
		"let Services ask for sluice.dev/outlier and leastConnections, for which the kernel announces all connections of the node: off, all, or the names of namespaces")
	f.flag(&f.sluice.Traffic.Accounting, "sluice-traffic-accounting", sluicePrefix+"traffic.accounting",
		"count packets and bytes of each connection in the kernel, and add them up by Service, endpoint and client (all modes except userspace)")
	f.text(&f.sluice.Traffic.FlowLog, "sluice-traffic-flow-log", sluicePrefix+"traffic.flowLog",
		"connections in the flow log: off, annotated (of Services with the annotation sluice.dev/flow-log) or all")
	f.text(&f.sluice.Traffic.FlowLogFile, "sluice-traffic-flow-log-file", sluicePrefix+"traffic.flowLogFile",
		"file of the flow log; standard output if empty or -")
}

// bindKlog adds the flags about logs that all Kubernetes components have.
func (f *Flags) bindKlog() {
	l := &f.kubeProxy.Logging
	f.text(&l.Format, "logging-format", "logging.format", "log format: text or json")
	f.duration(&l.FlushFrequency.Duration.Duration, "log-flush-frequency", "logging.flushFrequency", noEffect)
	f.value(logsapi.VModuleConfigurationPflag(&l.VModule), "vmodule", "logging.vmodule", "log verbosity by source file: PATTERN=N,…; not with JSON")
	f.flag(&l.Options.Text.SplitStream, "log-text-split-stream", "logging.options.text.splitStream", "in text format, write all lines except errors to standard output; requires the feature gate LoggingAlphaOptions")
	f.value(&l.Options.Text.InfoBufferSize, "log-text-info-buffer-size", "logging.options.text.infoBufferSize", noEffect)
	f.flag(&l.Options.JSON.SplitStream, "log-json-split-stream", "logging.options.json.splitStream", "in JSON format, write all lines except errors to standard output; requires the feature gate LoggingAlphaOptions")
	f.value(&l.Options.JSON.InfoBufferSize, "log-json-info-buffer-size", "logging.options.json.infoBufferSize", noEffect)
}

// bindSluice adds Sluice's own flags that need a cluster to make sense.
func (f *Flags) bindSluice() {
	s, p := &f.sluice, sluicePrefix
	f.value(optionalDuration(&s.Pace.MinInterval), "sluice-min-interval", p+"pace.minInterval", "minimum interval between the end of one write and the start of the next")
	f.value(optionalDuration(&s.Pace.MaxDelay), "sluice-max-delay", p+"pace.maxDelay", "maximum time from a change to the start of its write")
	f.value(optionalShare(&s.Pace.MaxWriteShare), "sluice-max-write-share", p+"pace.maxWriteShare", "maximum fraction of time spent writing in each IP family (0 to 1; 0 means no limit)")
	f.value(optionalDuration(&s.Pace.AuditInterval), "sluice-audit-interval", p+"pace.auditInterval", "interval between audits of the kernel")
	f.duration(&s.Pace.BackoffMin.Duration, "sluice-backoff-min", p+"pace.backoffMin", "delay after a failed write; it doubles with each failure")
	f.duration(&s.Pace.BackoffMax.Duration, "sluice-backoff-max", p+"pace.backoffMax", "maximum delay after failed writes")
	f.duration(&s.Start.NodeWait.Duration, "sluice-node-wait", p+"start.nodeWait", "how long the first write waits for the Node object; 0 means no wait")
	f.duration(&s.Start.GateWait.Duration, "sluice-gate-wait", p+"start.gateWait", "how long the first write waits for Services whose rules are not ready, since the last one became ready")
	f.duration(&s.Actors.MessageDeadline.Duration, "sluice-message-deadline", p+"actors.messageDeadline", "maximum time that an actor may spend on one message before Sluice replaces it")
	f.duration(&s.Conntrack.BatchWindow.Duration, "sluice-conntrack-batch-window", p+"conntrack.batchWindow", "time to collect changes before stale conntrack entries are removed")
	f.number(&s.Metrics.ServicesMax, "sluice-metrics-services-max", p+"metrics.servicesMax", "maximum number of Services with individual metrics at /metrics, slowest first; /metrics/services includes all")
	f.texts(&s.Metrics.Hosts, "sluice-metrics-hosts", p+"metrics.hosts", "additional host names that requests to the metrics address may use; * allows all")
	f.flag(&s.UI.Enabled, "sluice-ui", p+"ui.enabled", "serve the web UI at /ui/ on the metrics address (without authentication unless security is on)")
	f.text(&s.Inspection.BindAddress, "sluice-inspection-bind-address", p+"inspection.bindAddress",
		"address at which the proxy answers kubectl sluice (without authentication unless security.inspection is set); empty disables it")
	f.text(&s.Healthz.ProbeAddress, "sluice-healthz-probe-address", p+"healthz.probeAddress",
		"address at which the health server answers in addition to healthzBindAddress, for probes of the kubelet; empty disables it")
	f.text(&s.Reload, "sluice-reload", p+"reload", "when a changed configuration file is applied: immediately or off")
	f.bindSecurity()
	f.bindTracing()
	f.bindState()
	f.without("sluice-min-interval", "the minimum sync period if set, otherwise 0s")
	f.without("sluice-max-delay", "1s, or the minimum interval if that is longer")
	f.without("sluice-max-write-share", "0.25 in iptables mode without a minimum interval, otherwise 0")
	f.without("sluice-audit-interval", "the sync period; in nftables mode 5m if that is 30s")
}

// bindSecurity adds the flags that protect the metrics address.
func (f *Flags) bindSecurity() {
	s, p := &f.sluice.Security, sluicePrefix+"security."
	f.text(&s.CertFile, "sluice-security-cert-file", p+"certFile", "PEM file with the certificate of the metrics address, if that is not a loopback address")
	f.text(&s.KeyFile, "sluice-security-key-file", p+"keyFile", "PEM file with the key of the certificate")
	f.flag(&s.SelfSigned, "sluice-security-self-signed", p+"selfSigned", "sign a certificate for the metrics address, which clients cannot verify")
	f.text(&s.ClientCAFile, "sluice-security-client-ca-file", p+"clientCAFile", "PEM file with the authorities of client certificates")
	f.text(&s.Authorization, "sluice-security-authorization", p+"authorization",
		"who gets answers over HTTPS: delegated (callers that the API server allows) or none (all)")
	f.flag(&s.Inspection, "sluice-security-inspection", p+"inspection", "answer kubectl sluice over HTTPS, and only callers that the API server allows")
}

// bindTracing adds the flags about exported spans.
func (f *Flags) bindTracing() {
	t, p := &f.sluice.Tracing, sluicePrefix+"tracing."
	f.text(&t.Endpoint, "sluice-tracing-endpoint", p+"endpoint", "URL of a receiver of OpenTelemetry spans (OTLP over HTTP), like http://127.0.0.1:4318; empty disables the export")
	f.number(&t.SamplingRatePerMillion, "sluice-tracing-sampling-rate-per-million", p+"samplingRatePerMillion", "number of exported changes per million; slow and rejected changes are always exported")
	f.duration(&t.SlowThreshold.Duration, "sluice-tracing-slow-threshold", p+"slowThreshold", "time from the receipt of a change until it is in the kernel, above which the change is always exported")
}

// bindLimits adds the flag about how much a Service may ask for.
func (f *Flags) bindLimits() {
	f.number(&f.sluice.Actors.ObjectsMax, "sluice-objects-max", sluicePrefix+"actors.objectsMax",
		"maximum number of objects of one Service in one domain")
}

// bindAddressPolicy adds the flags about the addresses of Services.
func (f *Flags) bindAddressPolicy() {
	a, p := &f.sluice.Addresses, sluicePrefix+"addresses."
	f.texts(&a.Denied, "sluice-denied-addresses", p+"denied",
		"forbidden ranges for endpoints, external IPs and load balancer IPs, in addition to loopback, link-local, multicast and unspecified addresses")
	f.numbers(&a.DeniedPorts, "sluice-denied-ports", p+"deniedPorts",
		"TCP ports of nodes that no Service gets at external IPs and load balancer IPs, in addition to the ports of Sluice's own addresses")
	f.flag(&a.ExternalIPsInServiceCIDR, "sluice-external-ips-in-service-cidr", p+"externalIPsInServiceCIDR",
		"handle external IPs inside the ranges of ServiceCIDR objects")
}

// bindState adds the flag about what outlives the process.
func (f *Flags) bindState() {
	f.text(&f.sluice.State.Dir, "sluice-state-dir", sluicePrefix+"state.dir", "directory for runtime state (original sysctl values, socket)")
}
