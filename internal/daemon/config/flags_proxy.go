package config

import (
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
)

// bindControl adds the flags that are in no file.
func (f *Flags) bindControl() {
	f.set.StringVar(&f.File, "config", "", "configuration file; kube-proxy's flags for what can be in the file are ignored then, "+
		"but for --hostname-override and those about logs")
	f.set.StringVar(&f.WriteTo, "write-config-to", "", "write the configuration that is in effect to this file, and do nothing else")
	f.set.BoolVar(&f.Cleanup, "cleanup", false, "remove the rules of every mode, put kernel settings back, and do nothing else")
	f.bindForce()
	f.set.BoolVar(&f.InitOnly, "init-only", false, "do what needs all privileges, and nothing else; CAP_NET_ADMIN is enough then to run")
	f.set.StringVar(&f.Master, "master", "", "URL of the API server; overrides the kubeconfig")
	f.set.Var(&f.Version, "version", "print the version; raw prints all details, and a version like v1.36.0 is reported instead of the real one")
	f.set.Lookup("version").NoOptDefVal = "true"
}

// bindForce adds the flag of whoever cleans up.
func (f *Flags) bindForce() {
	f.set.BoolVar(&f.Force, "force", false, "clean up although a proxy still runs, which may write its rules again")
}

// bindClient adds the flags about the API server, the process and its features.
func (f *Flags) bindClient() {
	k := &f.kubeProxy
	f.text(&k.ClientConnection.Kubeconfig, "kubeconfig", "clientConnection.kubeconfig", "kubeconfig file; empty means the pod's service account")
	f.text(&k.ClientConnection.ContentType, "kube-api-content-type", "clientConnection.contentType", "what requests to the API server are encoded in")
	f.set.Float32Var(&k.ClientConnection.QPS, "kube-api-qps", k.ClientConnection.QPS, "requests to the API server per second; negative means no limit")
	f.fields["kube-api-qps"] = "clientConnection.qps"
	f.number(&k.ClientConnection.Burst, "kube-api-burst", "clientConnection.burst", "requests to the API server at once")
	f.duration(&k.ConfigSyncPeriod.Duration, "config-sync-period", "configSyncPeriod", "accepted for compatibility: watches keep the picture complete")
	f.value(cliflag.NewMapStringBool(&k.FeatureGates), "feature-gates", "featureGates", "feature gates of Kubernetes v1.36: GATE=true|false,…")
	f.number(k.OOMScoreAdj, "oom-score-adj", "oomScoreAdj", "how willingly the kernel ends this process when memory is short, -1000 to 1000")
}

// bindServers adds the flags about addresses and HTTP servers.
func (f *Flags) bindServers() {
	k := &f.kubeProxy
	f.value(addressValue{to: &k.BindAddress}, "bind-address", "bindAddress", "this node's primary address, unless it is 0.0.0.0 or ::; nothing listens there")
	f.value(addressValue{to: &k.HealthzBindAddress, port: true}, "healthz-bind-address", "healthzBindAddress", "where the health server listens")
	f.value(addressValue{to: &k.MetricsBindAddress, port: true}, "metrics-bind-address", "metricsBindAddress", "where the metrics server listens")
	f.flag(&k.BindAddressHardFail, "bind-address-hard-fail", "bindAddressHardFail", "end when one of these servers cannot listen, instead of trying again")
	f.flag(&k.EnableProfiling, "profiling", "enableProfiling", "serve /debug/pprof and /debug/flags at the metrics address")
	f.text(&k.ShowHiddenMetricsForVersion, "show-hidden-metrics-for-version", "showHiddenMetricsForVersion",
		"show the metrics that are hidden since this release; only "+previousMinor+" is possible")
	f.number(&f.healthzPort, "healthz-port", "healthz-port", "port of the health server unless its address has one; 0 switches it off")
	f.number(&f.metricsPort, "metrics-port", "metrics-port", "port of the metrics server unless its address has one")
	// These can only fail for a flag that does not exist.
	_ = f.set.MarkDeprecated("healthz-port", "use --healthz-bind-address")
	_ = f.set.MarkDeprecated("metrics-port", "use --metrics-bind-address")
}

// bindIPVS adds the flags of mode ipvs.
func (f *Flags) bindIPVS() {
	v := &f.kubeProxy.IPVS
	f.text(&v.Scheduler, "ipvs-scheduler", "ipvs.scheduler", "scheduler of IPVS; empty means rr")
	f.texts(&v.ExcludeCIDRs, "ipvs-exclude-cidrs", "ipvs.excludeCIDRs", "ranges of virtual servers that are somebody else's")
	f.flag(&v.StrictARP, "ipvs-strict-arp", "ipvs.strictARP", "set arp_ignore to 1 and arp_announce to 2")
	f.duration(&v.TCPTimeout.Duration, "ipvs-tcp-timeout", "ipvs.tcpTimeout", "timeout of idle TCP connections; 0 leaves it alone")
	f.duration(&v.TCPFinTimeout.Duration, "ipvs-tcpfin-timeout", "ipvs.tcpFinTimeout", "timeout of TCP connections after a FIN; 0 leaves it alone")
	f.duration(&v.UDPTimeout.Duration, "ipvs-udp-timeout", "ipvs.udpTimeout", "timeout of UDP flows; 0 leaves it alone")
	f.duration(&f.sluice.IPVS.DrainDeadline.Duration, "sluice-ipvs-drain-deadline", sluicePrefix+"ipvs.drainDeadline",
		"how long a TCP endpoint that has left keeps its connections at most (mode ipvs)")
}

// bindConntrack adds the flags about connection tracking.
func (f *Flags) bindConntrack() {
	c := &f.kubeProxy.Conntrack
	f.number(c.MaxPerCore, "conntrack-max-per-core", "conntrack.maxPerCore", "tracked connections per core; 0 leaves the limit alone")
	f.number(c.Min, "conntrack-min", "conntrack.min", "tracked connections at least, however few cores there are")
	f.duration(&c.TCPEstablishedTimeout.Duration, "conntrack-tcp-timeout-established", "conntrack.tcpEstablishedTimeout",
		"timeout of idle TCP connections; 0 leaves it alone")
	f.duration(&c.TCPCloseWaitTimeout.Duration, "conntrack-tcp-timeout-close-wait", "conntrack.tcpCloseWaitTimeout",
		"timeout of TCP connections in CLOSE_WAIT; 0 leaves it alone")
	f.flag(&c.TCPBeLiberal, "conntrack-tcp-be-liberal", "conntrack.tcpBeLiberal", "take TCP packets outside the window for valid")
	f.duration(&c.UDPTimeout.Duration, "conntrack-udp-timeout", "conntrack.udpTimeout", "timeout of UDP flows without an answer; 0 leaves it alone")
	f.duration(&c.UDPStreamTimeout.Duration, "conntrack-udp-timeout-stream", "conntrack.udpStreamTimeout", "timeout of UDP flows with answers; 0 leaves it alone")
}

// bindKlog adds the flags about logs that all components of Kubernetes have.
func (f *Flags) bindKlog() {
	l := &f.kubeProxy.Logging
	f.text(&l.Format, "logging-format", "logging.format", "how to log: text or json")
	f.duration(&l.FlushFrequency.Duration.Duration, "log-flush-frequency", "logging.flushFrequency", "accepted for compatibility: nothing is held back")
	f.set.VarP(logsapi.VerbosityLevelPflag(&l.Verbosity), "v", "v", "how much to log, as a number; 4 and more mean --log-level debug")
	f.fields["v"] = "logging.verbosity"
	f.value(logsapi.VModuleConfigurationPflag(&l.VModule), "vmodule", "logging.vmodule", "how much libraries log, by file: PATTERN=N,…")
	f.flag(&l.Options.Text.SplitStream, "log-text-split-stream", "logging.options.text.splitStream", "accepted for compatibility, without effect")
	f.value(&l.Options.Text.InfoBufferSize, "log-text-info-buffer-size", "logging.options.text.infoBufferSize", "accepted for compatibility, without effect")
	f.flag(&l.Options.JSON.SplitStream, "log-json-split-stream", "logging.options.json.splitStream", "accepted for compatibility, without effect")
	f.value(&l.Options.JSON.InfoBufferSize, "log-json-info-buffer-size", "logging.options.json.infoBufferSize", "accepted for compatibility, without effect")
}

// bindIgnored adds flags that kube-proxy has from a library.
func (f *Flags) bindIgnored() {
	f.set.String("machine-id-file", "/etc/machine-id,/var/lib/dbus/machine-id", "accepted for compatibility, without effect")
	f.set.String("boot-id-file", "/proc/sys/kernel/random/boot_id", "accepted for compatibility, without effect")
}
