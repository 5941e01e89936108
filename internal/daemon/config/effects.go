package config

// Effect says what becomes of a changed field in a running process.
type Effect int

// The effects.
const (
	// InPlace fields change in the parts that run.
	InPlace Effect = iota
	// HandOver fields belong to parts that are made whole: the process makes
	// them anew, and hands over to them.
	HandOver
	// NoEffect fields mean nothing here.
	NoEffect
	// NextStart fields matter while a proxy starts only: at the next hand-over,
	// or the next start of the process.
	NextStart
)

// effect is what becomes of one field, and why when that is not plain.
type effect struct {
	Effect
	why string
}

// The effects that many fields share.
var (
	// rendered fields are facts about the node: every actor renders again.
	rendered = effect{Effect: InPlace}
	// paced fields are numbers that somebody looks at each time.
	paced = effect{Effect: InPlace}
	// logged fields are about the log, which is the process's.
	logged        = effect{Effect: InPlace}
	noEffect      = effect{NoEffect, "is accepted, and has no effect"}
	atStart       = effect{NextStart, "matters while a proxy starts only"}
	newBackend    = effect{HandOver, "the kernel backend is made with it"}
	newName       = effect{HandOver, "the node is looked up by its name"}
	newAddress    = effect{HandOver, "it decides which family is the primary one"}
	newConnection = effect{HandOver, "the connection to the API server is made with it"}
	newServers    = effect{HandOver, "the HTTP servers are made with it"}
	newFeatures   = effect{HandOver, "what depends on feature gates is made with them"}
	newNode       = effect{HandOver, "it is set before the rules of a proxy"}
	newKeeper     = effect{HandOver, "the supervisor of the actors is made with it"}
	newCleaner    = effect{HandOver, "the remover of stale flows is made with it"}
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

	"logging.format":                      logged,
	"logging.flushFrequency":              noEffect,
	"logging.verbosity":                   logged,
	"logging.vmodule":                     logged,
	"logging.options.text.splitStream":    noEffect,
	"logging.options.text.infoBufferSize": noEffect,
	"logging.options.json.splitStream":    noEffect,
	"logging.options.json.infoBufferSize": noEffect,

	"hostnameOverride":            newName,
	"bindAddress":                 newAddress,
	"healthzBindAddress":          newServers,
	"metricsBindAddress":          newServers,
	"bindAddressHardFail":         newServers,
	"enableProfiling":             newServers,
	"showHiddenMetricsForVersion": newServers,

	"mode":                        newBackend,
	"iptables.masqueradeBit":      newBackend,
	"iptables.masqueradeAll":      rendered,
	"iptables.localhostNodePorts": newBackend,
	"iptables.syncPeriod":         paced,
	"iptables.minSyncPeriod":      paced,
	"ipvs.syncPeriod":             paced,
	"ipvs.minSyncPeriod":          paced,
	"ipvs.scheduler":              newBackend,
	"ipvs.excludeCIDRs":           newBackend,
	"ipvs.strictARP":              newBackend,
	"ipvs.tcpTimeout":             newBackend,
	"ipvs.tcpFinTimeout":          newBackend,
	"ipvs.udpTimeout":             newBackend,
	"nftables.masqueradeBit":      newBackend,
	"nftables.masqueradeAll":      rendered,
	"nftables.syncPeriod":         paced,
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

	"oomScoreAdj":                     newNode,
	"conntrack.maxPerCore":            newNode,
	"conntrack.min":                   newNode,
	"conntrack.tcpEstablishedTimeout": newNode,
	"conntrack.tcpCloseWaitTimeout":   newNode,
	"conntrack.tcpBeLiberal":          newNode,
	"conntrack.udpTimeout":            newNode,
	"conntrack.udpStreamTimeout":      newNode,
	"configSyncPeriod":                noEffect,
	"portRange":                       noEffect,
	"windowsRunAsService":             noEffect,

	sluicePrefix + "apiVersion":                  noEffect,
	sluicePrefix + "kind":                        noEffect,
	sluicePrefix + "log.level":                   logged,
	sluicePrefix + "log.format":                  logged,
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
	sluicePrefix + "ipvs.drainDeadline":          newBackend,
	sluicePrefix + "healthz.disabled":            newServers,
	sluicePrefix + "conntrack.gather":            newCleaner,
	sluicePrefix + "metrics.servicesMax":         newServers,
	sluicePrefix + "state.dir":                   newNode,
}
