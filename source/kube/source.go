package kube

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	clientcache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/sluice-proxy/sluice/source"
)

// Source feeds a cache from an API server.
type Source struct {
	config   Config
	cache    *source.Cache
	log      *zap.Logger
	clients  *clients
	contacts map[string]*contact
	outage   *outage
	line     *line
	// backoff is how long to wait between failed attempts.
	backoff *wait.Backoff
}

// New prepares to feed cache from the server of config. It reads the
// kubeconfig but does not connect.
func New(config Config, cache *source.Cache, log *zap.Logger) (*Source, error) {
	client, err := RESTConfig(config)
	if err != nil {
		return nil, err
	}
	return NewForREST(config, client, cache, log)
}

// NewForREST is New with a client configuration made before, usually by
// RESTConfig. It ignores Kubeconfig, Master, QPS, Burst and ContentType of config.
func NewForREST(config Config, client *rest.Config, cache *source.Cache, log *zap.Logger) (*Source, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("API source: %w", err)
	}
	s := &Source{config: config, cache: cache, log: log, contacts: make(map[string]*contact), outage: &outage{log: log}, backoff: retry()}
	for _, resource := range watched {
		s.contacts[resource] = &contact{resource: resource, log: log, outage: s.outage}
	}
	probe, err := newProbe(client)
	if err != nil {
		return nil, err
	}
	s.line = newLine(probe, s.unanswered)
	if s.clients, err = newClients(client, s.line); err != nil {
		return nil, err
	}
	return s, nil
}

// unanswered records a failure for every resource that cannot be read.
func (s *Source) unanswered(err error) {
	for _, c := range s.contacts {
		if !c.status().FailingSince.IsZero() {
			c.failed(time.Now(), err)
		}
	}
}

// retry is the pause between failed attempts: from 0.25 s to 2.5 s, and up to as much
// again at random, so that the nodes of a large cluster do not come back all at once.
// (client-go's own goes up to 30 s and as much again, and a node would lag that long
// after an outage.)
func retry() *wait.Backoff {
	return &wait.Backoff{Duration: 250 * time.Millisecond, Cap: 2500 * time.Millisecond, Steps: 5, Factor: 2, Jitter: 1}
}

// watched lists the resources in the order in which Status reports them.
var watched = []string{services, endpointSlices, nodes, serviceCIDRs}

// Run lists and watches until ctx ends, and then returns nil. It waits while the server
// fails; Status reports the failures.
func (s *Source) Run(ctx context.Context) error {
	s.awaitLists()
	follow := func(kind runtime.Object, store clientcache.ReflectorStore, lw *listWatch) func() {
		lw.line = s.line
		return func() { s.follow(ctx, s.reflector(ctx, kind, store, lw), lw) }
	}
	reflectors := []func(){
		follow(&corev1.Service{}, s.serviceStore(), &listWatch{
			client: s.clients.core, contact: s.contacts[services],
			labels: serviceLabels, fields: serviceFields,
		}),
		follow(&discoveryv1.EndpointSlice{}, s.endpointSliceStore(), &listWatch{
			client: s.clients.discovery, contact: s.contacts[endpointSlices],
			labels: endpointSliceLabels,
		}),
		follow(&corev1.Node{}, s.nodeStore(), &listWatch{
			client: s.clients.core, contact: s.contacts[nodes],
			fields: "metadata.name=" + s.config.NodeName,
		}),
		follow(&networkingv1.ServiceCIDR{}, s.serviceCIDRStore(), &listWatch{
			client: s.clients.networking, contact: s.contacts[serviceCIDRs],
			absentRetry: s.config.AbsentRetry, failed: func() { s.cache.Listed(serviceCIDRs) },
		}),
	}
	defer s.clients.close()
	var running sync.WaitGroup
	running.Go(func() { s.line.run(ctx) })
	for _, reflector := range reflectors {
		running.Go(reflector)
	}
	running.Wait()
	s.outage.close()
	return nil
}

// follow runs a reflector until ctx ends. The reflector's own loop would finish its
// backoff although the server is back.
func (s *Source) follow(ctx context.Context, reflector *clientcache.Reflector, lw *listWatch) {
	pause := s.backoff.DelayWithReset(clock.RealClock{}, backoffReset)
	for ctx.Err() == nil {
		wake := s.line.wake()
		err := reflector.ListAndWatchWithContext(ctx)
		if err != nil && ctx.Err() == nil && !errors.Is(err, lw.told) {
			lw.contact.failed(time.Now(), err) // an answer that cannot be decoded
		}
		s.line.sleep(ctx, pause(), wake)
	}
}

// backoffReset is the time without a failure after which the pause is short again.
const backoffReset = 2 * time.Minute

// Status returns the state of each watched resource, in a fixed order.
func (s *Source) Status() []Status {
	all := make([]Status, 0, len(watched))
	for _, resource := range watched {
		all = append(all, s.contacts[resource].status())
	}
	return all
}

func (s *Source) reflector(ctx context.Context, kind runtime.Object, store clientcache.ReflectorStore, lw *listWatch) *clientcache.Reflector {
	return clientcache.NewReflectorWithOptions(lw, kind, store, clientcache.ReflectorOptions{
		Name:         "sluice/" + lw.contact.resource,
		ResyncPeriod: max(s.config.ResyncPeriod, 0),
		Clock:        stoppableClock{ctx: ctx, line: s.line},
		Backoff:      s.backoff,
	})
}

func (s *Source) heard(resource string) func() {
	return func() { s.contacts[resource].answered(time.Now()) }
}
