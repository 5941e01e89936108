package proxy

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/sluice-proxy/sluice/actors"
	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/observe"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/supervisor"
)

// Source fills the cache until the context ends; it primes the cache once the
// first full picture is in. An error ends the proxy.
type Source func(ctx context.Context, cache *source.Cache) error

// Domain is one place that the proxy keeps right: what one writer commits.
type Domain struct {
	// Name is unique, for example "iptables/IPv4".
	Name   string
	Family service.Family
	// Auxiliary domains hold something beside the kernel's rules: followers
	// are not told about them.
	Auxiliary bool
	Renderer  dataplane.Renderer
	Writer    dataplane.Writer
	// Layout is nil for writers that can change single elements.
	Layout dataplane.Layout
	Pace   aggregator.Pace
	// Drain, when set, lets TCP endpoints that leave keep the connections that
	// they have, for DrainDeadline at most (0: 15 min); see actors.Output.
	Drain         actors.Drainer
	DrainDeadline time.Duration
}

// Config is what a Proxy is made of. Zero fields take their defaults.
type Config struct {
	Node    NodeSettings
	Domains []Domain
	Source  Source
	// Warn is told what is wrong with an API object; nil tells nobody.
	Warn func(service.Warning)
	// IgnoreExternalIPs takes Services for ones without External IPs.
	IgnoreExternalIPs bool
	// WatchFailed is told why others' changes to a domain are not announced; that
	// is tried again. Nil tells nobody.
	WatchFailed func(domain string, err error)
	// HostAddresses, when set, follows the host's addresses and calls back
	// with all of them at the start and after each change.
	HostAddresses func(ctx context.Context, changed func([]netip.Addr)) error
	// Supervisor says when failed actors are restarted.
	Supervisor supervisor.Config
	// MaxServices bounds the number of actors; see actors.Config.
	MaxServices int
	// GateWait is how long the first write waits for Services that the source
	// named; see aggregator.Config.
	GateWait time.Duration
	// MayWrite, when set, is closed once this process may read and write the kernel's
	// rules. Before that it prepares everything up to the first look at them.
	MayWrite <-chan struct{}
	// NodeWait is how long the actors wait for the Node object after the source
	// is primed, so that zone and pod CIDRs are known from the first rule on.
	// 0 does not wait.
	NodeWait time.Duration
	// Followers act on what is in force.
	Followers []Follower
	// Listeners are told everything that happens.
	Listeners []observe.Listener
	// Intercept is for the demo and the simulation; see actors.Config.
	Intercept func(ctx context.Context, key service.Key, message actors.Message)
}

// Follower does what has to follow rules, once they are in the kernel: health-check
// ports, the clean-up of stale flows.
type Follower interface {
	// Programmed says that the kernel serves a Service as the view says, in one
	// family. Views that newer ones overtake are left out, and one may come
	// twice; a view without ports of the family says that the Service is not
	// served any more. It is called by the Service's actor and must not block.
	Programmed(family service.Family, view service.View)
}

// Mender is implemented by followers that have something to put right after rules of
// a family were missing or wrong.
type Mender interface {
	// Repaired says that they are in force again. It must not block.
	Repaired(family service.Family)
}

func (c Config) validate() error {
	if err := c.Node.validate(); err != nil {
		return err
	}
	if c.Source == nil {
		return fmt.Errorf("no source: a proxy needs manifests or an API server")
	}
	if len(c.Domains) == 0 {
		return fmt.Errorf("no domain: neither family can be served on this node")
	}
	names := map[string]bool{}
	for _, d := range c.Domains {
		if d.Renderer == nil || d.Writer == nil {
			return fmt.Errorf("domain %q: needs a renderer and a writer", d.Name)
		}
		if names[d.Name] {
			return fmt.Errorf("domain %q: named twice", d.Name)
		}
		names[d.Name] = true
	}
	return nil
}
