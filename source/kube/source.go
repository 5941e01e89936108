// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
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

	"github.com/sluice-proxy/sluice/internal/sleep"
	"github.com/sluice-proxy/sluice/source"
)

// Source feeds a cache from an API server.
type Source struct {
	config   Config
	cache    *source.Cache
	log      *zap.Logger
	contacts map[string]*contact
	clients  map[string]rest.Interface
	// closeAll closes the connections of all clients.
	closeAll func()
	outage   *outage
	// absentRetry is how long to wait before asking again for ServiceCIDRs that the server does not serve, or does not
	// let us read.
	absentRetry time.Duration
	// backoff is how long to wait between failed attempts, and overload while the server is overloaded.
	backoff  *wait.Backoff
	overload wait.Backoff
}

// NewForREST prepares to feed cache from the server of a client configuration,
// usually of RESTConfig. It does not connect. Of config it uses the NodeName only.
func NewForREST(config Config, client *rest.Config, cache *source.Cache, log *zap.Logger) (*Source, error) {
	return newForREST(config, client, cache, log, connectionLimits)
}

func newForREST(config Config, client *rest.Config, cache *source.Cache, log *zap.Logger, l limits) (*Source, error) {
	if config.NodeName == "" {
		return nil, errors.New("API source: node name must not be empty")
	}
	s := &Source{
		config: config, cache: cache, log: log, contacts: make(map[string]*contact), outage: &outage{log: log},
		absentRetry: 5 * time.Minute, backoff: retry(), overload: overload(),
	}
	for _, resource := range watched {
		s.contacts[resource] = &contact{resource: resource, log: log, outage: s.outage}
	}
	var err error
	if s.clients, s.closeAll, err = newClients(client, s.contacts, l); err != nil {
		return nil, err
	}
	return s, nil
}

// retry is the pause between failed attempts: from 0.25 s to 1.5 s, and up to as much
// again at random, so that the nodes of a large cluster do not all return together.
// (client-go's own goes up to 30 s and as much again, and a node would lag that long
// after an outage.)
func retry() *wait.Backoff {
	return &wait.Backoff{Duration: 250 * time.Millisecond, Cap: 1500 * time.Millisecond, Steps: 5, Factor: 2, Jitter: 1}
}

// retryReset is the time without a failure after which the pause is short again.
const retryReset = 2 * time.Minute

// watched lists the resources in the order in which Status reports them.
var watched = []string{services, endpointSlices, nodes, serviceCIDRs}

// Run lists and watches until ctx ends, and then returns nil. It waits while the server
// fails; Status reports the failures.
func (s *Source) Run(ctx context.Context) error {
	s.awaitLists()
	var running sync.WaitGroup
	follow := func(kind runtime.Object, store clientcache.ReflectorStore, resource string, lw listWatch) {
		lw.client, lw.contact = s.clients[resource], s.contacts[resource]
		lw.overload, lw.firstOverload = s.overload, s.overload
		running.Go(func() { s.follow(ctx, kind, store, &lw) })
	}
	follow(&corev1.Service{}, s.serviceFeed(), services, listWatch{labels: serviceLabels, fields: serviceFields})
	follow(&discoveryv1.EndpointSlice{}, s.endpointSliceFeed(), endpointSlices, listWatch{labels: endpointSliceLabels})
	follow(&corev1.Node{}, s.nodeFeed(), nodes, listWatch{fields: "metadata.name=" + s.config.NodeName})
	follow(&networkingv1.ServiceCIDR{}, s.serviceCIDRFeed(), serviceCIDRs, listWatch{
		absentRetry: s.absentRetry, failed: func() { s.cache.Listed(serviceCIDRs) },
	})
	running.Wait()
	s.closeAll()
	s.outage.close()
	return nil
}

// follow runs a reflector until ctx ends. The reflector's own loop would log each failure.
func (s *Source) follow(ctx context.Context, kind runtime.Object, store clientcache.ReflectorStore, lw *listWatch) {
	reflector := clientcache.NewReflectorWithOptions(lw, kind, store, clientcache.ReflectorOptions{
		Name:    "sluice/" + lw.contact.resource,
		Clock:   stoppableClock{ctx: ctx},
		Backoff: s.backoff,
	})
	delay := s.backoff.DelayWithReset(clock.RealClock{}, retryReset)
	_ = delay.Until(ctx, true, true, func(ctx context.Context) (done bool, err error) { // ends with ctx
		if err := reflector.ListAndWatchWithContext(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, lw.told) {
			lw.contact.failed(time.Now(), err) // an answer that cannot be decoded
		}
		return false, nil
	})
}

// stoppableClock is the real clock, except that After also fires when ctx ends. A reflector finishes
// its backoff without checking its context (client-go v0.37, Reflector.watchList) and would delay the
// end of the process.
type stoppableClock struct {
	clock.RealClock
	ctx context.Context
}

// After implements clock.Clock.
func (c stoppableClock) After(d time.Duration) <-chan time.Time {
	over := make(chan time.Time, 1)
	go func() {
		sleep.For(c.ctx, d)
		over <- time.Now()
	}()
	return over
}

// Status returns the state of each watched resource, in a fixed order.
func (s *Source) Status() []Status {
	all := make([]Status, 0, len(watched))
	for _, resource := range watched {
		all = append(all, s.contacts[resource].status())
	}
	return all
}
