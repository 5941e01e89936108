// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/internal/daemon/feed"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/source/kube"
)

// list returns the current objects of the API server.
func (p *preview) list(ctx context.Context, options source.Options) (*source.Cache, error) {
	api := feed.API(p.options)
	client, err := kube.RESTConfig(api)
	if err != nil {
		return nil, err
	}
	addresses := feed.WatchServer(client)
	defer func() { p.servers = addresses.Known() }()
	api.NodeName = p.settings.Name
	complete := &listed{primed: make(chan struct{}), node: make(chan struct{})}
	cache := source.NewCache(complete, options)
	from, err := kube.NewForREST(api, client, cache, p.log)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, listMax)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- from.Run(ctx) }()
	select {
	case <-complete.primed:
		// Like a start, wait for the Node for a while.
		select {
		case <-complete.node:
		case <-time.After(p.options.Patience()):
		case <-ctx.Done():
		}
		cancel()
		return cache, <-done
	case <-ctx.Done():
		<-done
		return nil, unlisted(from.Status())
	}
}

// unlisted returns why the API server's lists are not complete.
func unlisted(resources []kube.Status) error {
	for _, r := range resources {
		if r.Err != nil && !r.Absent {
			return fmt.Errorf("the API server did not list %s within %v: %w", r.Resource, listMax, r.Err)
		}
	}
	return fmt.Errorf("the API server did not answer within %v", listMax)
}

// listed is the sink of a cache that is only read. primed is closed once the cache is complete, and node once it
// contains the Node.
type listed struct {
	primed, node chan struct{}
	once         sync.Once
}

func (*listed) PostSpec(service.Key, *service.Spec)           {}
func (*listed) PostSlice(service.Key, string, *service.Slice) {}
func (*listed) PostServiceCIDRs([]netip.Prefix)               {}
func (l *listed) PostNode(*service.NodeObject)                { l.once.Do(func() { close(l.node) }) }
func (l *listed) Primed()                                     { close(l.primed) }
