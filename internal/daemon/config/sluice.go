package config

import (
	"path/filepath"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-proxy/sluice/internal/document"
)

// The kind of the document that holds Sluice's own settings.
const (
	SluiceAPIVersion = "sluice.dev/v1alpha1"
	SluiceKind       = "SluiceConfiguration"
)

// sluicePrefix starts the paths of fields in the second document, which shares some
// names with the first.
const sluicePrefix = SluiceKind + "."

// SluiceConfiguration holds the settings that kube-proxy does not have. Omitted fields take
// the defaults named here; each has a flag, which overrides it.
type SluiceConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	Log        LogConfiguration        `json:"log"`
	Pace       PaceConfiguration       `json:"pace"`
	Start      StartConfiguration      `json:"start"`
	Actors     ActorsConfiguration     `json:"actors"`
	Addresses  AddressesConfiguration  `json:"addresses"`
	IPTables   IPTablesConfiguration   `json:"iptables"`
	NFTables   NFTablesConfiguration   `json:"nftables"`
	IPVS       IPVSConfiguration       `json:"ipvs"`
	Userspace  UserspaceConfiguration  `json:"userspace"`
	Healthz    HealthzConfiguration    `json:"healthz"`
	Conntrack  ConntrackConfiguration  `json:"conntrack"`
	Metrics    MetricsConfiguration    `json:"metrics"`
	Traffic    TrafficConfiguration    `json:"traffic"`
	SelfTest   SelfTestConfiguration   `json:"selfTest"`
	Balancing  BalancingConfiguration  `json:"balancing"`
	UI         UIConfiguration         `json:"ui"`
	Security   SecurityConfiguration   `json:"security"`
	Tracing    TracingConfiguration    `json:"tracing"`
	Inspection InspectionConfiguration `json:"inspection"`
	State      StateConfiguration      `json:"state"`
	// Reload says when a running proxy applies a changed file: ReloadImmediately, or ReloadOff, which only reports the
	// change. Default: ReloadImmediately.
	Reload string `json:"reload"`
}

// Values of SluiceConfiguration.Reload.
const (
	ReloadImmediately = "immediately"
	ReloadOff         = "off"
)

// LogConfiguration says what is logged, and how.
type LogConfiguration struct {
	// Level is debug, info, warn or error. Empty: info, and what logging.verbosity adds.
	Level string `json:"level"`
	// Format is text (klog's), json, console, or auto: console on a terminal, otherwise
	// json. Empty: logging.format.
	Format string `json:"format"`
}

// PaceConfiguration says when kernel rules are written; see aggregator.Pace.
type PaceConfiguration struct {
	// MinInterval is the shortest pause between the end of one write and the start of the
	// next. Unset: the minSyncPeriod of the mode if the configuration names one,
	// otherwise 0 in nftables mode, and by maxWriteShare in iptables mode.
	MinInterval *metav1.Duration `json:"minInterval,omitempty"`
	// MaxDelay is the longest time from a change to the start of its write; it
	// overrides a pause. Unset: 1 s, or the minimum interval if that is longer.
	MaxDelay *metav1.Duration `json:"maxDelay,omitempty"`
	// MaxWriteShare is the largest share of time spent writing while changes go on, from 0
	// to 1; 0 means no limit. Unset: 0.25 in iptables mode unless a minimum interval is named,
	// otherwise 0.
	MaxWriteShare *float64 `json:"maxWriteShare,omitempty"`
	// AuditInterval is the interval between audits of the kernel. Unset: the
	// syncPeriod of the mode; if that is kube-proxy's default of 30 s, 5 min in
	// nftables mode, where the kernel announces changes by other programs.
	AuditInterval *metav1.Duration `json:"auditInterval,omitempty"`
	// BackoffMin and BackoffMax bound the pause after failed writes, which
	// doubles with each failure. Defaults: 100 ms and 30 s.
	BackoffMin metav1.Duration `json:"backoffMin"`
	BackoffMax metav1.Duration `json:"backoffMax"`
}

// StartConfiguration bounds the waits before the first rule is written.
type StartConfiguration struct {
	// NodeWait is how long the first rules wait for the Node object; 0 means not at
	// all. Default: 30 s.
	NodeWait *metav1.Duration `json:"nodeWait"`
	// GateWait is how long they wait for the next Service that the API server has
	// named and whose rules are not ready. Default: 10 s.
	GateWait metav1.Duration `json:"gateWait"`
}

// ActorsConfiguration bounds the actors, one per Service.
type ActorsConfiguration struct {
	// MessageDeadline is the longest time an actor may spend on one message before it
	// is replaced. Default: 10 s.
	MessageDeadline metav1.Duration `json:"messageDeadline"`
	// ObjectsMax is the maximum number of objects that one Service may ask for in one
	// domain: about its frontends times its endpoints. Default: 50,000.
	ObjectsMax int32 `json:"objectsMax"`
}

// AddressesConfiguration says which addresses Services may have.
type AddressesConfiguration struct {
	// Denied are ranges that no endpoint, external IP or load balancer IP may be in, besides
	// loopback, link-local, multicast and unspecified addresses, which never may. Default: the
	// metadata and platform servers of cloud providers.
	Denied []string `json:"denied"`
	// DeniedPorts are TCP ports of nodes. No Service gets them at an external IP or a load balancer IP, which may be
	// an address of a node. The ports of Sluice's own addresses are denied, too. Default: 10250, the kubelet.
	DeniedPorts []int32 `json:"deniedPorts"`
	// ExternalIPsInServiceCIDR serves external IPs inside ServiceCIDRs, from which the API server
	// allocates ClusterIPs. Default: false.
	ExternalIPsInServiceCIDR bool `json:"externalIPsInServiceCIDR"`
}

// deniedAddresses is the default of AddressesConfiguration.Denied. Most metadata servers are at
// 169.254.169.254, which is link-local.
var deniedAddresses = []string{
	"168.63.129.16/32",                      // Azure: WireServer
	"192.0.0.192/32",                        // Oracle Cloud: metadata of older instances
	"fd00:ec2::254/128", "fd20:ce::254/128", // AWS, Google Cloud: metadata
}

// IPTablesConfiguration is for mode iptables.
type IPTablesConfiguration struct {
	// Variant selects the iptables programs: legacy, nft, or auto, which follows the
	// host. Default: auto.
	Variant string `json:"variant"`
}

// NFTablesConfiguration is for mode nftables.
type NFTablesConfiguration struct {
	// LocalhostNodePorts lets node ports answer on 127.0.0.1 and ::1 too, unlike
	// kube-proxy in this mode. Default: false if the configuration sets this mode, and
	// true if Sluice chose it, because iptables mode answered there before.
	LocalhostNodePorts *bool `json:"localhostNodePorts"`
	// Offload moves established TCP connections to Services past netfilter and routing (tcp), or does not (off);
	// see docs/offload.md. Default: off.
	Offload string `json:"offload"`
}

// The values of NFTablesConfiguration.Offload.
const (
	OffloadOff = "off"
	OffloadTCP = "tcp"
)

// IPVSConfiguration is for mode ipvs.
type IPVSConfiguration struct {
	// DrainDeadline is the longest time that a removed TCP endpoint keeps its
	// connections. kube-proxy has no limit. Default: 15 min.
	DrainDeadline metav1.Duration `json:"drainDeadline"`
	// ServiceSchedulers are the schedulers that a Service may choose by annotation. Each is a kernel
	// module that is loaded on demand. Default: lc, rr, sh, wlc and wrr, which keep no table per
	// virtual server, or a small one.
	ServiceSchedulers []string `json:"serviceSchedulers"`
}

// UserspaceConfiguration is for mode userspace.
type UserspaceConfiguration struct {
	// Balancing says which endpoint the next client gets: roundRobin, or leastConnections
	// for the one with the fewest open connections. Default: roundRobin.
	Balancing string `json:"balancing"`
	// AccessLog is the old name of traffic.flowLog: all. Default: false.
	AccessLog bool `json:"accessLog"`
	// ExposeHostPorts starts the mode on a kernel without nf_tables, where programs of the host that listen
	// on all addresses answer at addresses of Services. Default: false.
	ExposeHostPorts bool `json:"exposeHostPorts"`
	// AnswerARP leaves the sysctls alone that keep the node from answering ARP requests for addresses of
	// Services. Default: false.
	AnswerARP bool `json:"answerARP"`
	// ConnectionsPerClient is the maximum number of TCP connections, and of UDP sessions, of one
	// client address over all Services; an IPv6 /64 may have eight times as many. Default: 0, a
	// 64th of those of the process, at least 256.
	ConnectionsPerClient int32 `json:"connectionsPerClient"`
}

// The values of UserspaceConfiguration.Balancing.
const (
	BalanceRoundRobin       = "roundRobin"
	BalanceLeastConnections = "leastConnections"
)

// HealthzConfiguration is about the health server.
type HealthzConfiguration struct {
	// Disabled disables the server at healthzBindAddress, as --healthz-port=0 does;
	// kube-proxy's own document cannot express that. Default: false.
	Disabled bool `json:"disabled"`
	// Endpoints lets the server answer whether this node sends new connections to an endpoint, without names of
	// Services; see docs/balancing.md. Default: true.
	Endpoints *bool `json:"endpoints"`
	// ProbeAddress is an IP address and port at which the server answers as well, for the probes of the kubelet: their
	// address is in the pod, and does not change with the file. Empty: none. Default: empty.
	ProbeAddress string `json:"probeAddress"`
}

// ConntrackConfiguration is about the removal of stale flows.
type ConntrackConfiguration struct {
	// BatchWindow is how long a change waits for others that the same sweep can handle.
	// Default: 20 ms.
	BatchWindow metav1.Duration `json:"batchWindow"`
}

// TrafficConfiguration is about what is known of the traffic to Services.
type TrafficConfiguration struct {
	// Accounting makes the kernel count packets and bytes of each connection (net.netfilter.nf_conntrack_acct), and
	// reads these counters every 15 s, or less often if that takes more than 2 % of the time. Default: false.
	Accounting bool `json:"accounting"`
	// Endpoints counts new connections by endpoint, in nftables mode. By Service they are always counted.
	// Default: false.
	Endpoints bool `json:"endpoints"`
	// FlowLog says which connections get a line of JSON in the flow log: FlowLogOff, FlowLogAnnotated (those of Services
	// with the annotation sluice.dev/flow-log) or FlowLogAll. Default: FlowLogOff.
	FlowLog string `json:"flowLog"`
	// FlowLogFile is the file of the flow log; empty or "-" means standard output. Default: empty.
	FlowLogFile string `json:"flowLogFile"`
}

// Values of TrafficConfiguration.FlowLog.
const (
	FlowLogOff       = "off"
	FlowLogAnnotated = "annotated"
	FlowLogAll       = "all"
)

// SelfTestConfiguration is about the test of the rules with packets; see docs/health.md.
type SelfTestConfiguration struct {
	// Enabled makes the proxy connect to a frontend on loopback addresses every minute, in nftables and iptables
	// modes. Default: true.
	Enabled *bool `json:"enabled"`
}

// BalancingConfiguration is about the choice of endpoints.
type BalancingConfiguration struct {
	// Seed is what hashes of clients begin with, in the modes nftables and userspace. All nodes need the same one. With
	// a secret one, clients cannot predict which endpoint they get. Default: 0.
	Seed int32 `json:"seed"`
	// DrainDeadline is how long connections to an endpoint that has left stay open, for Services without the annotation
	// sluice.dev/drain. 0 is the default of the mode: no limit in the modes nftables and iptables, ipvs.drainDeadline in
	// mode ipvs, and 15 min in mode userspace. Default: 0.
	DrainDeadline metav1.Duration `json:"drainDeadline"`
	// ObserveConnections lets Services ask for what needs the kernel's announcements of all connections, for which all
	// Services of a node pay: sluice.dev/outlier, and in mode nftables sluice.dev/balancing: leastConnections. It is
	// ObserveOff, ObserveAll, or the names of the namespaces whose Services may, separated by commas. Default: ObserveOff.
	ObserveConnections Observed `json:"observeConnections"`
}

// MetricsConfiguration is about metrics.
type MetricsConfiguration struct {
	// ServicesMax is the maximum number of Services with their own metrics at
	// /metrics; /metrics/services has all. Default: 0.
	ServicesMax int32 `json:"servicesMax"`
	// Hosts are further names that requests to metricsBindAddress may have in their Host header,
	// besides those of the node; AllHosts stands for all. Default: none.
	Hosts []string `json:"hosts"`
}

// AllHosts in MetricsConfiguration.Hosts stands for every name.
const AllHosts = "*"

// UIConfiguration is about the page for people.
type UIConfiguration struct {
	// Enabled serves the page at /ui/ of metricsBindAddress. Default: false.
	Enabled bool `json:"enabled"`
}

// StateConfiguration is about state besides the rules that outlives the process.
type StateConfiguration struct {
	// Dir is the directory of the record of former kernel settings; the clean-up needs
	// the same one. Like the settings, it should not survive a reboot. Each network
	// namespace needs its own. Default: /run/sluice.
	Dir string `json:"dir"`
}

// setDefaults fills in what a file omits.
func (s *SluiceConfiguration) setDefaults() {
	s.APIVersion, s.Kind = SluiceAPIVersion, SluiceKind
	for _, d := range []struct {
		field *metav1.Duration
		value time.Duration
	}{
		{&s.Pace.BackoffMin, 100 * time.Millisecond},
		{&s.Pace.BackoffMax, 30 * time.Second},
		{&s.Start.GateWait, 10 * time.Second},
		{&s.Actors.MessageDeadline, 10 * time.Second},
		{&s.Conntrack.BatchWindow, 20 * time.Millisecond},
		{&s.IPVS.DrainDeadline, 15 * time.Minute},
		{&s.Tracing.SlowThreshold, time.Second},
	} {
		setDuration(d.field, d.value)
	}
	setPointer(&s.Start.NodeWait, metav1.Duration{Duration: 30 * time.Second})
	setPointer(&s.SelfTest.Enabled, true)
	setPointer(&s.Healthz.Endpoints, true)
	if s.Actors.ObjectsMax == 0 {
		s.Actors.ObjectsMax = 50_000
	}
	if s.Addresses.Denied == nil {
		s.Addresses.Denied = slices.Clone(deniedAddresses)
	}
	if s.Addresses.DeniedPorts == nil {
		s.Addresses.DeniedPorts = []int32{10250}
	}
	if s.IPVS.ServiceSchedulers == nil {
		s.IPVS.ServiceSchedulers = []string{"lc", "rr", "sh", "wlc", "wrr"}
	}
	if s.Metrics.Hosts == nil {
		s.Metrics.Hosts = []string{}
	}
	setText(&s.IPTables.Variant, "auto")
	setText(&s.NFTables.Offload, OffloadOff)
	setText(&s.Userspace.Balancing, BalanceRoundRobin)
	setText(&s.Traffic.FlowLog, FlowLogOff)
	setText((*string)(&s.Balancing.ObserveConnections), ObserveOff)
	setText(&s.Security.Authorization, AuthorizationDelegated)
	setText(&s.State.Dir, "/run/sluice")
	setText(&s.Reload, ReloadImmediately)
}

// setModeDefaults fills in what depends on the mode, flags included.
func (s *SluiceConfiguration) setModeDefaults(mode Mode) {
	setPointer(&s.NFTables.LocalhostNodePorts, mode != ModeNFTables)
}

// copy returns a deep copy.
func (s *SluiceConfiguration) copy() SluiceConfiguration {
	c := *s
	c.Pace.MinInterval = clone(s.Pace.MinInterval)
	c.Pace.MaxDelay = clone(s.Pace.MaxDelay)
	c.Pace.MaxWriteShare = clone(s.Pace.MaxWriteShare)
	c.Pace.AuditInterval = clone(s.Pace.AuditInterval)
	c.Start.NodeWait = clone(s.Start.NodeWait)
	c.NFTables.LocalhostNodePorts = clone(s.NFTables.LocalhostNodePorts)
	c.SelfTest.Enabled = clone(s.SelfTest.Enabled)
	c.Healthz.Endpoints = clone(s.Healthz.Endpoints)
	c.Addresses.Denied = slices.Clone(s.Addresses.Denied)
	c.Addresses.DeniedPorts = slices.Clone(s.Addresses.DeniedPorts)
	c.IPVS.ServiceSchedulers = slices.Clone(s.IPVS.ServiceSchedulers)
	c.Metrics.Hosts = slices.Clone(s.Metrics.Hosts)
	return c
}

func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	return ptr.To(*p)
}

// checkSluice checks Sluice's own settings.
func (c *Config) checkSluice(found *findings) {
	s := &c.Sluice
	oneOf(found, "log.level", s.Log.Level, "debug, info, warn or error", "", "debug", "info", "warn", "error")
	oneOf(found, "log.format", s.Log.Format, "text, json, console or auto", "", FormatText, FormatJSON, FormatConsole, FormatAuto)
	oneOf(found, "iptables.variant", s.IPTables.Variant, "auto, legacy or nft", "auto", "legacy", "nft")
	oneOf(found, "nftables.offload", s.NFTables.Offload, OffloadOff+" or "+OffloadTCP, OffloadOff, OffloadTCP)
	oneOf(found, "traffic.flowLog", s.Traffic.FlowLog, "off, annotated or all", FlowLogOff, FlowLogAnnotated, FlowLogAll)
	oneOf(found, "userspace.balancing", s.Userspace.Balancing, BalanceRoundRobin+" or "+BalanceLeastConnections, BalanceRoundRobin, BalanceLeastConnections)
	reload := "immediately or off"
	if s.Reload == "waves" { // which earlier versions had
		reload += "; remove the field, and change the configuration of nodes by a rolling update of the DaemonSet (docs/upgrade.md)"
	}
	oneOf(found, "reload", s.Reload, reload, ReloadImmediately, ReloadOff)
	if s.Healthz.ProbeAddress != "" {
		checkHostPort(sluicePrefix+"healthz.probeAddress", s.Healthz.ProbeAddress, found)
	}
	c.checkPace(found)
	s.Security.check(found)
	s.Tracing.check(found)
	found.notNegative(sluicePrefix+"start.nodeWait", s.Start.NodeWait.Duration)
	found.positive(sluicePrefix+"start.gateWait", s.Start.GateWait.Duration)
	found.positive(sluicePrefix+"actors.messageDeadline", s.Actors.MessageDeadline.Duration)
	found.positive(sluicePrefix+"conntrack.batchWindow", s.Conntrack.BatchWindow.Duration)
	found.positive(sluicePrefix+"ipvs.drainDeadline", s.IPVS.DrainDeadline.Duration)
	for i, text := range s.Addresses.Denied {
		checkRange(document.Index(sluicePrefix+"addresses.denied", i), text, found)
	}
	for i, port := range s.Addresses.DeniedPorts {
		if port < 1 || port > 1<<16-1 {
			found.wrong(document.Index(sluicePrefix+"addresses.deniedPorts", i), port, "a port number (1 to 65535)")
		}
	}
	for i, name := range s.IPVS.ServiceSchedulers {
		oneOf(found, document.Index("ipvs.serviceSchedulers", i), name, "one of "+strings.Join(serviceSchedulers, ", "), serviceSchedulers...)
	}
	if s.Actors.ObjectsMax < 1 {
		found.wrong(sluicePrefix+"actors.objectsMax", s.Actors.ObjectsMax, "1 or more")
	}
	if d := s.Balancing.DrainDeadline.Duration; d < 0 || d > 24*time.Hour {
		found.wrong(sluicePrefix+"balancing.drainDeadline", d, "a duration from 0 to 24h")
	}
	if s.Balancing.Seed < 0 {
		found.wrong(sluicePrefix+"balancing.seed", s.Balancing.Seed, "0 or more")
	}
	if s.Userspace.ConnectionsPerClient < 0 {
		found.wrong(sluicePrefix+"userspace.connectionsPerClient", s.Userspace.ConnectionsPerClient, "0 or more")
	}
	if !filepath.IsAbs(s.State.Dir) {
		found.wrong(sluicePrefix+"state.dir", s.State.Dir, "an absolute path of a directory")
	}
	if s.Metrics.ServicesMax < 0 {
		found.wrong(sluicePrefix+"metrics.servicesMax", s.Metrics.ServicesMax, "0 or more")
	}
	if s.Inspection.BindAddress != "" {
		checkHostPort(sluicePrefix+"inspection.bindAddress", s.Inspection.BindAddress, found)
	}
	for i, name := range s.Metrics.Hosts {
		checkHostName(document.Index(sluicePrefix+"metrics.hosts", i), name, found)
	}
}

func oneOf(found *findings, field, value, want string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		found.wrong(sluicePrefix+field, value, "%s", want)
	}
}

func (c *Config) checkPace(found *findings) {
	p := &c.Sluice.Pace
	if p.MinInterval != nil {
		found.notNegative(sluicePrefix+"pace.minInterval", p.MinInterval.Duration)
	}
	if spacing, _ := c.spacing(); p.MaxDelay != nil && (p.MaxDelay.Duration <= 0 || p.MaxDelay.Duration < spacing) {
		found.wrong(sluicePrefix+"pace.maxDelay", p.MaxDelay.Duration, "more than 0, and at least the minimum interval of %v", spacing)
	}
	if p.MaxWriteShare != nil && (*p.MaxWriteShare < 0 || *p.MaxWriteShare > 1) {
		found.wrong(sluicePrefix+"pace.maxWriteShare", *p.MaxWriteShare, "0 (no limit) to 1")
	}
	if p.AuditInterval != nil {
		found.positive(sluicePrefix+"pace.auditInterval", p.AuditInterval.Duration)
	}
	found.positive(sluicePrefix+"pace.backoffMin", p.BackoffMin.Duration)
	if p.BackoffMax.Duration < p.BackoffMin.Duration {
		found.wrong(sluicePrefix+"pace.backoffMax", p.BackoffMax.Duration, "at least the backoffMin of %v", p.BackoffMin.Duration)
	}
}
