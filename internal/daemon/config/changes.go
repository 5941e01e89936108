package config

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"

	"k8s.io/kube-proxy/config/v1alpha1"
)

// Effect says how a running process applies a changed field.
type Effect int

// The effects.
const (
	// InPlace fields change in the running parts.
	InPlace Effect = iota
	// HandOver fields belong to parts that cannot change: the process builds a
	// successor and hands over to it.
	HandOver
	// NoEffect fields mean nothing to Sluice.
	NoEffect
	// NextStart fields matter only while a proxy starts: at the next hand-over, or
	// the next start of the process.
	NextStart
)

// effect is the effect of one field, and the reason if it is not obvious.
type effect struct {
	Effect
	why string
}

// The effects that fields share.
var (
	// rendered fields are facts about the node; every actor renders again.
	rendered = effect{Effect: InPlace}
	// paced fields are numbers that are read each time.
	paced = effect{Effect: InPlace}
	// logged fields are about the log, which belongs to the process.
	logged        = effect{Effect: InPlace}
	noEffect      = effect{NoEffect, "is accepted and has no effect"}
	atStart       = effect{NextStart, "matters only while a proxy starts"}
	newBackend    = effect{HandOver, "the kernel backend is built with it"}
	newName       = effect{HandOver, "the node is looked up by its name"}
	newAddress    = effect{HandOver, "it determines the primary family"}
	newConnection = effect{HandOver, "the connection to the API server uses it"}
	newServers    = effect{HandOver, "the HTTP servers are built with it"}
	newFeatures   = effect{HandOver, "other parts depend on feature gates"}
	newNode       = effect{HandOver, "it is set before the first rule"}
	newSource     = effect{HandOver, "API objects are read with it"}
	newKeeper     = effect{HandOver, "the supervisor of the actors is built with it"}
	newCleaner    = effect{HandOver, "the remover of stale flows is built with it"}
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
	"logging.options.text.splitStream":    logged,
	"logging.options.text.infoBufferSize": noEffect,
	"logging.options.json.splitStream":    logged,
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

	sluicePrefix + "apiVersion":                         noEffect,
	sluicePrefix + "kind":                               noEffect,
	sluicePrefix + "log.level":                          logged,
	sluicePrefix + "log.format":                         logged,
	sluicePrefix + "pace.spacing":                       paced,
	sluicePrefix + "pace.deadline":                      paced,
	sluicePrefix + "pace.writeShare":                    paced,
	sluicePrefix + "pace.auditInterval":                 paced,
	sluicePrefix + "pace.backoffMin":                    paced,
	sluicePrefix + "pace.backoffMax":                    paced,
	sluicePrefix + "start.nodeWait":                     atStart,
	sluicePrefix + "start.gateWait":                     atStart,
	sluicePrefix + "actors.messageDeadline":             newKeeper,
	sluicePrefix + "actors.objectsMax":                  newKeeper,
	sluicePrefix + "iptables.variant":                   newBackend,
	sluicePrefix + "nftables.localhostNodePorts":        newBackend,
	sluicePrefix + "ipvs.drainDeadline":                 newBackend,
	sluicePrefix + "userspace.balancing":                newBackend,
	sluicePrefix + "userspace.accessLog":                newBackend,
	sluicePrefix + "userspace.exposeHostPorts":          newBackend,
	sluicePrefix + "userspace.answerARP":                newBackend,
	sluicePrefix + "userspace.connectionsPerClient":     newBackend,
	sluicePrefix + "healthz.disabled":                   newServers,
	sluicePrefix + "conntrack.gather":                   newCleaner,
	sluicePrefix + "metrics.servicesMax":                newServers,
	sluicePrefix + "metrics.hosts":                      newServers,
	sluicePrefix + "ui.enabled":                         newServers,
	sluicePrefix + "state.dir":                          newNode,
	sluicePrefix + "addresses.denied":                   newSource,
	sluicePrefix + "addresses.externalIPsInServiceCIDR": newSource,
	sluicePrefix + "ipvs.serviceSchedulers":             newSource,
}

// Change is one difference between two configurations.
type Change struct {
	// Field is the path of the field; those of Sluice's document start with
	// "SluiceConfiguration.".
	Field string
	// Old and New are the values as a file would have them; empty if not set.
	Old, New string
	Effect   Effect
	// Why is the reason for the effect; it may be empty.
	Why string
}

// Compare returns the differences between two configurations, in document order.
func Compare(old, new *Config) (changes []Change) {
	a, b := reflect.ValueOf(old.document()).Elem(), reflect.ValueOf(new.document()).Elem()
	for _, path := range leavesOf(reflect.TypeFor[v1alpha1.KubeProxyConfiguration]()) {
		if path == "featureGates" {
			changes = append(changes, compareGates(old.KubeProxy.FeatureGates, new.KubeProxy.FeatureGates)...)
			continue
		}
		changes = appendChange(changes, path, at(a, path), at(b, path))
	}
	a, b = reflect.ValueOf(&old.Sluice).Elem(), reflect.ValueOf(&new.Sluice).Elem()
	for _, path := range leavesOf(reflect.TypeFor[SluiceConfiguration]()) {
		changes = appendChange(changes, sluicePrefix+path, at(a, path), at(b, path))
	}
	return changes
}

func appendChange(changes []Change, path string, a, b reflect.Value) []Change {
	old, new := valueText(a), valueText(b)
	if old == new {
		return changes
	}
	e := effects[path]
	return append(changes, Change{Field: path, Old: old, New: new, Effect: e.Effect, Why: e.why})
}

// valueText returns a value as a file would have it. Equal values have equal texts, but
// may differ themselves: a Quantity remembers how it was written.
func valueText(v reflect.Value) string {
	text, err := json.Marshal(v.Interface())
	if err != nil {
		panic("config: a configuration can always be written: " + err.Error())
	}
	if string(text) == "null" {
		return ""
	}
	var plain string
	if json.Unmarshal(text, &plain) == nil {
		return plain
	}
	return string(text)
}

// compareGates returns one change per feature gate.
func compareGates(old, new map[string]bool) (changes []Change) {
	names := maps.Clone(old)
	if names == nil {
		names = map[string]bool{}
	}
	maps.Copy(names, new)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		a, b := gateText(old, name), gateText(new, name)
		if a == b {
			continue
		}
		e := effects["featureGates"]
		if !gateMatters(name) {
			e = noEffect
		}
		changes = append(changes, Change{Field: "featureGates." + name, Old: a, New: b, Effect: e.Effect, Why: e.why})
	}
	return changes
}

func gateText(set map[string]bool, name string) string {
	if value, ok := set[name]; ok {
		return valueText(reflect.ValueOf(value))
	}
	return ""
}
