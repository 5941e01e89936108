// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/kube-proxy/config/v1alpha1"
	"sigs.k8s.io/yaml"

	"github.com/sluice-proxy/sluice/aggregator"
)

// own is the pace of a backend with preferences.
var own = aggregator.Pace{MaxWriteShare: 0.25}

// fieldCase is one field of a document.
type fieldCase struct {
	field string
	// def is its value in an empty document.
	def string
	// set is a value as YAML, and with are other fields that it needs; want is the
	// effective value, or empty if it is set.
	set, want string
	with      map[string]string
	// wrong are rejected values, with the error behind the field.
	wrong map[string]string
}

const (
	wantText     = "must be text; quote it if it looks like a number"
	wantBool     = "must be true or false"
	wantNumber   = "must be a whole number (32 bits)"
	wantDuration = "must be a duration like 30s, 5m or 1h30m"
	wantOTLP     = "must be a URL of a scheme and a host, like http://127.0.0.1:4318"
	wantPort     = "must be an IP address and a port from 1 to 65535, like 0.0.0.0:10256 or [::]:10256"
)

var (
	inIPVS     = map[string]string{"mode": "ipvs"}
	inNFTables = map[string]string{"mode": "nftables"}
	alphaLogs  = map[string]string{"featureGates": "{LoggingAlphaOptions: true}"}
)

// fieldCases are all fields of both documents.
var fieldCases = []fieldCase{
	{field: "apiVersion", def: "kubeproxy.config.k8s.io/v1alpha1", set: "kubeproxy.config.k8s.io/v1alpha1"},
	{field: "kind", def: "KubeProxyConfiguration", set: "KubeProxyConfiguration"},
	{field: "featureGates", def: "{}", set: "{NativeHistograms: true, ComponentFlagz: false}", want: `{"ComponentFlagz":false,"NativeHistograms":true}`,
		wrong: map[string]string{
			"{PreferSameTrafficDistribution: false}": `.PreferSameTrafficDistribution: false: must be true; this feature gate is locked`,
			"{NativeHistograms: maybe}":              `.NativeHistograms: "maybe": must be true or false`,
			"[NativeHistograms]":                     `: ["NativeHistograms"]: must be fields with values`,
		}},
	{field: "clientConnection.kubeconfig", set: "/kube.conf", wrong: map[string]string{"[]": ": []: " + wantText}},
	{field: "clientConnection.acceptContentTypes", set: "application/json", wrong: map[string]string{"5": ": 5: " + wantText}},
	{field: "clientConnection.contentType", def: "application/vnd.kubernetes.protobuf", set: "application/json", wrong: map[string]string{"5": ": 5: " + wantText}},
	{field: "clientConnection.qps", def: "5", set: "-1", wrong: map[string]string{`"3"`: `: "3": must be a number`}},
	{field: "clientConnection.burst", def: "10", set: "100", wrong: map[string]string{"-1": ": -1: must be 0 or more", "1.5": ": 1.5: " + wantNumber, "4294967296": ": 4294967296: " + wantNumber}},

	{field: "logging.format", def: "text", set: "json", wrong: map[string]string{"xml": `: "xml": must be text or json`}},
	{field: "logging.flushFrequency", def: "5s", set: "7s", wrong: map[string]string{"-1s": ": -1s: must be more than 0", "soon": `: "soon": ` + wantDuration}},
	{field: "logging.verbosity", def: "0", set: "5", wrong: map[string]string{"-1": ": -1: must be a whole number from 0 to 2147483647", "2147483648": ": 2147483648: must be 0 to 2147483647"}},
	{field: "logging.vmodule", set: "[{filePattern: 'net*', verbosity: 4}]", want: `[{"filePattern":"net*","verbosity":4}]`, wrong: map[string]string{
		"[{filePattern: 'a=b', verbosity: 4}]":      `[0].filePattern: "a=b": must be a pattern for file names, without = and commas`,
		"[{verbosity: 4}]":                          `[0].filePattern: "": must be a pattern for file names, without = and commas`,
		"[{filePattern: a, verbosity: x}]":          `[0].verbosity: "x": must be a whole number from 0 to 2147483647`,
		"[{filePattern: a, verbosity: 3000000000}]": `[0].verbosity: 3000000000: must be 0 to 2147483647`,
		"net=4": `: "net=4": must be a list`}},
	{field: "logging.options.text.splitStream", def: "false", set: "true", with: alphaLogs, wrong: map[string]string{"5": ": 5: " + wantBool}},
	{field: "logging.options.text.infoBufferSize", def: "0", set: "64Ki", with: alphaLogs, wrong: map[string]string{"much": `: "much": must be a size like 512, 64Ki or 2Mi`}},
	{field: "logging.options.json.splitStream", def: "false", set: "true", with: alphaLogs, wrong: map[string]string{"5": ": 5: " + wantBool}},
	{field: "logging.options.json.infoBufferSize", def: "0", set: "1k", with: alphaLogs, wrong: map[string]string{"much": `: "much": must be a size like 512, 64Ki or 2Mi`}},

	{field: "hostnameOverride", set: " Node-1", want: "node-1", wrong: map[string]string{`" "`: `: " ": must be a name, or nothing for the host's name`}},
	{field: "bindAddress", def: "0.0.0.0", set: "2001:db8::7", with: map[string]string{"healthzBindAddress": "0.0.0.0", "metricsBindAddress": "127.0.0.1"},
		wrong: map[string]string{"node-1": `: "node-1": must be an IP address`, "10.0.0.1:5": `: "10.0.0.1:5": must be an IP address`}},
	{field: "healthzBindAddress", def: "0.0.0.0:10256", set: "192.0.2.7", want: "192.0.2.7:10256", wrong: map[string]string{
		"localhost:1": `: "localhost:1": ` + wantPort, "0.0.0.0:0": `: "0.0.0.0:0": ` + wantPort, `":10256"`: `: ":10256": ` + wantPort}},
	{field: "metricsBindAddress", def: "127.0.0.1:10249", set: "'::'", want: "[::]:10249", wrong: map[string]string{"0.0.0.0:70000": `: "0.0.0.0:70000": ` + wantPort}},
	{field: "bindAddressHardFail", def: "false", set: "true", wrong: map[string]string{"5": ": 5: " + wantBool}},
	{field: "enableProfiling", def: "false", set: "yes", want: "true", wrong: map[string]string{`"true"`: `: "true": ` + wantBool}},
	{field: "showHiddenMetricsForVersion", set: "'1.36'", want: "1.36", wrong: map[string]string{"'1.35'": `: "1.35": must be 1.36 (the previous release) or nothing`, "1.36": ": 1.36: " + wantText}},

	{field: "mode", set: "nftables", with: map[string]string{"nodePortAddresses": "[10.0.0.0/8]"}, wrong: map[string]string{
		"kernelspace": `: "kernelspace": must be nftables, iptables, ipvs or userspace, or nothing for nftables if the kernel supports it, otherwise iptables`}},
	{field: "iptables.masqueradeBit", def: "14", set: "0", wrong: map[string]string{"32": ": 32: must be 0 to 31", "-1": ": -1: must be 0 to 31", "x": `: "x": ` + wantNumber}},
	{field: "iptables.masqueradeAll", def: "false", set: "true", wrong: map[string]string{"5": ": 5: " + wantBool}},
	{field: "iptables.localhostNodePorts", def: "true", set: "false", wrong: map[string]string{"5": ": 5: " + wantBool}},
	{field: "iptables.syncPeriod", def: "30s", set: "1h", want: "1h0m0s", wrong: map[string]string{"-1s": "", "5": ": 5: " + wantDuration}},
	{field: "iptables.minSyncPeriod", def: "1s", set: "5s", wrong: map[string]string{"-1s": ": -1s: must be 0 or more", "31s": ": 31s: must be at most the syncPeriod, which is 30s"}},
	{field: "ipvs.syncPeriod", def: "30s", set: "1h", want: "1h0m0s", with: inIPVS, wrong: map[string]string{"-1s": ""}},
	{field: "ipvs.minSyncPeriod", def: "0s", set: "5s", with: inIPVS, wrong: map[string]string{"-1s": ": -1s: must be 0 or more", "31s": ": 31s: must be at most the syncPeriod, which is 30s"}},
	{field: "ipvs.scheduler", set: "mh", with: inIPVS, wrong: map[string]string{"5": ": 5: " + wantText,
		"wrrr": `: "wrrr": must be one of dh, fo, lblc, lblcr, lc, mh, nq, ovf, rr, sed, sh, twos, wlc, wrr, or nothing for rr`}},
	{field: "ipvs.excludeCIDRs", set: "[10.0.0.0/8]", want: `["10.0.0.0/8"]`, with: inIPVS, wrong: map[string]string{
		"[10.0.0.0/8, 10.0.0.1]": `[1]: "10.0.0.1": must be a range like 192.168.0.0/24`, "10.0.0.0/8": `: "10.0.0.0/8": must be a list`}},
	{field: "ipvs.strictARP", def: "false", set: "true", with: inIPVS, wrong: map[string]string{"5": ": 5: " + wantBool}},
	{field: "ipvs.tcpTimeout", def: "0s", set: "1s", with: inIPVS, wrong: map[string]string{"-1s": ": -1s: must be 0 or more"}},
	{field: "ipvs.tcpFinTimeout", def: "0s", set: "1s", with: inIPVS, wrong: map[string]string{"-1s": ": -1s: must be 0 or more"}},
	{field: "ipvs.udpTimeout", def: "0s", set: "1s", with: inIPVS, wrong: map[string]string{"-1s": ": -1s: must be 0 or more"}},
	{field: "nftables.masqueradeBit", def: "14", set: "15", with: inNFTables, wrong: map[string]string{"32": ": 32: must be 0 to 31"}},
	{field: "nftables.masqueradeAll", def: "false", set: "true", with: inNFTables, wrong: map[string]string{"5": ": 5: " + wantBool}},
	{field: "nftables.syncPeriod", def: "30s", set: "1h", want: "1h0m0s", with: inNFTables, wrong: map[string]string{"-1s": ""}},
	{field: "nftables.minSyncPeriod", def: "1s", set: "1s", with: inNFTables, wrong: map[string]string{"-1s": ": -1s: must be 0 or more"}},
	{field: "winkernel.networkName", set: "net", wrong: map[string]string{"5": ": 5: " + wantText}},
	{field: "winkernel.sourceVip", set: "192.0.2.1", wrong: map[string]string{"5": ": 5: " + wantText}},
	{field: "winkernel.enableDSR", def: "false", set: "true", wrong: map[string]string{"5": ": 5: " + wantBool}},
	{field: "winkernel.rootHnsEndpointName", set: "cbr0", wrong: map[string]string{"5": ": 5: " + wantText}},
	{field: "winkernel.forwardHealthCheckVip", def: "false", set: "true", wrong: map[string]string{"5": ": 5: " + wantBool}},

	{field: "detectLocalMode", def: "ClusterCIDR", set: "NodeCIDR", wrong: map[string]string{
		"clustercidr": `: "clustercidr": must be ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix`}},
	{field: "detectLocal.bridgeInterface", set: "cni0", with: map[string]string{"detectLocalMode": "BridgeInterface"}, wrong: map[string]string{
		`""`:               `: "": must be the bridge of the pods, which detectLocalMode BridgeInterface needs`,
		`"eth0 -j DROP"`:   `: "eth0 -j DROP": must be at most 15 bytes without spaces, control characters, quotes, backslashes, / and :`,
		`"e\"\n"`:          `: "e\"\n": must be at most 15 bytes without spaces, control characters, quotes, backslashes, / and :`,
		`sixteen-letters0`: `: "sixteen-letters0": must be at most 15 bytes without spaces, control characters, quotes, backslashes, / and :`}},
	{field: "detectLocal.interfaceNamePrefix", set: "cali", with: map[string]string{"detectLocalMode": "InterfaceNamePrefix"}, wrong: map[string]string{
		`""`: `: "": must be the name prefix of the pods' interfaces, which detectLocalMode InterfaceNamePrefix needs`}},
	{field: "clusterCIDR", set: "10.0.0.0/8,fd00::/8", wrong: map[string]string{
		"10.0.0.1":                  `: "10.0.0.1": must be a range like 10.244.0.0/16, or one of each family separated by a comma`,
		"fd00::/8,fd01::/16":        `: "fd00::/8,fd01::/16": must be one range, or one of each family`,
		"10.0.0.0/8,fd::/8,fe::/16": `: "10.0.0.0/8,fd::/8,fe::/16": must be one range, or one of each family`}},
	{field: "nodePortAddresses", set: "[primary, 10.0.0.0/8, localhost, all]", want: `["primary","10.0.0.0/8","localhost","all"]`, wrong: map[string]string{
		"[primary, 10.0.0.0/8, primary]": `[2]: "primary": must be listed once`, "[Primary]": `[0]: "Primary": must be a range like 192.168.0.0/24, or primary, localhost or all`}},

	{field: "oomScoreAdj", def: "-999", set: "0", wrong: map[string]string{"1001": ": 1001: must be -1000 to 1000", "-1001": ": -1001: must be -1000 to 1000"}},
	{field: "conntrack.maxPerCore", def: "32768", set: "0", wrong: map[string]string{"-1": ": -1: must be 0 or more"}},
	{field: "conntrack.min", def: "131072", set: "0", wrong: map[string]string{"-1": ": -1: must be 0 or more"}},
	{field: "conntrack.tcpEstablishedTimeout", def: "24h0m0s", set: "0s", wrong: map[string]string{"-1s": ": -1s: must be 0 or more"}},
	{field: "conntrack.tcpCloseWaitTimeout", def: "1h0m0s", set: "0s", wrong: map[string]string{"-1s": ": -1s: must be 0 or more"}},
	{field: "conntrack.tcpBeLiberal", def: "false", set: "true", wrong: map[string]string{"5": ": 5: " + wantBool}},
	{field: "conntrack.udpTimeout", def: "0s", set: "1s", wrong: map[string]string{"-1s": ": -1s: must be 0 or more"}},
	{field: "conntrack.udpStreamTimeout", def: "0s", set: "1s", wrong: map[string]string{"-1s": ": -1s: must be 0 or more"}},
	{field: "configSyncPeriod", def: "15m0s", set: "1m", want: "1m0s", wrong: map[string]string{"-1s": ": -1s: must be more than 0"}},
	{field: "portRange", set: "1000-2000", wrong: map[string]string{"5": ": 5: " + wantText}},
	{field: "windowsRunAsService", def: "false", set: "true", wrong: map[string]string{"5": ": 5: " + wantBool}},

	{field: "SluiceConfiguration.apiVersion", def: "sluice.dev/v1alpha1", set: "sluice.dev/v1alpha1"},
	{field: "SluiceConfiguration.kind", def: "SluiceConfiguration", set: "SluiceConfiguration"},
	{field: "SluiceConfiguration.log.level", set: "warn", wrong: map[string]string{"loud": `: "loud": must be debug, info, warn or error`}},
	{field: "SluiceConfiguration.log.format", set: "auto", wrong: map[string]string{"xml": `: "xml": must be text, json, console or auto`}},
	{field: "SluiceConfiguration.actors.objectsMax", def: "50000", set: "5", wrong: map[string]string{"-1": ": -1: must be 1 or more"}},
	{field: "SluiceConfiguration.addresses.denied",
		def: `["168.63.129.16/32","192.0.0.192/32","fd00:ec2::254/128","fd20:ce::254/128"]`, set: "[10.0.0.0/8, fd00::/8]",
		want: `["10.0.0.0/8","fd00::/8"]`, wrong: map[string]string{`[10.0.0.0/8, "10.0.0.1"]`: `[1]: "10.0.0.1": must be a range like 192.168.0.0/24`}},
	{field: "SluiceConfiguration.addresses.deniedPorts", def: "[10250]", set: "[22, 10250]", want: "[22,10250]", wrong: map[string]string{
		"[22, 0]": "[1]: 0: must be 1 to 65535", "[65536]": "[0]: 65536: must be 1 to 65535"}},
	{field: "SluiceConfiguration.addresses.externalIPsInServiceCIDR", def: "false", set: "true", wrong: map[string]string{"5": ": 5: " + wantBool}},
	{field: "SluiceConfiguration.ipvs.serviceSchedulers", def: `["lc","rr","sh","wlc","wrr"]`, set: "[]", want: "[]", wrong: map[string]string{
		"[rr, fastest]": `[1]: "fastest": must be dh, fo, lblc, lblcr, lc, mh, nq, ovf, rr, sed, sh, wlc or wrr`}},
	{field: "SluiceConfiguration.iptables.variant", def: "auto", set: "legacy", wrong: map[string]string{"old": `: "old": must be auto, legacy or nft`}},
	{field: "SluiceConfiguration.nftables.localhostNodePorts", def: "true", set: "false", wrong: map[string]string{"5": ": 5: " + wantBool}},
	{field: "SluiceConfiguration.nftables.offload", def: "off", set: "tcp", wrong: map[string]string{
		"udp": `: "udp": must be off or tcp`}},
	{field: "SluiceConfiguration.healthz.disabled", def: "false", set: "true", with: map[string]string{"healthzBindAddress": "0.0.0.0"}, wrong: map[string]string{"5": ": 5: " + wantBool}},
	{field: "SluiceConfiguration.userspace.exposeHostPorts", def: "false", set: "true", wrong: map[string]string{"5": ": 5: " + wantBool}},
	{field: "SluiceConfiguration.userspace.answerARP", def: "false", set: "true", wrong: map[string]string{"5": ": 5: " + wantBool}},
	{field: "SluiceConfiguration.userspace.connectionsPerClient", def: "0", set: "5000", wrong: map[string]string{"-1": ": -1: must be 0 or more"}},
	{field: "SluiceConfiguration.balancing.drainDeadline", def: "0s", set: "1h", want: "1h0m0s", wrong: map[string]string{"-1s": ": -1s: must be 0s to 24h"}},
	{field: "SluiceConfiguration.balancing.observeConnections", def: "off", set: "shop,team-a", wrong: map[string]string{
		"5": ": 5: " + wantText, "shop, team-a": `: "shop, team-a": must be off, all, or names of namespaces, separated by commas without spaces`}},
	{field: "SluiceConfiguration.balancing.seed", def: "0", set: "7", wrong: map[string]string{"-1": ": -1: must be 0 or more"}},
	{field: "SluiceConfiguration.traffic.endpoints", def: "false", set: "true", wrong: map[string]string{"5": ": 5: " + wantBool}},
	{field: "SluiceConfiguration.traffic.flowLog", def: "off", set: "annotated", wrong: map[string]string{"some": `: "some": must be off, annotated or all`}},
	{field: "SluiceConfiguration.traffic.flowLogFile", set: "/var/log/flows.log"},
	{field: "SluiceConfiguration.metrics.servicesMax", def: "0", set: "100", wrong: map[string]string{"-1": ": -1: must be 0 or more"}},
	{field: "SluiceConfiguration.metrics.hosts", def: "[]", set: "[node-1.example.com, Kubernetes.example.com.]", want: `["node-1.example.com","Kubernetes.example.com."]`,
		wrong: map[string]string{
			`["*", "node-1:80"]`: `[1]: "node-1:80": must be a host name without a port, or * for all`,
			`["*.example.com"]`:  `[0]: "*.example.com": must be a host name without a port, or * for all`,
			`[""]`:               `[0]: "": must be a host name without a port, or * for all`,
		}},
	{field: "SluiceConfiguration.selfTest.enabled", def: "true", set: "false", wrong: map[string]string{"5": ": 5: " + wantBool}},
	{field: "SluiceConfiguration.healthz.endpoints", def: "true", set: "false", wrong: map[string]string{"5": ": 5: " + wantBool}},
	{field: "SluiceConfiguration.traffic.accounting", def: "false", set: "true", wrong: map[string]string{"5": ": 5: " + wantBool}},
	{field: "SluiceConfiguration.ui.enabled", def: "false", set: "true", wrong: map[string]string{"5": ": 5: " + wantBool}},
	{field: "SluiceConfiguration.healthz.probeAddress", set: "127.0.0.1:10256", wrong: map[string]string{"10256": `: 10256: ` + wantText, "127.0.0.1": `: "127.0.0.1": ` + wantPort}},
	{field: "SluiceConfiguration.reload", def: "immediately", set: `"off"`, want: "off", wrong: map[string]string{"later": `: "later": must be immediately or off`}},
	{field: "SluiceConfiguration.inspection.bindAddress", set: "0.0.0.0:10253", wrong: map[string]string{"10253": `: 10253: ` + wantText, "0.0.0.0": `: "0.0.0.0": ` + wantPort}},
	{field: "SluiceConfiguration.security.certFile", set: "/etc/tls/tls.crt",
		wrong: map[string]string{"tls.crt": `: "tls.crt": must be an absolute path of a PEM file`}},
	{field: "SluiceConfiguration.security.keyFile", set: "/etc/tls/tls.key", with: map[string]string{"SluiceConfiguration.security.certFile": "/etc/tls/tls.crt"},
		wrong: map[string]string{"tls.key": `: "tls.key": must be an absolute path of a PEM file`}},
	{field: "SluiceConfiguration.security.selfSigned", def: "false", set: "true", wrong: map[string]string{"5": ": 5: " + wantBool}},
	{field: "SluiceConfiguration.security.clientCAFile", set: "/etc/tls/ca.crt", with: map[string]string{"SluiceConfiguration.security.selfSigned": "true"},
		wrong: map[string]string{"ca.crt": `: "ca.crt": must be an absolute path of a PEM file`}},
	{field: "SluiceConfiguration.security.authorization", def: "delegated", set: "none", wrong: map[string]string{"all": `: "all": must be delegated or none`}},
	{field: "SluiceConfiguration.security.inspection", def: "false", set: "true", wrong: map[string]string{"5": ": 5: " + wantBool}},
	{field: "SluiceConfiguration.tracing.endpoint", set: "http://127.0.0.1:4318", wrong: map[string]string{
		"127.0.0.1:4318": `: "127.0.0.1:4318": ` + wantOTLP, "grpc://collector:4317": `: "grpc://collector:4317": ` + wantOTLP,
		"http://a:4318/v1/traces": `: "http://a:4318/v1/traces": ` + wantOTLP}},
	{field: "SluiceConfiguration.tracing.samplingRatePerMillion", def: "0", set: "10000", wrong: map[string]string{
		"-1": `: -1: must be 0 to 1000000`, "1000001": `: 1000001: must be 0 to 1000000`}},
	{field: "SluiceConfiguration.tracing.slowThreshold", def: "1s", set: "200ms", wrong: map[string]string{"-1s": `: -1s: must be more than 0`}},
	{field: "SluiceConfiguration.state.dir", def: "/run/sluice", set: "/run/other", wrong: map[string]string{"run": `: "run": must be an absolute path of a directory`}},
}

// allFields returns the paths of all fields of the types.
func allFields() []string {
	fields := pathsOf(reflect.TypeFor[v1alpha1.KubeProxyConfiguration]())
	for _, field := range pathsOf(reflect.TypeFor[SluiceConfiguration]()) {
		fields = append(fields, sluicePrefix+field)
	}
	return fields
}

// TestFields_Complete checks that the table of cases contains every field.
func TestFields_Complete(t *testing.T) {
	have := allFields()
	var want []string
	for _, c := range fieldCases {
		want = append(want, c.field)
	}
	slices.Sort(have)
	slices.Sort(want)
	if !slices.Equal(have, want) {
		t.Errorf("fields %v\nwant   %v", have, want)
	}
}

// text returns a file with a value for the field.
func (c fieldCase) text(t *testing.T, value string) string {
	t.Helper()
	set := map[string]string{c.field: value}
	maps.Copy(set, c.with)
	return textOf(t, set)
}

// textOf returns a file with some fields, given as YAML.
func textOf(t *testing.T, set map[string]string) string {
	t.Helper()
	trees := map[bool]map[string]any{
		false: {"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration"},
		true:  {"apiVersion": SluiceAPIVersion, "kind": SluiceKind},
	}
	for field, value := range set {
		path, second := strings.CutPrefix(field, sluicePrefix)
		tree, names := trees[second], strings.Split(path, ".")
		for _, name := range names[:len(names)-1] {
			if tree[name] == nil {
				tree[name] = map[string]any{}
			}
			tree = tree[name].(map[string]any)
		}
		var parsed any
		if err := yaml.Unmarshal([]byte(value), &parsed); err != nil {
			t.Fatal(err)
		}
		tree[names[len(names)-1]] = parsed
	}
	first, err := yaml.Marshal(trees[false])
	if err != nil {
		t.Fatal(err)
	}
	second, err := yaml.Marshal(trees[true])
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s---\n%s", first, second)
}

func TestFields(t *testing.T) {
	empty, _ := load(t, "--config", write(t, kubeProxyHead))
	for _, c := range fieldCases {
		t.Run(c.field, func(t *testing.T) {
			if def := valueAt(empty, c.field); def != c.def {
				t.Errorf("default %q, want %q", def, c.def)
			}
			loaded, warnings := load(t, "--config", write(t, c.text(t, c.set)))
			want := c.want
			if want == "" {
				want = c.set
			}
			if is := valueAt(loaded, c.field); is != want || len(warnings) > 0 {
				t.Errorf("%s: %q, want %q; warnings %v", c.set, is, want, warnings)
			}
			again(t, loaded)
			for value, said := range c.wrong {
				if said == "" { // zero and less: the minSyncPeriod does not fit either
					said = ": " + value + ": must be more than 0"
				}
				file := write(t, c.text(t, value))
				line := regexp.MustCompile(`(?m)^ *` + regexp.QuoteMeta(file) + `:\d+: ` + regexp.QuoteMeta(c.field+said) + `$`)
				if text := rejected("--config", file); !line.MatchString(text) {
					t.Errorf("%s: error %q\nwant %q", value, text, c.field+said)
				}
			}
		})
	}
}
