// SPDX-License-Identifier: Apache-2.0

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
)

// Source fills the cache until the context ends, and primes it once it is complete.
// An error ends the proxy.
type Source func(ctx context.Context, cache *source.Cache) error

// Domain is one part of the kernel's state: what one writer writes.
type Domain struct {
	// Name is unique, for example "iptables/IPv4".
	Name   string
	Family service.Family
	// Auxiliary domains hold something other than the kernel's rules. ApplyObservers are
	// not called for them.
	Auxiliary bool
	// Awaited is set for an auxiliary domain without which the rules are not fully applied. FirstSync waits for it,
	// too: until then, other proxies' rules serve.
	Awaited  bool
	Renderer dataplane.Renderer
	Writer   dataplane.Writer
	// Layout is nil if the writer can change single elements.
	Layout dataplane.Layout
	Pace   aggregator.Pace
}

// Config configures a Proxy. Zero fields take their defaults.
type Config struct {
	Node    NodeSettings
	Domains []Domain
	Source  Source
	// Objects has the options for API objects, and the receivers of warnings about them. Optional.
	Objects source.Options
	// WatchFailed receives the reason why a domain's watch for changes by other
	// programs failed. The watch is retried. Optional.
	WatchFailed func(domain string, err error)
	// HostAddresses, if set, follows the host's addresses. It calls changed with
	// all of them at the start and after each change.
	HostAddresses func(ctx context.Context, changed func([]netip.Addr)) error
	// ServerAddresses, if set, follows the addresses at which the source reaches the API server. It
	// calls changed at the start and after each change.
	ServerAddresses func(ctx context.Context, changed func([]netip.Addr)) error
	// MessageDeadline is how long an actor may take over one message before it counts
	// as stuck. Default 10 s.
	MessageDeadline time.Duration
	// GateWait is how long the first write waits for Services that have not
	// submitted; see aggregator.Config.
	GateWait time.Duration
	// MayWrite, if set, is closed once this process may read and write the kernel's
	// rules. Until then it prepares everything up to the first read.
	MayWrite <-chan struct{}
	// Unlanded, if set, returns the Services whose writes did not land in the previous process. Each domain calls it
	// once, when this process may write. Their rules stay as they are at first; their writes come last, each alone.
	// Optional.
	Unlanded func() []service.Key
	// NodeWait is how long the actors wait for the Node object once everything else
	// is known, so that the first rules use its zone and pod CIDRs. 0 does not wait.
	NodeWait time.Duration
	// ApplyObservers act once rules are applied.
	ApplyObservers []ApplyObserver
	// Listeners receive every event.
	Listeners []observe.Listener
	// KeepMemory disables the return of unused memory to the system after a peak. Each return costs a garbage
	// collection, and in virtual time, returns would be frequent: only the simulation sets it.
	KeepMemory bool
	// Intercept is for the demo and the simulation; see actors.Config.
	Intercept func(ctx context.Context, key service.Key, message actors.Message)
}

// ApplyObserver does what must happen once rules are applied: it opens health-check node
// ports, or deletes stale flows. Functions that are nil are not called. The first two are
// called by the Service's actor. They must not block, and must return soon when the
// context ends: the actor has been replaced then.
type ApplyObserver struct {
	// Programmed reports that the kernel serves a Service as the view describes, in one family. Views that were
	// overtaken by newer ones are left out, and a view may come twice. A view without ports of the family means that
	// the Service is no longer served.
	Programmed viewed
	// BeforeWrite reports that the kernel may serve a Service as the view describes from now on, in one family: packets
	// follow the kernel's new rules a moment before Programmed is called.
	BeforeWrite viewed
	// AfterRepair reports that missing or wrong rules of a family are in the kernel again: after a repair and after the
	// first sync. If the kernel rejects a Service, it is also called when a part of the rules is. It must not block.
	AfterRepair func(family service.Family)
}

// viewed is a function that receives a view of a Service, in one family.
type viewed = func(ctx context.Context, family service.Family, view service.View)

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
	if c.MessageDeadline < 0 {
		return fmt.Errorf("message deadline %v: must be a positive duration", c.MessageDeadline)
	}
	names := map[string]bool{}
	for _, d := range c.Domains {
		if d.Renderer == nil || d.Writer.Write == nil || d.Writer.Read == nil {
			return fmt.Errorf("domain %q: needs a renderer and a writer", d.Name)
		}
		if names[d.Name] {
			return fmt.Errorf("domain %q: named twice", d.Name)
		}
		names[d.Name] = true
	}
	return nil
}
