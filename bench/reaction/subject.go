// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	kwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	clientcache "k8s.io/client-go/tools/cache"

	"github.com/sluice-proxy/sluice/bench/rig"
	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/observe"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/source/kube"
)

// subject is a running proxy that writes to this process's network namespace. The measurement acts as
// the API server: it hands objects to the stores of the API source as reflectors would.
type subject struct {
	*watcher
	cluster              *cluster
	ofServices, ofSlices clientcache.TransformingStore
	stopped              chan error
	cancel               context.CancelFunc
	// generating is how long it took to generate API objects for the first list.
	generating time.Duration
}

// startFilled starts a proxy and waits until the whole cluster is programmed.
func startFilled(ctx context.Context, o options, c *cluster) (*subject, error) {
	subject, err := startRig(ctx, o, c)
	if err != nil {
		return nil, err
	}
	if err = subject.list(); err == nil {
		_, err = subject.await(ctx, "the cold start", subject.complete)
	}
	if err != nil {
		return nil, errors.Join(err, subject.stop())
	}
	rig.Progress("%d Services programmed", c.services)
	return subject, nil
}

// startRig starts a proxy that has not seen any object yet.
func startRig(ctx context.Context, o options, c *cluster) (*subject, error) {
	log := silentLog()
	domains, err := o.domains(ctx, log)
	if err != nil {
		return nil, err
	}
	c.oneChain = o.mode == iptables
	r := &subject{cluster: c, stopped: make(chan error, 1)}
	var names []string
	for i := range domains {
		names = append(names, domains[i].Name)
	}
	if len(names) != len(service.Families) {
		return nil, fmt.Errorf("domains %v: this kernel cannot serve both families", names)
	}
	r.watcher = newWatcher(names, c.services+len(firsts)+1)
	ready := make(chan error, 1)
	p, err := proxy.New(proxy.Config{
		Node: proxy.NodeSettings{Name: nodeName}, Domains: domains,
		Listeners: []observe.Listener{observe.NewLog(log, nil), r.watcher},
		Source: func(ctx context.Context, cache *source.Cache) error {
			// Never connected: only its stores are used.
			api, err := kube.NewForREST(kube.Config{NodeName: nodeName}, &rest.Config{Host: "192.0.2.0"}, cache, log)
			if err == nil {
				r.ofServices, r.ofSlices = api.Stores()
			}
			ready <- err
			<-ctx.Done()
			return nil
		},
	})
	if err != nil {
		return nil, err
	}
	ctx, r.cancel = context.WithCancel(ctx)
	go func() {
		err := p.Run(ctx)
		if ctx.Err() == nil {
			r.fail(fmt.Errorf("the proxy has ended: %w", err))
		}
		r.stopped <- err
	}()
	if err := <-ready; err != nil {
		return nil, errors.Join(err, r.stop())
	}
	return r, nil
}

// domains returns the domains of the backend to measure.
func (o options) domains(ctx context.Context, log *zap.Logger) ([]proxy.Domain, error) {
	if o.mode == nftables {
		return backend.NFTables(ctx, backend.NFTablesOptions{MasqueradeBit: 14, Log: log})
	}
	domains, _, err := backend.IPTables(ctx, backend.IPTablesOptions{Variant: o.variant, MasqueradeBit: 14, PrivateLock: true, Log: log})
	return domains, err
}

// silentLog formats what a proxy logs by default, and discards it.
func silentLog() *zap.Logger {
	encoder := zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig())
	return zap.New(zapcore.NewCore(encoder, zapcore.AddSync(io.Discard), zap.InfoLevel))
}

// stop ends the proxy.
func (r *subject) stop() error {
	r.cancel()
	return <-r.stopped
}

// list delivers the first lists as streamed ones: each object is reduced as it arrives, and Replace
// gets the reduced ones.
func (r *subject) list() error {
	var services, slices []any
	add := func(list *[]any, store clientcache.TransformingStore, object any) error {
		item, err := store.Transformer()(object)
		*list = append(*list, item)
		return err
	}
	put := func(svc *corev1.Service, of []*discoveryv1.EndpointSlice) error {
		err := add(&services, r.ofServices, svc)
		for _, slice := range of {
			err = errors.Join(err, add(&slices, r.ofSlices, slice))
		}
		return err
	}
	for i := range r.cluster.services {
		began := time.Now()
		svc, of := r.cluster.service(i), r.cluster.slices(i)
		r.generating += time.Since(began)
		if err := put(svc, of); err != nil {
			return err
		}
	}
	for _, f := range firsts {
		svc, slice := r.cluster.first(f)
		if err := put(svc, []*discoveryv1.EndpointSlice{slice}); err != nil {
			return err
		}
	}
	return errors.Join(r.ofServices.Replace(services, "1"), r.ofSlices.Replace(slices, "1"))
}

// deliver hands one watch event over as a reflector does.
func (r *subject) deliver(event kwatch.Event) error {
	var store clientcache.ReflectorStore
	switch event.Object.(type) {
	case *corev1.Service:
		store = r.ofServices
	case *discoveryv1.EndpointSlice:
		store = r.ofSlices
	default:
		return fmt.Errorf("no store for a %T", event.Object)
	}
	switch event.Type {
	case kwatch.Added:
		return store.Add(event.Object)
	case kwatch.Modified:
		return store.Update(event.Object)
	case kwatch.Deleted:
		return store.Delete(event.Object)
	default:
		return fmt.Errorf("no way to deliver a %s event", event.Type)
	}
}
