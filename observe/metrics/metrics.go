// SPDX-License-Identifier: Apache-2.0

// Package metrics counts what the core announces, and serves it at /metrics and /metrics/services.
// The daemon makes one [Metrics] per proxy, which is an observe.Listener and follows the proxy. It
// has four kinds of metrics:
//
//   - kube-proxy's metrics, with its names, labels and buckets, so that dashboards, alerts and load
//     tests work unchanged (kubeproxy.go);
//   - Sluice's own, sluice_…, with finer buckets: upstream's latency histogram begins where our
//     work has long ended (domain.go, actors.go);
//   - those of the parts of the process, which each part defines (part.Part.Metrics; sampled.go);
//   - those of single Services, made of the records of the book and shown at /metrics/services. The
//     size of /metrics itself does not depend on the number of Services.
//
// Each metric is defined in one place and registered there. Events are counted when they come. What
// the core and the book know (sizes, ages, what waits, states of actors) is read at each scrape.
// docs/metrics.md has the meaning of each metric.
//
// No listener method blocks its caller: counters are atomic.
package metrics

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/component-base/featuregate"
	kube "k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/features"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // rest_client_…, workqueue_…
	"k8s.io/component-base/metrics/prometheus/feature"
	_ "k8s.io/component-base/metrics/prometheus/version" // kubernetes_build_info

	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/observe/book"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
)

// Config configures a Metrics.
type Config struct {
	// Mode is kube-proxy's name of the backend: "iptables", "nftables", "ipvs" or "userspace".
	Mode string
	// Refusals are the reasons for which the mode counts refused packets or clients.
	Refusals []traffic.Reason
	// Book has the records of Services, the domains and their state. At most one domain per family is not auxiliary.
	// Auxiliary domains do not count in kube-proxy's metrics. Nil is an empty book.
	Book *book.Book
	// Events returns what the source received; nil means nothing. It never waits for a lock, because aggregators call it.
	Events func() source.Events
	// Build identifies the program, for sluice_build_info.
	Build   Build
	Process Process
	// Traffic returns what the kernel has counted; nil in a family in which that is unknown. The frontend of a node
	// port has no address, or each address of the node. Amounts calls it. Nil if the kernel does not count.
	Traffic func(ctx context.Context) service.PerFamily[*traffic.Reading]
	// Refresh calls Amounts unless the next reading may not begin yet; see usage.Recorder. It is called for each answer
	// about Services. Nil means never.
	Refresh func(ctx context.Context)
	// Owner returns the Service that has a frontend, which may be an address of the node with a node port. It is
	// called for each frontend that Traffic returns.
	Owner func(service.Family, service.Frontend) (service.Key, bool)
	// Relayed returns what this process has passed on for a Service; nil in a family without
	// listeners. It is called for each Service of an answer. Relay returns it for all Services, and
	// is called at each scrape. Both are nil in other modes than userspace.
	Relayed func(service.Key) service.PerFamily[*traffic.ServiceTally]
	Relay   func() Relay
	// Accounted returns the packets that the kernel has counted in the accounting objects of
	// iptables mode, by the name of the object. It is called at each scrape. Nil if the kernel does
	// not count.
	Accounted func() (map[string]uint64, error)
	// Flows returns the last reading of the connection table; nil if there is none, or an old one only. It is called
	// for each answer about Services. Nil if the table is not read continuously.
	Flows func() *traffic.Flows
	// LocalhostListeners adds kube-proxy's metrics of listeners for node ports on localhost, as its
	// feature gate KubeProxyNFTablesLocalhostNodePorts does; the auxiliary domains hold the listeners.
	LocalhostListeners bool
	// ServicesMax is the number of Services with separate metrics at /metrics: those with the
	// longest time from receipt to kernel. 0 means none.
	ServicesMax int
}

// Build identifies a build of the program.
type Build struct {
	// Version is its version, and Revision the commit; empty if unknown.
	Version, Revision string
}

// Process has the settings that a process has only one of.
type Process struct {
	// Features are the known feature gates, for kubernetes_feature_enabled.
	Features []Feature
	// ShowHidden shows what has been hidden since the previous minor release of Kubernetes
	// (showHiddenMetricsForVersion). Once set it stays.
	ShowHidden bool
	// NativeHistograms is the feature gate of that name: kube-proxy's histograms have the native
	// form as well. Sluice's own always have it.
	NativeHistograms bool
}

// Feature is one feature gate of Kubernetes.
type Feature struct {
	Name string
	// Stage is "alpha", "beta", "GA" or "deprecated", in any case.
	Stage   string
	Enabled bool
}

// Metrics counts for one proxy. It implements observe.Listener and prometheus.Gatherer.
//
// Concurrency: all methods are safe for concurrent use, and no listener method blocks. The events
// of one domain must come from one goroutine, as an aggregator's do.
type Metrics struct {
	config Config
	// registry is not a KubeRegistry: the library keeps each of those for the life of the process,
	// and this one leads to a whole proxy. Nothing that outlives a Metrics may refer to it.
	registry *prometheus.Registry
	kube     *kubeProxy
	actors   *actorMetrics
	refused  *prometheus.CounterVec
	domains  map[string]*domain
	// lastReading is the last one of Amounts; nil before the first one.
	lastReading atomic.Pointer[service.PerFamily[*traffic.Reading]]
	// began is when this process began to count. What was caused earlier is not measured.
	began time.Time
}

// New makes the metrics of one proxy. Gather adds those of the process: of client-go, of the Go
// runtime and of the operating system.
func New(config Config) (*Metrics, error) {
	if err := config.Process.Set(); err != nil {
		return nil, err
	}
	if config.Book == nil {
		config.Book = book.New(book.Config{})
	}
	if config.Events == nil {
		config.Events = func() source.Events { return source.Events{} }
	}
	registry := prometheus.NewRegistry()
	m := &Metrics{
		config: config, registry: registry,
		kube: newKubeProxy(registry, config.Mode), actors: newActorMetrics(registry), refused: newRefused(registry),
		domains: map[string]*domain{}, began: time.Now(),
	}
	for _, d := range config.Book.Domains {
		m.domains[d.Name] = newDomain(d, m)
	}
	registry.MustRegister(
		collector{m.kube.descs(), m.collectKubeProxy},
		collector{statusDescs(), m.collectStatus},
		collector{[]*prometheus.Desc{actorsDesc, abandonedDesc, balancedDesc}, m.collectActors},
		collector{serviceDescs(), m.collectServices},
	)
	registry.MustRegister(collector{[]*prometheus.Desc{buildDesc}, m.collectBuild})
	if config.Relay != nil {
		registry.MustRegister(collector{relayDescs(), m.collectRelay})
	}
	return m, nil
}

// Gather returns all metrics of the process.
func (m *Metrics) Gather() ([]*dto.MetricFamily, error) {
	return prometheus.Gatherers{m.registry, legacyregistry.DefaultGatherer}.Gather()
}

// Handler serves /metrics: text, or, to clients that accept them, OpenMetrics, which has exemplars, and
// the protobuf form, which has native histograms as well.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m, promhttp.HandlerOpts{ProcessStartTime: legacyregistry.GetProcessStart(), EnableOpenMetrics: true})
}

var buildDesc = prometheus.NewDesc("sluice_build_info",
	"Always 1; the labels contain version, commit (revision), Go version and platform.",
	[]string{"version", "revision", "go_version", "platform"}, nil)

func (m *Metrics) collectBuild(to chan<- prometheus.Metric) {
	b := m.config.Build
	send(to, buildDesc, prometheus.GaugeValue, 1, b.Version, b.Revision, runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH)
}

// Set applies the settings to the process: to kube-proxy's metrics that New makes from now on, and
// to kubernetes_feature_enabled.
func (p Process) Set() error {
	if p.ShowHidden {
		kube.SetShowHidden()
	}
	gates := featuregate.NewFeatureGate()
	err := features.AddFeatureGates(gates)
	if err == nil {
		err = gates.SetFromMap(map[string]bool{string(features.NativeHistograms): p.NativeHistograms})
	}
	if err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	features.ApplyFeatureGates(gates)
	for _, f := range p.Features {
		stage := strings.ToUpper(f.Stage)
		if stage == "GA" {
			stage = "" // as Kubernetes writes it
		}
		feature.RecordFeatureInfo(context.Background(), f.Name, stage, f.Enabled)
	}
	return nil
}
