package config

// effect says what becomes of a changed field in a running process.
type effect struct {
	inPlace bool
	why     string
}

// The effects that many fields share.
var (
	// rendered fields are facts about the node: every actor renders again.
	rendered = effect{inPlace: true}
	// paced fields are numbers that somebody looks at each time.
	paced = effect{inPlace: true}
	// synced fields are numbers that health looks at, too, as they were at first.
	synced = effect{true, "counts for audits now, and for health at the next start"}
	// noEffect fields mean nothing here.
	noEffect      = effect{true, "is accepted, and has no effect"}
	atStart       = effect{true, "counts at the next start only"}
	newBackend    = effect{why: "the kernel backend is made once, at the start"}
	newName       = effect{why: "the node is looked up by its name once, at the start"}
	newConnection = effect{why: "the connection to the API server is made once, at the start"}
	newServers    = effect{why: "the HTTP servers are made once, at the start"}
	newFeatures   = effect{why: "what depends on feature gates is made once, at the start"}
	onceOnly      = effect{why: "it is set once, at the start, while the process has the privilege"}
	newLog        = effect{why: "the log is opened once, at the start"}
	newKeeper     = effect{why: "the supervisor of the actors is made once, at the start"}
)

// effects has every field that a file can set.
var effects = map[string]effect{
	"apiVersion": noEffect,
	"kind":       noEffect,

	"featureGates":                        newFeatures,
	"clientConnection.kubeconfig":         newConnection,
	"clientConnection.acceptContentTypes": newConnection,
	"clientConnection.contentType":        newConnection,
	"clientConnection.qps":                newConnection,
	"clientConnection.burst":              newConnection,

	"logging.format":                      newLog,
	"logging.flushFrequency":              noEffect,
	"logging.verbosity":                   {inPlace: true},
	"logging.vmodule":                     {inPlace: true},
	"logging.options.text.splitStream":    noEffect,
	"logging.options.text.infoBufferSize": noEffect,
	"logging.options.json.splitStream":    noEffect,
	"logging.options.json.infoBufferSize": noEffect,

	"hostnameOverride":            newName,
	"bindAddress":                 {why: "it decides which family is the primary one, once, at the start"},
	"healthzBindAddress":          newServers,
	"metricsBindAddress":          newServers,
	"bindAddressHardFail":         newServers,
	"enableProfiling":             newServers,
	"showHiddenMetricsForVersion": newServers,

	"mode":                        newBackend,
	"iptables.masqueradeBit":      newBackend,
	"iptables.masqueradeAll":      rendered,
	"iptables.localhostNodePorts": newBackend,
	"iptables.syncPeriod":         synced,
	"iptables.minSyncPeriod":      paced,
	"ipvs.syncPeriod":             synced,
	"ipvs.minSyncPeriod":          paced,
	"ipvs.scheduler":              newBackend,
	"ipvs.excludeCIDRs":           newBackend,
	"ipvs.strictARP":              newBackend,
	"ipvs.tcpTimeout":             newBackend,
	"ipvs.tcpFinTimeout":          newBackend,
	"ipvs.udpTimeout":             newBackend,
	"nftables.masqueradeBit":      newBackend,
	"nftables.masqueradeAll":      rendered,
	"nftables.syncPeriod":         synced,
	"nftables.minSyncPeriod":      paced,

	"winkernel.networkName":           noEffect,
	"winkernel.sourceVip":             noEffect,
	"winkernel.enableDSR":             noEffect,
	"winkernel.rootHnsEndpointName":   noEffect,
	"winkernel.forwardHealthCheckVip": noEffect,

	"detectLocalMode":                 rendered,
	"detectLocal.bridgeInterface":     rendered,
	"detectLocal.interfaceNamePrefix": rendered,
	"clusterCIDR":                     rendered,
	"nodePortAddresses":               rendered,

	"oomScoreAdj":                     onceOnly,
	"conntrack.maxPerCore":            onceOnly,
	"conntrack.min":                   onceOnly,
	"conntrack.tcpEstablishedTimeout": onceOnly,
	"conntrack.tcpCloseWaitTimeout":   onceOnly,
	"conntrack.tcpBeLiberal":          onceOnly,
	"conntrack.udpTimeout":            onceOnly,
	"conntrack.udpStreamTimeout":      onceOnly,
	"configSyncPeriod":                noEffect,
	"portRange":                       noEffect,
	"windowsRunAsService":             noEffect,

	sluicePrefix + "apiVersion":                  noEffect,
	sluicePrefix + "kind":                        noEffect,
	sluicePrefix + "log.level":                   {inPlace: true},
	sluicePrefix + "log.format":                  newLog,
	sluicePrefix + "pace.spacing":                paced,
	sluicePrefix + "pace.deadline":               paced,
	sluicePrefix + "pace.writeShare":             paced,
	sluicePrefix + "pace.auditInterval":          paced,
	sluicePrefix + "pace.backoffMin":             paced,
	sluicePrefix + "pace.backoffMax":             paced,
	sluicePrefix + "start.nodeWait":              atStart,
	sluicePrefix + "start.gateWait":              atStart,
	sluicePrefix + "actors.messageDeadline":      newKeeper,
	sluicePrefix + "actors.servicesMax":          newKeeper,
	sluicePrefix + "iptables.variant":            newBackend,
	sluicePrefix + "nftables.localhostNodePorts": newBackend,
	sluicePrefix + "healthz.disabled":            newServers,
	sluicePrefix + "conntrack.gather":            {why: "the remover of stale flows is made once, at the start"},
	sluicePrefix + "metrics.servicesMax":         newServers,
}
