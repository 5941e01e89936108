package config

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-proxy/config/v1alpha1"
	"k8s.io/utils/ptr"
)

// The kind of the document that holds Sluice's own settings.
const (
	SluiceAPIVersion = "sluice.dev/v1alpha1"
	SluiceKind       = "SluiceConfiguration"
)

// SluiceConfiguration holds what kube-proxy has no setting for. Fields that are
// left out take the defaults named here; each has a flag, which counts more.
type SluiceConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	Log       LogConfiguration       `json:"log"`
	Pace      PaceConfiguration      `json:"pace"`
	Start     StartConfiguration     `json:"start"`
	Actors    ActorsConfiguration    `json:"actors"`
	IPTables  IPTablesConfiguration  `json:"iptables"`
	NFTables  NFTablesConfiguration  `json:"nftables"`
	IPVS      IPVSConfiguration      `json:"ipvs"`
	Healthz   HealthzConfiguration   `json:"healthz"`
	Conntrack ConntrackConfiguration `json:"conntrack"`
	Metrics   MetricsConfiguration   `json:"metrics"`
	State     StateConfiguration     `json:"state"`
}

// LogConfiguration says what is logged to standard error.
type LogConfiguration struct {
	// Level is debug, info, warn or error. Empty: debug from logging.verbosity 4
	// on, else info.
	Level string `json:"level"`
	// Format is console, json, or auto: console on a terminal, else json. Empty:
	// console for logging.format text, json for json.
	Format string `json:"format"`
}

// PaceConfiguration says when kernel rules are written; see aggregator.Pace.
type PaceConfiguration struct {
	// Spacing is the shortest pause from the end of one write to the start of the
	// next. Unset: the minSyncPeriod of the mode where the configuration names
	// one. Otherwise 0 in nftables mode, and by writeShare in iptables mode.
	Spacing *metav1.Duration `json:"spacing,omitempty"`
	// Deadline is the longest time from a change to the start of its write; it
	// overrules a pause. Unset: 1 s, or the spacing if that is more.
	Deadline *metav1.Duration `json:"deadline,omitempty"`
	// WriteShare is the largest share of the time that writing may take, which
	// stretches the pause after a write that took long: above 0, at most 1; 0
	// switches it off. Unset: 0.5 in iptables mode unless a spacing is named,
	// else 0.
	WriteShare *float64 `json:"writeShare,omitempty"`
	// AuditInterval is the pause between two comparisons of what is in the kernel
	// with what should be. Unset: the syncPeriod of the mode; where that is
	// kube-proxy's default of 30 s, 5 min in nftables mode, in which the kernel
	// announces what others change.
	AuditInterval *metav1.Duration `json:"auditInterval,omitempty"`
	// BackoffMin and BackoffMax bound the pause after failed writes, which
	// doubles with each failure. Defaults 100 ms and 30 s.
	BackoffMin metav1.Duration `json:"backoffMin"`
	BackoffMax metav1.Duration `json:"backoffMax"`
}

// StartConfiguration bounds the waits before the first rule is written.
type StartConfiguration struct {
	// NodeWait is how long the first rules wait for the Node object. 0 does not
	// wait. Default 30 s.
	NodeWait *metav1.Duration `json:"nodeWait"`
	// GateWait is how long they wait for Services that the API server has named
	// and whose rules are not ready, since the last that were. Default 10 s.
	GateWait metav1.Duration `json:"gateWait"`
}

// ActorsConfiguration bounds the actors, one per Service.
type ActorsConfiguration struct {
	// MessageDeadline is how long an actor may take over one message before it
	// is replaced. Default 10 s.
	MessageDeadline metav1.Duration `json:"messageDeadline"`
	// ServicesMax bounds the number of Services that are served. Default 200,000.
	ServicesMax int32 `json:"servicesMax"`
}

// IPTablesConfiguration is for mode iptables.
type IPTablesConfiguration struct {
	// Variant says which iptables programs are used: legacy, nft, or auto, which
	// follows what the host uses. Default auto.
	Variant string `json:"variant"`
}

// NFTablesConfiguration is for mode nftables.
type NFTablesConfiguration struct {
	// LocalhostNodePorts lets node ports answer on 127.0.0.1 and ::1, too, which
	// kube-proxy does not do in this mode. Default: not where this mode is asked for,
	// and true where it was chosen, for then iptables mode has done it before.
	LocalhostNodePorts *bool `json:"localhostNodePorts"`
}

// IPVSConfiguration is for mode ipvs.
type IPVSConfiguration struct {
	// DrainDeadline is how long a TCP endpoint that has left keeps the connections
	// that it has, at most. kube-proxy knows no end. Default 15 min.
	DrainDeadline metav1.Duration `json:"drainDeadline"`
}

// HealthzConfiguration is about the health server.
type HealthzConfiguration struct {
	// Disabled switches the server at healthzBindAddress off, as --healthz-port=0
	// does; kube-proxy's own document has no word for it. Default false.
	Disabled bool `json:"disabled"`
}

// ConntrackConfiguration is about the removal of stale flows.
type ConntrackConfiguration struct {
	// Gather is how long a change waits for others that can be cleaned up after
	// in the same sweep. Default 20 ms.
	Gather metav1.Duration `json:"gather"`
}

// MetricsConfiguration is about metrics.
type MetricsConfiguration struct {
	// ServicesMax bounds the Services that have metrics of their own at /metrics;
	// those at /metrics/services are not bounded. Default 0.
	ServicesMax int32 `json:"servicesMax"`
}

// StateConfiguration is about what outlives the process beside the rules.
type StateConfiguration struct {
	// Dir is the directory of the record of what kernel settings were before, for
	// the clean-up, which has to be told the same. One that is forgotten at a
	// reboot, as settings are; each network namespace needs its own. Default
	// /run/sluice.
	Dir string `json:"dir"`
}

// setDefaults fills in what is left out.
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
		{&s.Conntrack.Gather, 20 * time.Millisecond},
		{&s.IPVS.DrainDeadline, 15 * time.Minute},
	} {
		if d.field.Duration == 0 {
			d.field.Duration = d.value
		}
	}
	if s.Start.NodeWait == nil {
		s.Start.NodeWait = &metav1.Duration{Duration: 30 * time.Second}
	}
	if s.Actors.ServicesMax == 0 {
		s.Actors.ServicesMax = 200_000
	}
	if s.IPTables.Variant == "" {
		s.IPTables.Variant = "auto"
	}
	if s.State.Dir == "" {
		s.State.Dir = "/run/sluice"
	}
}

// setModeDefaults fills in what depends on the mode, flags included.
func (s *SluiceConfiguration) setModeDefaults(mode v1alpha1.ProxyMode) {
	if s.NFTables.LocalhostNodePorts == nil {
		s.NFTables.LocalhostNodePorts = ptr.To(mode != ModeNFTables)
	}
}

// copy gives one that shares nothing with this one.
func (s *SluiceConfiguration) copy() SluiceConfiguration {
	c := *s
	c.Pace.Spacing = clone(s.Pace.Spacing)
	c.Pace.Deadline = clone(s.Pace.Deadline)
	c.Pace.WriteShare = clone(s.Pace.WriteShare)
	c.Pace.AuditInterval = clone(s.Pace.AuditInterval)
	c.Start.NodeWait = clone(s.Start.NodeWait)
	c.NFTables.LocalhostNodePorts = clone(s.NFTables.LocalhostNodePorts)
	return c
}

func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	return ptr.To(*p)
}
