package daemon

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/source/kube"
)

// list returns what the API server says now.
func (p *planner) list(ctx context.Context, options source.Options) (*source.Cache, error) {
	api := p.api()
	client, err := kube.RESTConfig(api)
	if err != nil {
		return nil, err
	}
	api.NodeName = p.settings.Name
	primed := make(listed)
	cache := source.NewCache(primed, options)
	from, err := kube.NewForREST(api, client, cache, p.log)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, listMax)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- from.Run(ctx) }()
	select {
	case <-primed:
		cancel()
		return cache, <-done
	case <-ctx.Done():
		<-done
		return nil, unlisted(from.Status())
	}
}

// unlisted says why the API server's lists are not complete.
func unlisted(resources []kube.Status) error {
	for _, r := range resources {
		if r.Err != nil && !r.Absent {
			return fmt.Errorf("the API server did not list %s within %v: %w", r.Resource, listMax, r.Err)
		}
	}
	return fmt.Errorf("the API server did not answer within %v", listMax)
}

// listed is the sink of a cache that is only read; it is closed once the cache is complete.
type listed chan struct{}

func (listed) PostSpec(service.Key, *service.Spec)           {}
func (listed) PostSlice(service.Key, string, *service.Slice) {}
func (listed) PostNode(*service.NodeObject)                  {}
func (listed) PostServiceCIDRs([]netip.Prefix)               {}
func (l listed) Primed()                                     { close(l) }
