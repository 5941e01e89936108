// SPDX-License-Identifier: Apache-2.0

package config

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// The kind of the document that holds Sluice's own settings.
const (
	SluiceAPIVersion = "sluice.dev/v1alpha1"
	SluiceKind       = "SluiceConfiguration"
)

// sluicePrefix starts the paths of fields of SluiceConfiguration, because kube-proxy's
// configuration has some of the same field names.
const sluicePrefix = SluiceKind + "."

// SluiceConfiguration is the table of the settings that kube-proxy does not have. Tags define each field: json is its
// name; help its meaning; default its value if a file omits it; unset describes a default that depends on something
// else; flag is the flag that also sets it. oneof, min, max and is define the checks (table.go).
type SluiceConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	Log LogConfiguration `json:"log"`

	Actors struct {
		ObjectsMax int32 `json:"objectsMax" default:"50000" min:"1" help:"maximum number of objects of one Service in one IP family; frontends above it are left out"`
	} `json:"actors"`

	Addresses struct {
		// By default, Denied contains the metadata and platform servers that are not link-local: Azure's WireServer, and
		// those of older instances of Oracle Cloud, of AWS and of Google Cloud.
		Denied                   []string `json:"denied" default:"[\"168.63.129.16/32\",\"192.0.0.192/32\",\"fd00:ec2::254/128\",\"fd20:ce::254/128\"]" is:"range" help:"forbidden ranges for endpoints, external IPs and load balancer IPs, in addition to loopback, link-local, multicast and unspecified addresses"`
		DeniedPorts              []int32  `json:"deniedPorts" default:"[10250]" min:"1" max:"65535" help:"TCP ports of nodes that no Service gets at external IPs and load balancer IPs, in addition to the ports of Sluice's own addresses"`
		ExternalIPsInServiceCIDR bool     `json:"externalIPsInServiceCIDR" help:"handle external IPs inside the ranges of ServiceCIDR objects"`
	} `json:"addresses"`

	IPTables struct {
		Variant string `json:"variant" default:"auto" oneof:"auto,legacy,nft" help:"iptables binaries to use: auto, legacy or nft"`
	} `json:"iptables"`

	NFTables struct {
		// LocalhostNodePorts is on by default if no mode is set, because iptables mode may have answered there before.
		LocalhostNodePorts *bool  `json:"localhostNodePorts" unset:"true unless the mode is nftables" help:"make node ports respond on 127.0.0.1 and ::1 in nftables mode"`
		Offload            string `json:"offload" default:"off" oneof:"off,tcp" help:"connections to Services that bypass netfilter and routing once they are established: off or tcp (nftables mode)"`
	} `json:"nftables"`

	IPVS struct {
		// ServiceSchedulers are kernel modules. The default ones keep no table per virtual server, or a small one.
		ServiceSchedulers []string `json:"serviceSchedulers" default:"[\"lc\",\"rr\",\"sh\",\"wlc\",\"wrr\"]" oneof:"dh,fo,lblc,lblcr,lc,mh,nq,ovf,rr,sed,sh,wlc,wrr" help:"schedulers that a Service may select by annotation (IPVS mode)"`
	} `json:"ipvs"`

	Userspace struct {
		ExposeHostPorts      bool  `json:"exposeHostPorts" help:"start even if the kernel lacks nf_tables and host processes are reachable at Service addresses (userspace mode)"`
		AnswerARP            bool  `json:"answerARP" help:"leave arp_ignore and arp_announce unchanged, so that every node responds to ARP requests for Service addresses (userspace mode)"`
		ConnectionsPerClient int32 `json:"connectionsPerClient" min:"0" help:"maximum number of TCP connections, and of UDP sessions, of one client address; 0 means 1/64 of the process limit, at least 256 (userspace mode)"`
	} `json:"userspace"`

	Healthz struct {
		Disabled     bool   `json:"disabled" help:"disable the health server, as --healthz-port=0 does"`
		Endpoints    *bool  `json:"endpoints" default:"true" help:"let the health server answer whether this node sends new connections to an endpoint (GET /endpoints/IP:PORT)"`
		ProbeAddress string `json:"probeAddress" is:"address" help:"address at which the health server answers in addition to healthzBindAddress, for probes of the kubelet; empty disables it"`
	} `json:"healthz"`

	Metrics struct {
		ServicesMax int32    `json:"servicesMax" min:"0" help:"maximum number of Services with individual metrics at /metrics, slowest first; /metrics/services includes all"`
		Hosts       []string `json:"hosts" default:"[]" is:"host" help:"additional host names that requests to the metrics address may use; * allows all"`
	} `json:"metrics"`

	Traffic struct {
		Accounting  bool   `json:"accounting" help:"count packets and bytes of each connection in the kernel, and add them up by Service, endpoint and client (all modes except userspace)"`
		Endpoints   bool   `json:"endpoints" help:"count new connections by endpoint, in addition to by Service (nftables and IPVS modes; iptables and userspace modes always do)"`
		FlowLog     string `json:"flowLog" default:"off" oneof:"off,annotated,all" help:"connections in the flow log: off, annotated (of Services with the annotation sluice.dev/flow-log) or all"`
		FlowLogFile string `json:"flowLogFile" help:"file of the flow log; standard output if empty or -"`
	} `json:"traffic"`

	SelfTest struct {
		Enabled *bool `json:"enabled" default:"true" help:"connect to a frontend on loopback addresses every minute, to check that packets follow the rules (nftables and iptables modes)"`
	} `json:"selfTest"`

	Balancing struct {
		Seed          int32           `json:"seed" min:"0" help:"number that hashes of clients begin with, the same on all nodes (nftables and userspace modes)"`
		DrainDeadline metav1.Duration `json:"drainDeadline" min:"0s" max:"24h" help:"maximum lifetime of connections to an endpoint that was removed from a Service without the annotation sluice.dev/drain; 0 means no limit in nftables and iptables modes, and 15 min in IPVS and userspace modes"`
		// ObserveConnections makes connections to all Services of a node cost more, so it limits who may ask for it.
		ObserveConnections Observed `json:"observeConnections" default:"off" help:"let Services ask for sluice.dev/outlier and leastConnections, for which the kernel announces all connections of the node: off, all, or the names of namespaces"`
	} `json:"balancing"`

	UI struct {
		Enabled bool `json:"enabled" flag:"sluice-ui" help:"serve the web UI at /ui/ on the metrics address (without authentication unless security is on)"`
	} `json:"ui"`

	Security   SecurityConfiguration `json:"security"`
	Tracing    TracingConfiguration  `json:"tracing"`
	Inspection struct {
		BindAddress string `json:"bindAddress" is:"address" help:"address at which the proxy answers kubectl sluice (without authentication unless security.inspection is set); empty disables it"`
	} `json:"inspection"`

	State struct {
		// Dir should not survive a reboot, because sysctl values do not. Each network namespace needs its own.
		Dir string `json:"dir" flag:"sluice-state-dir" default:"/run/sluice" is:"directory" help:"directory for runtime state (original sysctl values, socket)"`
	} `json:"state"`

	Reload string `json:"reload" default:"immediately" oneof:"immediately,off" help:"when a changed configuration file is applied: immediately, or off, which only reports it"`
}

// LogConfiguration specifies what is logged, and how.
type LogConfiguration struct {
	Level  string `json:"level" unset:"info" oneof:"debug,info,warn,error" help:"minimum log level: debug, info, warn or error; -v then applies to libraries only"`
	Format string `json:"format" unset:"the value of --logging-format" oneof:"text,json,console,auto" help:"log format: text (klog's), json, console, or auto (console on a terminal, otherwise json)"`
}

// SecurityConfiguration protects metricsBindAddress if other hosts reach it; see docs/security.md.
type SecurityConfiguration struct {
	CertFile      string `json:"certFile" is:"file" help:"PEM file with the certificate of the metrics address, if that is not a loopback address, and its chain"`
	KeyFile       string `json:"keyFile" is:"file" help:"PEM file with the key of the certificate; without it, certFile contains both"`
	SelfSigned    bool   `json:"selfSigned" help:"sign a certificate for the metrics address, which clients cannot verify"`
	ClientCAFile  string `json:"clientCAFile" is:"file" help:"PEM file with the authorities of client certificates"`
	Authorization string `json:"authorization" default:"delegated" oneof:"delegated,none" help:"who gets answers over HTTPS: delegated (callers that the API server allows) or none (all)"`
	Inspection    bool   `json:"inspection" help:"answer kubectl sluice over HTTPS, and only callers that the API server allows"`
}

// TracingConfiguration exports the path of changes as OpenTelemetry spans; see docs/monitoring.md.
type TracingConfiguration struct {
	Endpoint               string          `json:"endpoint" is:"url" help:"URL of a receiver of OpenTelemetry spans (OTLP over HTTP), like http://127.0.0.1:4318; empty disables the export"`
	SamplingRatePerMillion int32           `json:"samplingRatePerMillion" min:"0" max:"1000000" help:"number of exported changes per million; slow and rejected changes are always exported"`
	SlowThreshold          metav1.Duration `json:"slowThreshold" default:"1s" is:"positive" help:"time from the receipt of a change until it is in the kernel, above which the change is always exported"`
}

// Values of SluiceConfiguration.Reload: when a running proxy applies a changed file.
const (
	ReloadImmediately = "immediately"
	ReloadOff         = "off"
)

// The values of NFTables.Offload.
const (
	OffloadOff = "off"
	OffloadTCP = "tcp"
)

// Values of Traffic.FlowLog.
const (
	FlowLogOff       = "off"
	FlowLogAnnotated = "annotated"
	FlowLogAll       = "all"
)

// Values of SecurityConfiguration.Authorization.
const (
	AuthorizationDelegated = "delegated"
	AuthorizationNone      = "none"
)

// AllHosts in Metrics.Hosts stands for every name.
const AllHosts = "*"

// On reports whether there is a certificate.
func (s *SecurityConfiguration) On() bool { return s.CertFile != "" || s.SelfSigned }

// setModeDefaults fills in the defaults that depend on the mode, after flags and files have set it.
func (s *SluiceConfiguration) setModeDefaults(mode Mode) {
	setPointer(&s.NFTables.LocalhostNodePorts, mode != ModeNFTables)
}

// check checks each field, and that fields fit together.
func (s *SluiceConfiguration) check(found *findings) {
	checkTable(s, found)
	p, c := sluicePrefix+"security.", &s.Security
	if c.KeyFile != "" && c.CertFile == "" {
		found.wrong(p+"keyFile", c.KeyFile, "empty without security.certFile")
	}
	if c.SelfSigned && c.CertFile != "" {
		found.wrong(p+"selfSigned", true, "false, because security.certFile is set")
	}
	if c.ClientCAFile != "" && !c.On() {
		found.wrong(p+"clientCAFile", c.ClientCAFile, "empty without security.certFile or security.selfSigned")
	}
}

// former are the fields that earlier versions had, with the remedy.
var former = map[string]string{
	"waves":                  "change the configuration of nodes by a rolling update of the DaemonSet (docs/upgrade.md)",
	"pace":                   "syncPeriod and minSyncPeriod of the mode set the pace",
	"start":                  "the waits are constants",
	"conntrack":              "the window is a constant",
	"actors.messageDeadline": "the deadline is a constant",
	"ipvs.drainDeadline":     "use balancing.drainDeadline",
	"userspace.balancing":    "use the annotation sluice.dev/balancing of Services",
	"userspace.accessLog":    "use traffic.flowLog: all",
}
