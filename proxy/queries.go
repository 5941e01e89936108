// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane/ledger"
	"github.com/sluice-proxy/sluice/service"
)

// This file answers queries about what the proxy does. No query delays a change: values are read as actors read them,
// and a ledger is read between two turns of its owner.

// Synced returns when the cache was complete; zero before.
func (p *Proxy) Synced() time.Time {
	if at := p.synced.Load(); at != nil {
		return *at
	}
	return time.Time{}
}

// Keys returns the keys of all Services, sorted. It walks all of them.
func (p *Proxy) Keys() []service.Key { return p.cache.Keys() }

// NodePort reports whether a Service has a TCP node port.
func (p *Proxy) NodePort(port uint16) bool {
	f := service.Frontend{Port: port, Protocol: service.TCP}
	return slices.ContainsFunc(service.Families[:], func(family service.Family) bool {
		_, has := p.cache.Owner(family, f)
		return has
	})
}

// Snapshot returns what the source has said about a Service.
func (p *Proxy) Snapshot(key service.Key) service.Snapshot { return p.cache.Snapshot(key) }

// Observe passes on what the node has observed of the endpoints of a Service; nil for nothing. One goroutine must call it.
func (p *Proxy) Observe(key service.Key, o *service.Observed) { p.cache.Observe(key, o) }

// Owner returns the Service that has a frontend, which has no address for a node port.
func (p *Proxy) Owner(family service.Family, f service.Frontend) (service.Key, bool) {
	return p.cache.Owner(family, f)
}

// OwnerPort returns the Service of Owner, and the name of its port.
func (p *Proxy) OwnerPort(family service.Family, f service.Frontend) (key service.Key, port string, ok bool) {
	return p.cache.OwnerPort(family, f)
}

// Account returns what a domain's ledger records of a key; see aggregator.Aggregator.Account.
func (p *Proxy) Account(ctx context.Context, domain string, key service.Key, limit int) (ledger.Account, error) {
	a, err := p.aggregator(domain)
	if err != nil {
		return ledger.Account{}, err
	}
	return a.Account(ctx, key, limit)
}

// Pending returns the keys that are not applied in a domain; see aggregator.Aggregator.Pending.
func (p *Proxy) Pending(ctx context.Context, domain string) ([]service.Key, error) {
	a, err := p.aggregator(domain)
	if err != nil {
		return nil, err
	}
	return a.Pending(ctx)
}

// Search finds out which Services send new connections to endpoints, in one domain; see aggregator.Aggregator.Search.
// A domain has no endpoints of the other family, and is not asked about them.
func (p *Proxy) Search(ctx context.Context, domain string, sought []*ledger.Sought) error {
	a, err := p.aggregator(domain)
	if err != nil {
		return err
	}
	family := p.config.Domains[slices.Index(p.aggregators, a)].Family
	sought = slices.DeleteFunc(slices.Clone(sought), func(s *ledger.Sought) bool { return service.FamilyOf(s.At.Addr()) != family })
	if len(sought) == 0 {
		return nil
	}
	return a.Search(ctx, sought)
}

func (p *Proxy) aggregator(domain string) (*aggregator.Aggregator, error) {
	for i := range p.config.Domains {
		if p.config.Domains[i].Name == domain {
			return p.aggregators[i], nil
		}
	}
	return nil, fmt.Errorf("no domain %q", domain)
}
