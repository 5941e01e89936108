package metrics

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	kube "k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // rest_client_…, workqueue_…
	_ "k8s.io/component-base/metrics/prometheus/version"  // kubernetes_build_info

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
)

// Metrics counts for one proxy. It implements observe.Listener, proxy.Follower
// and prometheus.Gatherer.
//
// Concurrency: every method may be called from anywhere, several at once, and
// none of those that are told something blocks. Events of one domain must come
// from one goroutine, as an aggregator's do.
type Metrics struct {
	config Config
	// registry is no KubeRegistry: the library keeps every one of those for the life
	// of the process, and what is in this one leads to a whole proxy. Nothing of a
	// Metrics may be in anything that outlives it.
	registry *prometheus.Registry
	kube     *kubeProxy
	own      *own
	domains  map[string]*domain
	roster   *roster
	// owners is nil where nobody counts traffic.
	owners *owners
	// began is when this process began to count: what was caused before that is
	// no measure of it.
	began   time.Time
	sources atomic.Pointer[sources]

	// running and parked count actors; the others wait to be started again.
	// abandoned counts the goroutines of stuck ones.
	running, parked, abandoned atomic.Int64
	// unserved counts service ports whose policy finds no local endpoint.
	unserved service.PerFamily[unservedCounts]

	// refreshing guards what follows, and lets one scrape after the other ask.
	refreshing sync.Mutex
	told       source.Events
}

// sources are asked when somebody looks.
type sources struct {
	status func() []aggregator.Status
	events func() source.Events
}

// New makes the metrics of one proxy. Those of client-go, of the Go runtime and of
// the process belong to the process, and are shown beside them.
func New(config Config) (*Metrics, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	if config.ShowHidden {
		kube.SetShowHidden()
	}
	if err := showNative(config.NativeHistograms); err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	m := &Metrics{
		config: config, registry: prometheus.NewRegistry(), kube: newKubeProxy(), own: newOwn(),
		domains: map[string]*domain{}, roster: newRoster(), began: time.Now(),
	}
	if config.Traffic != nil {
		m.owners = newOwners()
	}
	m.kube.register(m.registry, config.Mode)
	m.own.register(m.registry)
	if config.Findings != nil {
		m.registry.MustRegister(newFindings(config.Findings))
	}
	for _, d := range config.Domains {
		m.domains[d.Name] = newDomain(d, m)
	}
	recordFeatures(config.Features)
	return m, nil
}

// Attach says where to ask for what the proxy knows better than a listener: the
// state of its domains, and what its source has been told. Both functions return
// at once, and events never waits for a lock: it is called by aggregators.
// Without Attach, what follows from the answers is missing.
func (m *Metrics) Attach(status func() []aggregator.Status, events func() source.Events) {
	m.sources.Store(&sources{status: status, events: events})
}

// Gather gives all metrics of the process, none of which grows with the number of
// Services: those that Services have of their own are for ServicesMax of them.
func (m *Metrics) Gather() ([]*dto.MetricFamily, error) {
	m.refresh()
	all := prometheus.Gatherers{m.registry, legacyregistry.DefaultGatherer}
	if m.config.ServicesMax > 0 {
		all = append(all, prometheus.GathererFunc(m.gatherServices))
	}
	return all.Gather()
}

// Handler serves /metrics: text, or the protobuf form, which alone carries native
// histograms, to those who accept it.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m, promhttp.HandlerOpts{ProcessStartTime: legacyregistry.GetProcessStart()})
}
